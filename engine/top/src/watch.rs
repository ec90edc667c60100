//! Watching: looks at the process again and again, and shows each look until the user ends it.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event};

use crate::app::App;
use crate::plain;
use crate::screen;
use crate::source::{Scrape, Source};
use crate::tables::tables;

type Look = Result<Scrape, Box<dyn Error + Send + Sync>>;

/// Shows the process until the user ends it: on the whole screen, or line by line where that cannot
/// be.
///
/// # Errors
/// Those of the terminal.
pub fn watch(source: Source, interval: Duration) -> Result<(), Box<dyn Error>> {
    let url = source.url().to_owned();
    let (looks, stop) = looks(source, interval);
    let outcome = if has_screen() { on_screen(&url, &looks) } else { in_lines(&url, &looks) };
    drop(stop);
    outcome
}

/// Looks on a thread of its own, so that a process that does not answer does not delay keys. The
/// thread ends when the sender is dropped.
fn looks(source: Source, interval: Duration) -> (Receiver<Look>, mpsc::Sender<()>) {
    let (sender, looks) = mpsc::channel();
    let (stop, stopped) = mpsc::channel();
    thread::spawn(move || {
        while sender.send(source.scrape()).is_ok() {
            if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    });
    (looks, stop)
}

/// Whether the output is a terminal that can move its cursor.
fn has_screen() -> bool {
    let is_dumb = std::env::var("TERM").map_or(true, |term| term.is_empty() || term == "dumb");
    io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb
}

fn on_screen(url: &str, looks: &Receiver<Look>) -> Result<(), Box<dyn Error>> {
    let mut terminal = ratatui::try_init()?;
    let outcome = show(&mut terminal, url, looks);
    ratatui::restore();
    outcome
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    url: &str,
    looks: &Receiver<Look>,
) -> Result<(), Box<dyn Error>> {
    let mut app = App::new(url);
    loop {
        let at = Instant::now();
        looks.try_iter().for_each(|look| app.take(look, at));
        terminal.draw(|frame| screen::draw(&app, at, frame))?;
        // A resize is an event, too: the next drawing has the new size.
        if event::poll(FRAME)?
            && let Event::Key(key) = event::read()?
            && app.press(key)
        {
            return Ok(());
        }
    }
}

fn in_lines(url: &str, looks: &Receiver<Look>) -> Result<(), Box<dyn Error>> {
    let mut before = None;
    for look in looks {
        match look {
            Ok(now) => {
                plain::print(&tables(before.as_ref(), &now)[..3], &mut io::stdout().lock())?;
                before = Some(now);
            }
            Err(why) => {
                let _ = writeln!(io::stderr(), "rpcrdma-top: no answer from {url}: {why}");
            }
        }
    }
    Ok(())
}

/// The longest time between two drawings.
const FRAME: Duration = Duration::from_millis(200);
