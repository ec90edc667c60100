//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use rpcrdma_engine::verbs::VerbsOptions;

use crate::rpc::BLOCK_MAX;
use crate::store::SECTOR;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// The file to write and read back; `None` makes one.
    pub file: Option<PathBuf>,
    /// Where the server's file is, or in which directory.
    pub store: Option<PathBuf>,
    /// Whether the page cache is to be passed by if it can be.
    pub direct: bool,
    /// Block lengths, in bytes.
    pub blocks: Vec<usize>,
    /// Continuation on, off, or one after the other.
    pub continuation: Vec<bool>,
    /// Calls on their way at a time.
    pub window: usize,
    /// Threads that write and read the server's file.
    pub workers: usize,
    /// Spare segments of the server.
    pub spares: Option<usize>,
    /// The RDMA device; `None` is the fabric.
    pub verbs: Option<Wanted>,
}

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// An address of it.
    pub address: IpAddr,
    /// Its name; without it the one that has the address.
    pub device: Option<String>,
}

impl Wanted {
    /// What it is opened with.
    pub fn options(&self) -> VerbsOptions {
        let (device, address) = (self.device.clone(), Some(self.address));
        VerbsOptions { device, address, ..VerbsOptions::default() }
    }
}

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Run.
    Run(Args),
    /// Print how to use this.
    Help,
}

/// How to use it.
pub const USAGE: &str = "\
Writes a file in blocks to a server in this process, over the software fabric or an RDMA device,
reads it back, and compares every byte.

Usage: block_store [--file F] [options]

  --file F             the file; without it 256 MiB of noise in a temporary file
  --block LENGTH       one block length, 4KiB to 1MiB, a multiple of 4KiB; without it 4KiB, 16KiB,
                       64KiB, 256KiB and 1MiB
  --continuation on|off  whether a message may take several transmissions; without it both
  --window N           calls on their way at a time, 1 to 64 (16)
  --store PATH         where the server keeps its data: a directory, or a file that does not exist
                       yet and will be kept; without it a temporary file next to F
  --direct on|off      whether to pass the page cache by (O_DIRECT) where that is possible (on)
  --workers N          threads that write and read the store, 1 to 8 (2)
  --spares N           segments of 64 KiB that may be at the disk at a time; without it enough
  --provider fabric|verbs  who carries the messages (fabric); verbs is an RDMA device
  --address, -a IP     an address of the RDMA device
  --device, -d NAME    the RDMA device; without it the one that has the address
";

/// Reads a command line without the name of the program.
///
/// # Errors
/// A sentence that says what is wrong with which argument.
pub fn parse(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Command, String> {
    let mut args = Args {
        file: None,
        store: None,
        direct: true,
        blocks: vec![4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20],
        continuation: vec![true, false],
        window: 16,
        workers: 2,
        spares: None,
        verbs: None,
    };
    let (mut is_verbs, mut address, mut device) = (false, None, None);
    let mut arguments = arguments.into_iter();
    while let Some(option) = arguments.next() {
        let option = option.to_string_lossy().into_owned();
        if option == "--help" || option == "-h" {
            return Ok(Command::Help);
        }
        if !OPTIONS.contains(&option.as_str()) {
            return Err(format!("unknown argument \"{option}\"; --help lists what there is"));
        }
        let value = arguments.next().ok_or_else(|| format!("{option} wants a value"))?;
        let text = value.to_string_lossy();
        match option.as_str() {
            "--file" => args.file = Some(value.into()),
            "--store" => args.store = Some(value.into()),
            "--direct" => args.direct = switch("--direct", &text)?,
            "--block" => args.blocks = vec![block(&text)?],
            "--continuation" => args.continuation = vec![switch("--continuation", &text)?],
            "--window" => args.window = number("--window", &text, 1..=64)?,
            "--provider" => is_verbs = provider(&text)?,
            "--address" | "-a" => address = Some(ip(&text)?),
            "--device" | "-d" => device = Some(text.into_owned()),
            "--workers" => args.workers = number("--workers", &text, 1..=8)?,
            _ => args.spares = Some(number("--spares", &text, 0..=65_536)?),
        }
    }
    args.verbs = match (is_verbs, address) {
        (true, Some(address)) => Some(Wanted { address, device }),
        (true, None) => {
            return Err("--provider verbs wants --address, one of the device".to_owned());
        }
        (false, None) if device.is_none() => None,
        (false, _) => return Err("--address and --device are for --provider verbs".to_owned()),
    };
    Ok(Command::Run(args))
}

fn provider(text: &str) -> Result<bool, String> {
    match text {
        "fabric" => Ok(false),
        "verbs" => Ok(true),
        _ => Err(format!("--provider {text}: fabric or verbs")),
    }
}

fn ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("--address {text}: an IPv4 or IPv6 address without a port"))
}

