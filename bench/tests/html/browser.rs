//! A browser without a window, and what pages measure of themselves in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A browser without a window and without a network but this host.
pub struct Browser {
    program: String,
    pub folder: PathBuf,
}

impl Browser {
    pub fn new(name: &str) -> Browser {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let runs = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
        let program =
            names.iter().find(runs).expect("chromium; on Debian: apt-get install chromium");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("html").join(name);
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).expect("it is writable");
        Browser { program: (*program).to_owned(), folder }
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("it is writable");
        path
    }

    /// What it writes to its output when it opens a page so; what the page says is none of it.
    pub fn visit(&self, url: &str, options: &[&str]) -> String {
        // A page that it does not show, but would save, is waited for without end.
        let output = Command::new("timeout")
            .args(["120", &self.program])
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .args(["--disable-sync", "--disable-extensions", "--disable-dev-shm-usage"])
            .args(["--allow-file-access-from-files", "--enable-logging=stderr", "--v=0"])
            .args([
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--run-all-compositor-stages-before-draw",
            ])
            .arg(format!("--user-data-dir={}", self.folder.join("profile").display()))
            .args(options)
            .arg(url)
            .output()
            .expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{url}: {}: {errors}", output.status);
        let said: Vec<&str> = errors.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(said.is_empty(), "{url}: {said:#?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What each page measures of itself in frames of the widths of a desktop and of a telephone.
    pub fn measure(&self, pages: &[(&str, &str)], options: &[&str]) -> Vec<Value> {
        let mut frames = String::new();
        for (name, html) in pages {
            // Only this copy of the page has scripts that measure it.
            let html = html.replacen("<head>", &format!("<head><script>{COLLECT}</script>"), 1);
            let (html, end) = html.rsplit_once("</body>").expect("a page");
            self.write(
                &format!("{name}.html"),
                &format!("{html}<script>{MEASURE}</script></body>{end}"),
            );
            for width in [1000, 390] {
                let frame = format!(
                    "<iframe src=\"{name}.html#{name}\" width=\"{width}\" height=\"900\"></iframe>\n"
                );
                frames.push_str(&frame);
            }
        }
        let page = self.write("frames.html", &format!("{ALL}{frames}"));
        let dom = self
            .visit(&at(&page), &[options, &["--dump-dom", "--virtual-time-budget=60000"]].concat());
        let json =
            dom.split_once("<pre id=\"measured\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        let (json, _) = json.expect("the frames have answered");
        let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
    }
}

/// The address of a file.
pub fn at(page: &Path) -> String {
    format!("file://{}", page.display())
}

/// The page around the frames collects what they measure.
const ALL: &str = "<!DOCTYPE html><meta charset=\"utf-8\"><script>
const all = [];
addEventListener('message', (event) => {
  all.push(event.data);
  document.getElementById('measured').textContent = JSON.stringify(all);
});
</script><pre id=\"measured\">[]</pre>
";
/// Runs before anything else: collects what goes wrong.
const COLLECT: &str = "
const errors = [], violations = [];
addEventListener('error', (event) => errors.push(String(event.message)), true);
addEventListener('securitypolicyviolation', (event) => violations.push(event.blockedURI), true);
";
/// Runs at the end. A plot is drawn if points of it have the colour of one of its lines.
const MEASURE: &str = "
const box = (it) => it.getBoundingClientRect();
const say = (it) => it.tagName + ' ' + it.textContent.slice(0, 60) + ' ' + Math.round(box(it).right);
const rgb = (name) => style(name).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16)).join();
const points = (canvas) => {
  const { data: bytes } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  for (let at = 0; at < bytes.length; at += 4) {
    if (bytes[at + 3] === 255) seen.add(bytes[at] + ',' + bytes[at + 1] + ',' + bytes[at + 2]);
  }
  return seen;
};
// What is drawn is drawn in a task of its own.
setTimeout(() => {
  const canvases = [...document.querySelectorAll('canvas')];
  const title = (it) => it.closest('figure').querySelector('h3').textContent;
  const rows = (it) => it.closest('figure').querySelectorAll('tbody tr:not(.u-series)').length;
  const lines = DASHES.map((_, at) => rgb('--c' + at));
  const seen = canvases.map(points);
  const isBlank = (_, at) => !lines.some((colour) => seen[at].has(colour));
  const wide = [...document.querySelectorAll('body *')]
    .filter((it) => !it.closest('.scroll, .u-over, noscript, script') && box(it).right > innerWidth + 1).map(say);
  if (document.scrollingElement.scrollWidth > innerWidth) wide.push('the page');
  parent.postMessage({
    name: location.hash.slice(1), width: innerWidth, errors, violations, wide,
    plots: canvases.map((it) => ({ title: title(it), rows: rows(it) })),
    blank: canvases.filter(isBlank).map(title),
    flat: canvases.filter((it) => box(it).width < 200 || box(it).height < 80).map(title),
    figures: document.querySelectorAll('#figures tbody tr:not(.group)').length,
    ground: Number(getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]),
    ink: parseInt(style('--ink').trim().slice(1, 3), 16),
    evil: window.evil ? ['something of a name was run'] : [],
    requests: performance.getEntriesByType('resource').map((it) => it.name),
  }, '*');
}, 0);
";
