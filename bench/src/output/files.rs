//! Standard output and files: the formats of a report.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _, stdout};
use std::path::{Path, PathBuf};

use super::report::Report;
use super::{csv, hdr, html, perftest};
use crate::error::BenchError;
use crate::output::{Format, OutputArgs};

/// What is printed: a `-` as a file is another way to ask for its form.
pub fn format(args: &OutputArgs) -> Format {
    let is_dash = |(path, ..): &(&Option<PathBuf>, Format, Text)| {
        path.as_deref().is_some_and(|path| path == Path::new("-"))
    };
    forms(args).into_iter().find(is_dash).map_or(args.format, |(_, format, _)| format)
}

/// Tries to open the requested files before anything is measured.
pub fn try_files(args: &OutputArgs) -> Result<(), BenchError> {
    for (path, _) in files(args) {
        // A pipe is opened once: its reader would take the first end for the whole.
        if path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            continue;
        }
        let was_there = path.exists();
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|source| BenchError::Write { path: path.to_owned(), source })?;
        if !was_there {
            // Left behind empty, it would look like a result.
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

/// Writes the files that are requested.
pub fn write(report: &Report, args: &OutputArgs) -> Result<(), BenchError> {
    for (path, text) in files(args) {
        fs::write(path, text(report))
            .map_err(|source| BenchError::Write { path: path.to_owned(), source })?;
    }
    Ok(())
}

/// Prints a report.
pub fn print(report: &Report, args: &OutputArgs) -> Result<(), BenchError> {
    say(&match format(args) {
        Format::Table => report.text(),
        Format::Json => report.json(),
        Format::Csv => csv::text(report),
        Format::Hdr => hdr::text(report),
        Format::Html => html::text(report),
        Format::Perftest => perftest::text(report)?,
    })
}

type Text = fn(&Report) -> String;

fn forms(args: &OutputArgs) -> [(&Option<PathBuf>, Format, Text); 4] {
    [
        (&args.json, Format::Json, Report::json),
        (&args.csv, Format::Csv, csv::text),
        (&args.hdr, Format::Hdr, hdr::text),
        (&args.html, Format::Html, html::text),
    ]
}

fn files(args: &OutputArgs) -> Vec<(&Path, Text)> {
    let requested =
        forms(args).into_iter().filter_map(|(path, _, text)| Some((path.as_deref()?, text)));
    requested.filter(|(path, _)| *path != Path::new("-")).collect()
}

/// Writes to the standard output. A reader that has gone away, as `head` does, wants no more, which
/// is no error.
pub fn say(text: &str) -> Result<(), BenchError> {
    let mut out = stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return Ok(());
    }
    written.map_err(|source| BenchError::Write { path: "the standard output".into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_is_the_standard_output_and_no_file() {
        for (option, expected) in [
            ("--json", Format::Json),
            ("--csv", Format::Csv),
            ("--hdr", Format::Hdr),
            ("--html", Format::Html),
        ] {
            let args = OutputArgs::of(&[option, "-"]);
            assert_eq!((format(&args), files(&args).len()), (expected, 0), "{option}");
            let args = OutputArgs::of(&[option, "a.file"]);
            assert_eq!((format(&args), files(&args).len()), (Format::Table, 1), "{option}");
        }
    }

    #[test]
    fn trying_a_file_leaves_nothing_behind_and_spoils_nothing() {
        let path = std::env::temp_dir().join(format!("rpcrdma-try-{}.json", std::process::id()));
        let name = path.to_str().expect("a name in ASCII");
        try_files(&OutputArgs::of(&["--json", name])).expect("a writable place");
        assert!(!path.exists());
        fs::write(&path, "an older result").expect("a writable place");
        try_files(&OutputArgs::of(&["--json", name])).expect("a writable file");
        let kept = fs::read_to_string(&path).expect("it is still there");
        fs::remove_file(&path).expect("the file is ours");
        assert_eq!(kept, "an older result");
    }

    #[test]
    fn a_pipe_is_opened_once() {
        let path = std::env::temp_dir().join(format!("rpcrdma-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("coreutils").success());
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read_to_string(path)
        });
        let name = path.to_str().expect("a name in ASCII");
        try_files(&OutputArgs::of(&["--json", name])).expect("it is there");
        // Waits for the reader, which would have seen an end before.
        fs::write(&path, "the result").expect("it is read");
        fs::remove_file(&path).expect("it is ours");
        assert_eq!(reader.join().expect("no panic").expect("text"), "the result");
    }
}
