//! The command line: one subcommand per mode, with its own and with shared options.

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::error::BenchError;
pub use crate::modes::Mode;
use crate::modes::contest::{self, Contest, LatArgs};
use crate::output::{Modes, Session};

/// Latency and throughput of RPC-over-RDMA, compared with the floor of the machine.
///
/// Two threads on two cores, a client and a server, over the software fabric or an RDMA device; or
/// two processes, over shared memory or TCP.
/// Without a mode it runs `lat`: the round trip of a 64 byte echo.
#[derive(Debug, Clone, Parser)]
#[command(name = "rpcrdma-bench", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    lat: contest::Args<LatArgs>,
}

/// What is to be done.
#[derive(Debug, Clone, Subcommand)]
pub enum Task {
    /// To measure.
    #[command(flatten)]
    Mode(Box<Mode>),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the man page, of every mode and option
    #[command(after_help = MAN_EXAMPLES)]
    Man,
}

impl Cli {
    /// What is to be done: `lat` if nothing is said.
    pub fn task(self) -> Task {
        self.task.unwrap_or_else(|| Task::Mode(Box::new(Mode::Contest(Contest::Lat(self.lat)))))
    }

    /// What is to be measured.
    ///
    /// # Panics
    /// If it is another task: for tests and benches, which know what they ask for.
    pub fn mode(self) -> Mode {
        match self.task() {
            Task::Mode(mode) => *mode,
            other => panic!("{other:?} measures nothing"),
        }
    }
}

/// The modes, for one that runs others.
pub const MODES: Modes = Modes {
    has: |word| Cli::command().find_subcommand(word).is_some(),
    run: |words| {
        let parse = |words: &str| {
            Cli::try_parse_from(["rpcrdma-bench"].into_iter().chain(words.split_whitespace()))
        };
        let usage = |why: &str| BenchError::Usage(format!("`{words}`: {why}"));
        let cli = parse(words)
            .map_err(|error| usage(error.to_string().trim_start_matches("error: ").trim_end()))?;
        let Task::Mode(mode) = cli.task() else { return Err(usage("it measures nothing")) };
        if parse("lat").is_ok_and(|bare| bare.mode().output() != mode.output()) {
            return Err(usage("outputs are those of cmp: give them before the sides"));
        }
        mode.measure(&Session::silent())
    },
};

/// The exit code if nothing was measured, by what was typed. `prove` has another one for a part that
/// failed.
pub fn error_code(typed: &[OsString]) -> u8 {
    if typed.get(1).is_some_and(|mode| mode == "prove") { 2 } else { 1 }
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  rpcrdma-bench completions bash > /etc/bash_completion.d/rpcrdma-bench
  rpcrdma-bench completions fish > ~/.config/fish/completions/rpcrdma-bench.fish";
const MAN_EXAMPLES: &str = "\
Examples:
  rpcrdma-bench man | man -l -
  rpcrdma-bench man > /usr/local/share/man/man1/rpcrdma-bench.1";
const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench check                     what this machine can measure, and what to fix first
  rpcrdma-bench prove -d mlx5_0           whether a NIC does what the engine asks of it
  rpcrdma-bench                           round trip of a 64-byte echo, beside a floor
  rpcrdma-bench lat --op read -p send     4 KiB placed into a page of the client
  rpcrdma-bench rate -k 1024              32 calls in flight over 1024 connections
  rpcrdma-bench bw --op write -s 1MiB     large writes, placed, GB/s
  rpcrdma-bench distance                  round trips of reads and writes, and their times
  rpcrdma-bench floor -w 32               the lower bounds of this machine
  rpcrdma-bench lat --json - | jq .       JSON for another program
  rpcrdma-bench lat --provider verbs      over the first RDMA device of this machine
  rpcrdma-bench --recipe quick            a few seconds; others: thorough, nic
  rpcrdma-bench lat --fail-if 'rpc/floor.ratio.median>1.35'   as a test, see exit codes

`floor` is the serial floor: two cores hand over cache lines, without a protocol and without the
copies that every device makes. `rpcrdma-bench floor --help` has both floors.

Loops are closed unless the mode says otherwise: a request waits for a reply. A run disturbed by
other programs is marked noisy: its ratios are valid, its tails are not. Ctrl-C ends a run early and
prints the result so far.

Exit codes:
  0  measured, all conditions are met
  1  not measured: error in options, device or file
  2  a --fail-if condition is true, or the mode found a regression
  3  inconclusive: --fail-if, --strict or --regression is given and the run is noisy";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(options: &str) -> Result<Mode, clap::Error> {
        let options = ["rpcrdma-bench"].into_iter().chain(options.split_whitespace());
        Cli::try_parse_from(options).map(Cli::mode)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn without_a_mode_the_options_are_those_of_lat() {
        let Mode::Contest(Contest::Lat(bare)) = parse("").expect("everything has a default") else {
            panic!("not lat")
        };
        assert_eq!((bare.length.rounds, bare.length.warm_up), (10, None));
        let Mode::Contest(Contest::Lat(args)) = parse("-r 3 -s 4KiB").expect("options of lat")
        else {
            panic!("not lat")
        };
        assert_eq!((args.length.rounds, args.contest.call.size), (3, Some(4096)));
    }

    #[test]
    fn options_stand_behind_their_mode() {
        assert!(parse("rate -r 3").is_ok());
        assert!(parse("-r 3 rate").is_err(), "it is unclear which mode they are of");
        assert!(parse("sideways").is_err());
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let Ok(Mode::Distance(args)) = parse("distance --delay 5us,50us") else { panic!("parses") };
        assert_eq!(args.delay, [5, 50].map(Duration::from_micros));
        let Ok(Mode::Contest(Contest::Rate(args))) = parse("rate --sends-per-post 1,4,16") else {
            panic!("parses")
        };
        assert_eq!(args.more.sends_per_post, [1, 4, 16]);
    }

    #[test]
    fn a_time_and_a_count_exclude_each_other() {
        assert!(parse("-t 1 -n 5").is_err());
        assert!(parse("-n 0").is_err());
    }

    #[test]
    fn every_mode_has_help_with_examples() {
        let command = Cli::command();
        for mode in command.get_subcommands() {
            let help = mode.clone().render_help().to_string();
            let name = mode.get_name();
            assert!(help.contains(&format!("  rpcrdma-bench {name}")), "{name}: {help}");
        }
        assert!(command.clone().render_help().to_string().contains("rpcrdma-bench rate -k 1024"));
    }
}