fn block(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "B" => Some(1),
        "K" | "KiB" => Some(1 << 10),
        "M" | "MiB" => Some(1 << 20),
        _ => None,
    };
    let len =
        digits.parse::<usize>().ok().zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
    len.filter(|len| (SECTOR..=BLOCK_MAX).contains(len) && len.is_multiple_of(SECTOR))
        .ok_or_else(|| format!("--block {text}: 4KiB to 1MiB are possible, in multiples of 4KiB"))
}

fn switch(option: &str, text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{option} {text}: on or off")),
    }
}

fn number(
    option: &str,
    text: &str,
    allowed: std::ops::RangeInclusive<usize>,
) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    let (min, max) = allowed.into_inner();
    number.ok_or_else(|| format!("{option} {text}: a number from {min} to {max}"))
}

const OPTIONS: [&str; 13] = [
    "--file",
    "--store",
    "--direct",
    "--block",
    "--continuation",
    "--window",
    "--workers",
    "--spares",
    "--provider",
    "--address",
    "-a",
    "--device",
    "-d",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(Into::into))
    }

    #[test]
    fn nothing_said_runs_everything() {
        let Ok(Command::Run(args)) = parsed("") else { panic!("an empty line is fine") };
        assert_eq!((args.blocks.len(), args.continuation.len()), (5, 2));
        assert_eq!((args.file, args.store, args.spares), (None, None, None));
    }

    #[test]
    fn every_option_is_read() {
        let line = "--file f --store s --direct off --block 64KiB --continuation off --window 3 \
                    --workers 1 --spares 0 --provider verbs -a fd00::1 -d rxe0";
        let expected = Args {
            file: Some("f".into()),
            store: Some("s".into()),
            direct: false,
            blocks: vec![65_536],
            continuation: vec![false],
            window: 3,
            workers: 1,
            spares: Some(0),
            verbs: Some(Wanted {
                address: "fd00::1".parse().expect("an address"),
                device: Some("rxe0".to_owned()),
            }),
        };
        assert_eq!(parsed(line), Ok(Command::Run(expected)));
        assert_eq!(parsed("--file f --help"), Ok(Command::Help));
    }

    #[test]
    fn lengths_have_units_and_limits() {
        assert_eq!(block("4096"), Ok(4096));
        assert_eq!(block("1M"), Ok(1 << 20));
        for wrong in ["", "KiB", "2KiB", "2MiB", "5000", "4kb", "18446744073709551615M"] {
            assert!(block(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, name) in [
            ("--frob", "--frob"),
            ("--file", "--file"),
            ("--window 0", "1 to 64"),
            ("--window 65", "1 to 64"),
            ("--continuation maybe", "on or off"),
            ("--direct 1", "on or off"),
            ("--provider tcp", "fabric or verbs"),
            ("--provider verbs", "--address"),
            ("--provider verbs --address 10.0.0.1:5", "without a port"),
            ("-d rxe0", "--provider verbs"),
            ("--provider fabric -a 10.0.0.1", "--provider verbs"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(name), "{error}");
        }
    }
}
