//! `rpcrdma-top`: the counters of a running process in a terminal.
//!
//! ```text
//!   the process --metrics ◀── GET /metrics ── source ─▶ samples ─▶ rows ─▶ tables ─▶ screen, text
//!                                                          └─▶ JSON
//! ```
//! It knows the process by what Prometheus reads of it, and depends on no other crate of ours.

mod app;
mod args;
mod cell;
mod json;
mod plain;
mod rows;
mod samples;
mod screen;
mod source;
mod tables;
#[cfg(test)]
mod tests;
mod watch;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

use args::Args;
use clap::FromArgMatches;
use clap_mangen::Man;
use source::Source;

fn main() -> ExitCode {
    match act() {
        Ok(()) => ExitCode::SUCCESS,
        // The reader wants no more, as `head` does.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "rpcrdma-top: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}

/// What the command line asks for.
fn act() -> Result<(), Box<dyn Error>> {
    let command = args::command();
    let options = command.clone().get_matches();
    if options.get_flag(args::MAN) {
        // Without a date, the next field would take its place.
        let man = Man::new(command).date(env!("CARGO_PKG_VERSION")).source("rpcrdma");
        return Ok(man.render(&mut io::stdout().lock())?);
    }
    run(&Args::from_arg_matches(&options)?)
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let source = Source::new(args.url());
    if !args.once {
        return watch::watch(source, args.interval);
    }
    let scrape =
        || source.scrape().map_err(|why| format!("no answer from {}: {why}", source.url()));
    let first = scrape()?;
    if args.json {
        return Ok(writeln!(io::stdout().lock(), "{:#}", json::json(&first.samples))?);
    }
    thread::sleep(args.interval);
    Ok(plain::print(&tables::tables(Some(&first), &scrape()?), &mut io::stdout().lock())?)
}
