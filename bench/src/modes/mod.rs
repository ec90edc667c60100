//! The modes: what each measures, and the one list of them.
//!
//! A mode is a module with `Args`, which hold an `output: OutputArgs`, with `EXAMPLES`, and with a
//! function `measure(&Args, &Session)`, which returns a report. It declares an
//! `Experiment` and runs it. To add one: its file, a line in the list,
//! and for the head of its page one in `HEADLINES` of `page.js`.

use clap::Subcommand;

use crate::check;
use crate::error::BenchError;
use crate::output::{OutputArgs, Report, Session};
use contest::Contest;

pub mod contest;
pub(crate) mod experiment;

macro_rules! modes {
    (
        $($(#[$about:meta])* $mode:ident($module:ident),)*
        ; $($(#[$its_about:meta])* $other:ident($its_module:ident),)*
    ) => {
        $(pub(crate) mod $module;)*

        /// What to measure, and how.
        #[derive(Debug, Clone, Subcommand)]
        pub enum Mode {
            /// Contenders against each other.
            #[command(flatten)]
            Contest(Contest),
            $($(#[$about])* #[command(after_help = $module::EXAMPLES)] $mode($module::Args),)*
            $($(#[$its_about])* #[command(after_help = $its_module::EXAMPLES)]
            $other($its_module::Args),)*
        }

        impl Mode {
            /// What becomes of the result.
            pub fn output(&self) -> &OutputArgs {
                match self {
                    Mode::Contest(contest) => contest.output(),
                    $(Mode::$mode(args) => &args.output,)*
                    $(Mode::$other(args) => &args.output,)*
                }
            }

            /// Measures.
            pub fn measure(&self, session: &Session) -> Result<Report, BenchError> {
                match self {
                    Mode::Contest(contest) => contest::measure(contest, session),
                    $(Mode::$mode(args) => $module::measure(args, session),)*
                    $(Mode::$other(args) => $its_module::measure(args, session),)*
                }
            }
        }
    };
}

// One line for each mode; the comment is its line in the help.
modes! {
    /// Compare two or more modes, peers such as UCX and sockets, or results
    Cmp(cmp),
    /// Server for clients with --connect on another host
    Serve(serve),
    /// Round trips and times of reads and writes over a delay, by explicit RDMA and by Sends
    Distance(distance),
    /// Latency at a given arrival rate or share of the capacity: an open loop
    Load(load),
    /// Rate of one shard, two and so on, each with its own client and cores
    Cores(cores),
    /// Latency and rate while connections are opened and closed
    Churn(churn),
    /// Rate, latency and memory of many connections on one shared receive queue
    Conns(conns),
    /// Latency after a pause and processor time of the pause, by idle policy
    Idle(idle),
    /// Cost of an RPC per side: instructions, allocations, system calls, doorbells, completions
    Cost(cost),
    /// Prove a device: host, scenarios of the API, latency, rate and bandwidth, as one result
    Prove(prove),
    /// One load for minutes or hours: leaks of memory and descriptors, drift of latency
    Soak(soak),
    /// More calls than the server grants, some of them slow
    Starve(starve),
    ;
    /// Check this host: what disturbs a measurement or prevents a deployment, and how to fix it
    Check(check),
}

impl Mode {
    /// Names what the options leave to the mode: the files of a proof.
    pub fn complete(&mut self) {
        if let Mode::Prove(args) = self {
            args.name_files();
        }
    }
}
