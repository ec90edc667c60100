//! The program in a terminal, that of tmux: keys, another size, and what it leaves behind.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, id};
use std::time::{Duration, Instant};

use crate::with_engine;

#[test]
fn keys_choose_and_sort_and_the_terminal_is_as_before() {
    let Some(tmux) = Tmux::new() else { return };
    with_engine(5, |engine| {
        let server = engine.metrics().serve(SocketAddr::from(([127, 0, 0, 1], 0)));
        let url = server.as_ref().expect("a port").url();
        tmux.start(&url);
        let first = tmux.until("the shards", |screen| is_of(screen, "shard state", " up "));
        assert!(first[0].starts_with(&url) && first[23].starts_with("Tab table"), "{first:#?}");
        assert_eq!(tmux.shown("#{alternate_on}"), "1", "the screen is its own");

        tmux.press("Tab");
        tmux.until("the peers", |screen| is_of(screen, "shard conn", " 127.0.0.1:"));
        tmux.press("3");
        tmux.until("the latencies", |screen| is_of(screen, "shard what", " calls of peers "));
        tmux.press("4");
        let counters = tmux.until("the counters", |screen| has(screen, "calls_received "));
        let received = counters.iter().find(|line| line.starts_with("calls_received "));
        let received: Vec<&str> = received.expect("seen above").split_whitespace().collect();
        assert_eq!(received[1], "5", "{counters:#?}");

        tmux.press("r");
        tmux.until("the reverse order", |screen| screen[3] > screen[4] && screen[3] != counters[3]);
        tmux.press("1");
        tmux.until("the shards again", |screen| is_of(screen, "shard state", " up "));

        tmux.run(&["resize-window", "-x", "60", "-y", "12"]);
        // The terminal has its size before the program has drawn for it.
        tmux.until("the other size", |screen| {
            screen.len() == 12 && screen[0].starts_with(&url) && screen[11].starts_with("Tab table")
        });

        tmux.press("q");
        let after = tmux.until("the end", |screen| has(screen, "ended 0"));
        assert!(has(&after, "before"), "what was there is there again: {after:#?}");
        assert_eq!(tmux.shown("#{alternate_on} #{cursor_flag}"), "0 1");
        let [before, after] = ["before", "after"]
            .map(|name| fs::read_to_string(tmux.folder.join(name)).expect("stty has written it"));
        assert!(!before.is_empty());
        assert_eq!(before, after, "the settings of the terminal, as stty -g writes them");
    });
}

/// Whether the first two columns have these names, and the first row has this text.
fn is_of(screen: &[String], columns: &str, first: &str) -> bool {
    let [_, _, names, row, ..] = screen else { return false };
    names.split_whitespace().take(2).eq(columns.split(' ')) && row.contains(first)
}

fn has(screen: &[String], text: &str) -> bool {
    screen.iter().any(|line| line.contains(text))
}

/// A server of tmux with one terminal; it ends with this value.
struct Tmux {
    folder: PathBuf,
}

impl Tmux {
    /// `None`, after it has said so, if there is no tmux.
    fn new() -> Option<Tmux> {
        if Command::new("tmux").arg("-V").output().is_err() {
            // Past the test harness, which would keep it to itself.
            let _ = writeln!(io::stderr(), "SKIPPED tmux (it is missing: apt-get install tmux)");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("rpcrdma-top-{}", id()));
        fs::create_dir_all(&folder).expect("a folder");
        Some(Tmux { folder })
    }

    fn start(&self, url: &str) {
        let top = env!("CARGO_BIN_EXE_rpcrdma-top");
        let [before, after] = ["before", "after"].map(|name| self.folder.join(name));
        let script = format!(
            "stty -g >{}; echo before; {top} --connect {url} --interval 0.1; code=$?; \
             stty -g >{}; echo ended $code; exec cat",
            before.display(),
            after.display()
        );
        self.run(&["-u", "-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24", &script]);
    }

    /// A command of tmux, and what it prints.
    fn run(&self, args: &[&str]) -> String {
        let socket = self.folder.join("socket");
        let output = Command::new("tmux").arg("-S").arg(socket).args(args).output();
        let output = output.expect("tmux is there");
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn press(&self, key: &str) {
        self.run(&["send-keys", key]);
    }

    fn shown(&self, format: &str) -> String {
        self.run(&["display-message", "-p", format]).trim_end().to_owned()
    }

    /// The lines of the terminal, as soon as they are as expected.
    fn until(&self, what: &str, is_it: impl Fn(&[String]) -> bool) -> Vec<String> {
        let start = Instant::now();
        loop {
            let screen = self.run(&["capture-pane", "-p"]);
            let screen: Vec<String> = screen.lines().map(str::to_owned).collect();
            if is_it(&screen) {
                return screen;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {screen:#?}");
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let socket = self.folder.join("socket");
        let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
