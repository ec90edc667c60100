//! The findings as text.

use std::fmt::Write as _;

use super::checkup::{Checkup, Section};
use super::finding::{Finding, Severity};

impl Checkup {
    /// The whole for people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        line(&mut out, 0, &self.machine);
        for Section { title, findings } in &self.sections {
            line(&mut out, 0, "");
            line(&mut out, 0, title);
            for finding in findings {
                write_finding(&mut out, finding);
            }
        }
        line(&mut out, 0, "");
        line(&mut out, 0, &self.sum());
        line(&mut out, 0, "");
        line(&mut out, 0, "Conclusion");
        for sentence in &self.conclusion.sentences {
            line(&mut out, 2, sentence);
        }
        line(&mut out, 0, "");
        line(&mut out, 0, "Next");
        for command in &self.conclusion.next {
            let _ = writeln!(out, "  $ {command}");
        }
        out
    }

    fn sum(&self) -> String {
        format!(
            "{} error(s), {} warning(s), {} hint(s), {} as they should be.",
            self.count(Severity::Error),
            self.count(Severity::Warning),
            self.count(Severity::Hint),
            self.count(Severity::Ok)
        )
    }
}

fn write_finding(out: &mut String, finding: &Finding) {
    let Finding { name, severity, seen, why, fix } = finding;
    let head = format!("  {:<8} {name:<22} ", <&str>::from(severity));
    let seen = wrap(seen, WIDTH - INDENT);
    for (at, part) in seen.iter().enumerate() {
        let head = if at == 0 { &*head } else { "" };
        let _ = writeln!(out, "{head:<INDENT$}{part}");
    }
    if *severity == Severity::Ok {
        return;
    }
    line(out, INDENT, why);
    let Some(fix) = fix else { return };
    // A command is never broken: it is to be copied.
    let _ = writeln!(out, "{:INDENT$}$ {}", "", fix.command);
    if let Some(note) = &fix.note {
        line(out, INDENT, &format!("({note})"));
    }
}

fn line(out: &mut String, indent: usize, text: &str) {
    if text.is_empty() {
        out.push('\n');
    }
    for part in wrap(text, WIDTH - indent) {
        let _ = writeln!(out, "{:indent$}{part}", "");
    }
}

/// Lines of at most so many characters, broken between words.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

const WIDTH: usize = 100;
const INDENT: usize = 34;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_at_the_width() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("longer-than-that it", 6), ["longer-than-that", "it"]);
        assert!(wrap("", 6).is_empty());
    }
}
