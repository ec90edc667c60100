//! The commands `tests/mutate --rows` and `tests/mutants`.

mod batch;
mod cargo;
mod copy;
mod draw;
mod list;
mod regions;
mod report;
mod rows;
mod sample;
mod state;
mod survey;
mod switch;
mod trial;
mod workers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rpcrdma_mutants::table;

/// Mutations of the sources, and the tests that notice them: docs/testing.md.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Programs that run at one time.
    #[arg(long, global = true, default_value_t = 2)]
    jobs: usize,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The mutations of tests/mutations/rows.toml: each breaks a rule, and its test fails then.
    Rows {
        /// Those of these rows or with these ids; without any, all.
        chosen: Vec<String>,
    },
    /// The mutations that no test noticed once: those of tests/mutations/survivors.toml, and those
    /// of rows.toml that say so.
    Survivors {
        /// Those with these ids; without any, all.
        chosen: Vec<String>,
    },
    /// Mutants drawn at random: how many the tests notice.
    Sample {
        /// What they are drawn by.
        #[arg(long)]
        seed: u64,
        /// How many.
        #[arg(long, default_value_t = 300)]
        count: usize,
        /// Goes on where an earlier run with the same seed and count was stopped.
        #[arg(long = "continue")]
        is_continued: bool,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let target = std::path::absolute(target.join("mutants")).expect("the working directory");
    let place = rows::Place { root: root.to_owned(), target, jobs: args.jobs };
    let outcome = match args.command {
        Command::Rows { chosen } => rows::run(&place, table::ROWS, &chosen),
        Command::Survivors { chosen } => rows::run(&place, table::SURVIVORS, &chosen),
        Command::Sample { seed, count, is_continued } => {
            sample::run(&place, sample::Options { seed, count, is_continued })
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
