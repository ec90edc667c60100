//! The command line.

use std::time::Duration;

use clap::{Arg, ArgAction, Command, CommandFactory, Parser};

/// Shows the counters of a running process: rates, latencies and what is in use, by shard and by
/// connection. The process serves its metrics (--metrics ADDR:PORT).
///
/// Keys: Tab or 1 to 4 the table, up and down the row, left and right the column to sort by, r the
/// other order, q the end.
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-top", version)]
pub struct Args {
    /// The process: the address of its metrics, or their URL.
    #[arg(long, value_name = "HOST:PORT|URL")]
    pub connect: String,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
    /// Look once, print, and end. Without --json this takes one interval, for the rates.
    #[arg(long)]
    pub once: bool,
    /// Print all metrics as JSON, by name.
    #[arg(long, requires = "once")]
    pub json: bool,
}

/// The command line: [`Args`], or the option that prints the man page and stands alone.
pub fn command() -> Command {
    let man = Arg::new(MAN).long(MAN).action(ArgAction::SetTrue).exclusive(true);
    Args::command().arg(man.help("Print the man page"))
}

/// The option that prints the man page.
pub const MAN: &str = "man";

impl Args {
    /// Where the metrics are.
    pub fn url(&self) -> String {
        match self.connect.contains("://") {
            true => self.connect.clone(),
            false => format!("http://{}/metrics", self.connect),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("seconds, from 0.1 to 3600".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn an_address_and_a_url_name_the_same_metrics() {
        let url = |connect: &str| parsed(&format!("top --connect {connect}")).expect("right").url();
        assert_eq!(url("127.0.0.1:9464"), "http://127.0.0.1:9464/metrics");
        assert_eq!(url("[::1]:9464"), "http://[::1]:9464/metrics");
        assert_eq!(url("http://host/a/metrics"), "http://host/a/metrics");
    }

    #[test]
    fn wrong_options_are_refused() {
        let line = "top --connect host:1";
        for wrong in ["--json", "--interval 0", "--interval 1e9", "--interval x", "--interval nan"]
        {
            assert!(parsed(&format!("{line} {wrong}")).is_err(), "{wrong}");
        }
        let args = parsed(&format!("{line} --interval 0.5 --once --json")).expect("right");
        assert_eq!((args.interval, args.once, args.json), (Duration::from_millis(500), true, true));
        assert!(parsed("top").is_err());
    }

    #[test]
    fn the_man_page_needs_no_process() {
        let matches = |line: &str| command().try_get_matches_from(line.split_whitespace());
        assert!(matches("top --man").expect("alone").get_flag(MAN));
        assert!(!matches("top --connect host:1").expect("right").get_flag(MAN));
        assert!(matches("top --man --once").is_err());
        assert!(matches("top").is_err());
    }
}
