//! The options of `prove`, and the files that its result goes to.

use std::net::IpAddr;
use std::time::Duration;

use rpcrdma::{Address, ProviderKind};

use crate::args::{CoreArgs, DeviceArgs, LengthArgs, parse};
use crate::error::BenchError;
use crate::machine::env;
use crate::output::{Format, OutputArgs};

/// What is proved, and how long that may take.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Device name as in ibv_devices [default: the one with the address, or the first]
    #[arg(short, long, value_name = "NAME", help_heading = "The device")]
    pub device: Option<String>,
    /// Address of the device [default: its first IPv4 address]
    #[arg(short, long, value_name = "ADDRESS", help_heading = "The device")]
    pub address: Option<IpAddr>,
    /// Provider [default: verbs with --device or --address, else fabric, for a trial]
    #[arg(long, value_parser = parse::provider(), help_heading = "The device")]
    pub provider: Option<ProviderKind>,
    /// Measure with the other host at this address, where `rpcrdma-bench serve` runs
    /// [default: both ends on this host]
    #[arg(long, value_name = "ADDRESS[:PORT]|shm:PATH", value_parser = parse::address)]
    #[arg(help_heading = "The device")]
    pub peer: Option<Address>,
    /// Run the scenarios of these subjects only, as in inline,placed,explicit
    #[arg(long, value_name = "SUBJECTS", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Longest time of one scenario, as in 90s; its process is then killed
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = limit)]
    pub limit: Duration,
    /// Run the scenarios from this one on, for the process at the other end of standard input.
    #[arg(long, hide = true)]
    pub on_stdin: Option<usize>,
    #[command(flatten)]
    pub cores: CoreArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl Args {
    /// What is proved.
    pub fn over(&self) -> ProviderKind {
        let named = self.device.is_some() || self.address.is_some();
        let usual = if named { ProviderKind::Verbs } else { ProviderKind::Fabric };
        self.provider.unwrap_or(usual)
    }

    /// The same as the other modes have it; without the other host.
    pub fn device(&self) -> DeviceArgs {
        let (device, address) = (self.device.clone(), self.address);
        DeviceArgs { provider: Some(self.over()), device, address, connect: None }
    }

    pub fn check(&self) -> Result<(), BenchError> {
        self.device().check()?;
        if self.peer.is_some() && self.over() == ProviderKind::Fabric {
            let text = "--peer: no other process is reached over the software fabric: name the \
                device with -d, or use --provider verbs, tcp or shm";
            return Err(BenchError::Usage(text.into()));
        }
        Ok(())
    }

    /// What the device is called: by its name, or as its provider.
    pub fn name(&self) -> &str {
        self.device.as_deref().unwrap_or(self.over().as_str())
    }

    /// Has the result go to `prove-DEVICE-DATE.json` and `.html` of the current folder, unless a
    /// file or another form was asked for.
    pub fn name_files(&mut self) {
        let OutputArgs { json, html, csv, hdr, format, .. } = &self.output;
        let is_named = [json, html, csv, hdr].into_iter().any(Option::is_some);
        if is_named || *format != Format::Table || self.on_stdin.is_some() {
            return;
        }
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let name: String = self.name().chars().filter(|letter| is_plain(*letter)).collect();
        let start = format!("prove-{name}-{}", env::date(env::now_ms()));
        self.output.json = Some(format!("{start}.json").into());
        self.output.html = Some(format!("{start}.html").into());
    }

    /// The options for another process of this program that uses the same device.
    pub fn again(&self) -> Vec<String> {
        let mut words = vec!["--provider".to_owned(), self.over().as_str().to_owned()];
        if let Some(device) = &self.device {
            words.extend(["-d".to_owned(), device.clone()]);
        }
        if let Some(address) = self.address {
            words.extend(["-a".to_owned(), address.to_string()]);
        }
        words
    }

    /// The options that say how long a measurement is.
    pub fn lengths(&self) -> Vec<String> {
        let LengthArgs { seconds, iterations, warm_up, rounds } = &self.length;
        let mut words = vec!["-r".to_owned(), rounds.to_string()];
        let mut option = |name: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        };
        option("-t", seconds.map(|time| time.as_secs_f64().to_string()));
        option("-n", iterations.map(|count| count.to_string()));
        option("--warm-up", warm_up.map(|count| count.to_string()));
        words
    }
}

fn limit(text: &str) -> Result<Duration, String> {
    parse::duration(text, Duration::from_secs(1), Duration::from_secs(3600))
}

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench prove -d mlx5_0                    everything, on one host
  rpcrdma-bench prove -d mlx5_0 --peer 10.0.0.2    with `rpcrdma-bench serve` on the other host
  rpcrdma-bench prove --provider shm -n 2000       a trial without a device; tcp, too
  rpcrdma-bench prove -d rxe0 --only inline,placed,explicit -t 0.5

It looks at the host (as `check` does), runs the scenarios that every provider must pass, and
measures latency, rate and bandwidth: of RPCs, of Sends without RPC, and of perftest if it is
installed. A part that fails is reported, and the others are run. Scenarios and measurements run in
processes of their own, so that a driver that crashes or hangs is a result too. With --peer the
scenarios still have both ends on this host.

The result is written to prove-DEVICE-DATE.json and .html, for an issue. It has no host name and no
address.

Exit codes of this mode:
  0  every part passed
  1  a part failed
  2  nothing was run: error in options or files";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parsed;

    fn args(options: &str) -> Args {
        parsed(options)
    }

    #[test]
    fn a_named_device_is_one_of_verbs() {
        assert_eq!(args("-d mlx5_0").over(), ProviderKind::Verbs);
        assert_eq!(args("-a 10.0.0.1").over(), ProviderKind::Verbs);
        assert_eq!(args("").over(), ProviderKind::Fabric);
        assert!(args("--provider shm -d mlx5_0").check().is_err());
        assert!(args("--peer 10.0.0.2").check().is_err(), "the fabric reaches no host");
        assert!(args("--peer 10.0.0.2 -d mlx5_0").check().is_ok());
    }

    #[test]
    fn the_files_are_named_unless_others_are_asked_for() {
        let mut usual = args("-d ../mlx5_0");
        usual.name_files();
        let json = usual.output.json.expect("a name").display().to_string();
        let html = usual.output.html.expect("a name").display().to_string();
        assert!(json.starts_with("prove-..mlx5_0-20") && json.ends_with(".json"), "{json}");
        assert_eq!(json.strip_suffix(".json"), html.strip_suffix(".html"));
        for other in ["--json -", "--html x.html", "--format csv", "--on-stdin 0"] {
            let mut asked = args(other);
            let before = asked.output.clone();
            asked.name_files();
            assert_eq!(asked.output, before, "{other}");
        }
    }

    #[test]
    fn another_process_gets_the_same_device_and_lengths() {
        let args = args("-d rxe0 -a fd00::1 -r 3 -t 0.5 --warm-up 7");
        assert_eq!(args.again().join(" "), "--provider verbs -d rxe0 -a fd00::1");
        assert_eq!(args.lengths().join(" "), "-r 3 -t 0.5 --warm-up 7");
    }
}
