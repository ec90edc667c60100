//! Options of the output: its forms, and when a result is a failure.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::outcome::Condition;

/// What becomes of the result.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// Also write JSON to a file; `-` is --format json
    #[arg(short, long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write an HTML page with plots and all figures
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write CSV: one line per figure with unit and number of samples
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write all samples as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Fail on a condition, as in 'rpc.round_trip.p99>5us' or 'rpc/floor.ratio.median>1.35'; may be
    /// repeated. A contender or a ratio, a dot, and a figure; --format csv lists them
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<Condition>,
    /// Fail if the machine was too noisy; implied by --fail-if
    #[arg(long)]
    pub strict: bool,
    /// Take options from a recipe: quick, thorough, nic, or a file
    #[arg(long, value_name = "NAME|FILE", help_heading = "Recipes")]
    pub recipe: Option<String>,
    /// Do not show progress on the terminal
    #[arg(short, long)]
    pub quiet: bool,
}

#[cfg(test)]
impl OutputArgs {
    pub(crate) fn of(options: &[&str]) -> OutputArgs {
        use clap::FromArgMatches;

        let command = OutputArgs::augment_args(clap::Command::new("test"));
        let matches = command.try_get_matches_from([&["test"], options].concat());
        OutputArgs::from_arg_matches(&matches.expect("they parse")).expect("they parse")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text
    Table,
    /// JSON with everything
    Json,
    /// One line per figure
    Csv,
    /// HdrHistogram log of all samples
    Hdr,
    /// HTML page with plots
    Html,
    /// The table of ib_send_lat, or of ib_send_bw for a rate
    Perftest,
}
