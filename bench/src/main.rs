//! `rpcrdma-bench`: latency and throughput of RPC-over-RDMA, compared with the floor.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use rpcrdma_bench::alloc::Counting;
use rpcrdma_bench::cli::{Cli, Mode, Task};
use rpcrdma_bench::error::BenchError;
use rpcrdma_bench::output::outcome::{self, Outcome};
use rpcrdma_bench::output::{Session, say};
use rpcrdma_bench::{cli, output, pages, recipe, stop};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    let failure = ExitCode::from(cli::error_code(&words));
    let ended = typed(words).and_then(|words| match Cli::try_parse_from(words) {
        Ok(cli) => run(cli.task()),
        Err(shown) => {
            // Help and version are not failures, nor is a closed terminal.
            let _ = shown.print();
            Ok(if shown.use_stderr() { failure } else { ExitCode::SUCCESS })
        }
    });
    ended.unwrap_or_else(|error| {
        complain(&error);
        failure
    })
}

/// What was typed, with the recipe that it names.
fn typed(words: Vec<OsString>) -> Result<Vec<OsString>, BenchError> {
    recipe::applied(&Cli::command(), words)
}

fn run(task: Task) -> Result<ExitCode, BenchError> {
    match task {
        Task::Mode(mut mode) => {
            mode.complete();
            measure(&mode)
        }
        Task::Completions { shell } => {
            say(&pages::completions(&mut Cli::command(), shell)).map(|()| ExitCode::SUCCESS)
        }
        Task::Man => say(&pages::man(&Cli::command())).map(|()| ExitCode::SUCCESS),
    }
}

/// Runs the requested measurement, writes its outputs, and checks it.
fn measure(mode: &Mode) -> Result<ExitCode, BenchError> {
    let failed = |error: io::Error| BenchError::Usage(format!("no signals: {error}"));
    stop::on_ctrl_c().map_err(failed)?;
    output::try_files(mode.output())?;
    let args = mode.output();
    let mut report = mode.measure(&Session::new(args, cli::MODES))?;
    let outcome = outcome::check(&report, &args.fail_if, args.strict);
    if let Ok(Outcome::Failed(reasons) | Outcome::FailedWith(_, reasons)) = &outcome {
        report.failures.clone_from(reasons); // The page lists them.
    }
    output::write(&report, args)?;
    let printed = output::print(&report, args);
    // A server has served, wherever its output goes.
    if !matches!(mode, Mode::Serve(_)) {
        printed?;
    }
    let outcome = outcome?;
    outcome.lines().iter().for_each(complain);
    Ok(outcome.exit_code())
}

/// The exit code says it, too, if this cannot be written.
fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "rpcrdma-bench: {line}");
}
