//! A real browser opens the pages: nothing is asked for, nothing is said on the console, every plot has
//! its place, no text runs over, and there is something to be seen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rpcrdma_bench::output::html;
use serde_json::Value;

use crate::picture::Picture;
use crate::sample::all;

const WIDTHS: [u32; 2] = [1000, 390];

/// A browser without a window and without a network but this host.
pub struct Browser {
    program: String,
    folder: PathBuf,
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

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("it is writable");
        path
    }

    /// As [`Browser::visit`], for a file.
    fn open(&self, page: &Path, options: &[&str]) -> String {
        self.visit(&at(page), options)
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

    pub fn screenshot(&self, url: &str, name: &str, size: (u32, u32), options: &[&str]) -> Picture {
        let path = self.folder.join(name);
        let shot = format!("--screenshot={}", path.display());
        let size = format!("--window-size={},{}", size.0, size.1);
        self.visit(url, &[options, &[&*shot, &*size]].concat());
        Picture::read(
            &fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        )
    }
}

/// The address of a file.
fn at(page: &Path) -> String {
    format!("file://{}", page.display())
}

/// A page of frames, each with one of the pages at one width, which collects what they measure.
fn frames(pages: &[(String, u32)]) -> String {
    let frame = |(name, width): &(String, u32)| {
        format!(
            "<iframe src=\"measured-{name}.html#{name}-{width}\" width=\"{width}\" height=\"900\"></iframe>\n"
        )
    };
    let frames: String = pages.iter().map(frame).collect();
    format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><script>\n\
         const all = {{}};\n\
         addEventListener('message', (event) => {{\n\
           all[event.data.name] = event.data;\n\
           document.getElementById('measured').textContent = JSON.stringify(all);\n\
         }});\n\
         </script><pre id=\"measured\"></pre>\n{frames}"
    )
}

/// The page with a script that measures it: only in this copy, and only this script may run.
fn with_measure(page: &str) -> String {
    let open = page.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'");
    assert_ne!(open, page, "the page says what it may ask for");
    let head = format!("<head>\n<script>{COLLECT}</script>");
    open.replacen("<head>", &head, 1).replacen(
        "</body>",
        &format!("<script>{MEASURE}</script></body>"),
        1,
    )
}

