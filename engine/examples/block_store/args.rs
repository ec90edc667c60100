//! The command line.

use std::path::PathBuf;

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
Writes a file in blocks to a server in this process, over the software fabric, reads it back, and
compares every byte.

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
    };
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
            "--workers" => args.workers = number("--workers", &text, 1..=8)?,
            _ => args.spares = Some(number("--spares", &text, 0..=65_536)?),
        }
    }
    Ok(Command::Run(args))
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

const OPTIONS: [&str; 8] = [
    "--file",
    "--store",
    "--direct",
    "--block",
    "--continuation",
    "--window",
    "--workers",
    "--spares",
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
                    --workers 1 --spares 0";
        let expected = Args {
            file: Some("f".into()),
            store: Some("s".into()),
            direct: false,
            blocks: vec![65_536],
            continuation: vec![false],
            window: 3,
            workers: 1,
            spares: Some(0),
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
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(name), "{error}");
        }
    }
}