/// What was measured of every page at every width.
fn measure(browser: &Browser) -> Value {
    let mut wanted = Vec::new();
    for (name, sample) in all() {
        browser.write(&format!("measured-{name}.html"), &with_measure(&html::text(&sample)));
        wanted.extend(WIDTHS.map(|width| (name.to_owned(), width)));
    }
    let page = browser.write("frames.html", &frames(&wanted));
    let dom = browser.open(&page, &["--dump-dom", "--virtual-time-budget=20000"]);
    let measured =
        dom.split_once("<pre id=\"measured\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (json, _) = measured.expect("the frames have answered");
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let measured: Value =
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!(measured.as_object().map(serde_json::Map::len), Some(wanted.len()), "all of them");
    measured
}

#[test]
#[ignore = "needs chromium: tests/run html"]
fn a_browser_shows_every_page_as_it_is_meant() {
    let browser = Browser::new("measured");
    let measured = measure(&browser);
    for (name, page) in measured.as_object().expect("an object") {
        let none = |what: &str| {
            let list = page[what].as_array().unwrap_or_else(|| panic!("{name} has no {what}"));
            assert!(list.is_empty(), "{name}, {what}: {list:#?}");
        };
        ["errors", "violations", "requests", "evil", "flat", "outside", "overlapping", "wide"]
            .into_iter()
            .for_each(none);
        let plots = page["plots"].as_u64().expect("a number");
        let is_empty = name.starts_with("empty");
        assert_eq!(plots == 0, is_empty, "{name} has {plots} plots");
        assert!(is_empty || page["texts"].as_u64().expect("a number") > 8, "{name} has no labels");
    }
}

#[test]
#[ignore = "needs chromium: tests/run html"]
fn a_screenshot_shows_something_in_light_and_in_dark() {
    let browser = Browser::new("shown");
    let light = "--blink-settings=preferredColorScheme=1";
    let dark = "--blink-settings=preferredColorScheme=0";
    for (name, sample) in
        all().into_iter().filter(|(name, _)| ["lat", "load", "cmp"].contains(name))
    {
        let page = browser.write(&format!("{name}.html"), &html::text(&sample));
        let grounds = [("light", light), ("dark", dark)].map(|(scheme, option)| {
            let shot = format!("{name}-{scheme}.png");
            let picture = browser.screenshot(&at(&page), &shot, (1000, 2400), &[option]);
            assert_eq!((picture.width, picture.height), (1000, 2400));
            for quarter in 0..4 {
                let ink = picture.ink(quarter * 600..(quarter + 1) * 600);
                assert!(ink > 0.01, "{shot}, quarter {quarter}: {ink}");
            }
            picture.ground()
        });
        assert!(grounds[0] > 200 && grounds[1] < 60, "{name}: {grounds:?}");
        // As a telephone shows it: a window cannot be so narrow, a frame can.
        let frame = format!(
            "<body style=\"margin:0\"><iframe src=\"{name}.html\" style=\"border:0\" width=\"390\" height=\"3600\">"
        );
        let narrow = browser.write(&format!("{name}-narrow.html"), &frame);
        let picture =
            browser.screenshot(&at(&narrow), &format!("{name}-narrow.png"), (500, 3600), &[light]);
        assert!(picture.ink(0..picture.height) > 0.01);
    }
}

#[test]
#[ignore = "needs chromium: tests/run html"]
fn a_page_can_be_printed() {
    let browser = Browser::new("printed");
    let (_, lat) = all().remove(0);
    let page = browser.write("lat.html", &html::text(&lat));
    let path = browser.folder.join("lat.pdf");
    browser.open(&page, &[&format!("--print-to-pdf={}", path.display()), "--no-pdf-header-footer"]);
    let pdf = fs::read(&path).expect("it was printed");
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() > 20_000, "{} bytes", pdf.len());
}

/// Runs before anything else: collects what goes wrong.
const COLLECT: &str = "
const errors = [], violations = [];
addEventListener('error', (event) => errors.push(String(event.message)), true);
addEventListener('securitypolicyviolation', (event) => violations.push(event.blockedURI), true);
";
/// Runs at the end: boxes in the units of the page.
const MEASURE: &str = "
const box = (it) => it.getBoundingClientRect();
const round = (it) => [it.left, it.top, it.right, it.bottom].map(Math.round).join(' ');
const say = (it) => it.textContent.slice(0, 60) + ' [' + round(box(it)) + ']';
const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
const plots = [...document.querySelectorAll('svg.plot, svg.rows')];
const outside = [], overlapping = [], wide = [];
let texts = 0;
for (const plot of plots) {
  const all = [...plot.querySelectorAll('text')];
  texts += all.length;
  outside.push(...all.filter((it) => !inside(box(it), box(plot))).map(say));
  all.forEach((a, at) => all.slice(at + 1).forEach((b) => {
    const [p, q] = [box(a), box(b)];
    const x = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    // Lines of text have room above and below their letters.
    if (x > 0.5 && y > 0.45 * Math.min(p.height, q.height)) overlapping.push(say(a) + ' and ' + say(b));
  }));
}
// Nothing but what scrolls by itself is wider than the page.
for (const it of document.querySelectorAll('body *')) {
  if (!it.closest('.scroll') && box(it).right > innerWidth + 1) wide.push(it.tagName + ' ' + say(it));
}
if (document.scrollingElement.scrollWidth > innerWidth) wide.push('the page');
const flat = plots.filter((it) => box(it).width < 200 || box(it).height < 80).map(say);
parent.postMessage({
  name: location.hash.slice(1), errors, violations, flat, outside, overlapping, wide, texts,
  plots: plots.length,
  evil: window.evil ? ['something of a name was run'] : [],
  requests: performance.getEntriesByType('resource').map((it) => it.name),
}, '*');
";
