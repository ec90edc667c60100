//! What was found: how bad it is, what was seen, why it matters, and the command that mends it.

use serde::Serialize;
use strum::IntoStaticStr;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// It works; somebody who tunes would change it.
    Hint,
    /// It works, and spoils what is measured or costs a deployment speed.
    #[strum(serialize = "WARNING")]
    Warning,
    /// It will not work.
    #[strum(serialize = "ERROR")]
    Error,
}

/// What mends a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// A command, ready to be pasted.
    pub command: String,
    /// Where to run it, or what is to be done after it, if that is not plain.
    pub note: Option<String>,
}

impl Fix {
    /// A command to be run here.
    pub fn new(command: impl Into<String>) -> Fix {
        Fix { command: command.into(), note: None }
    }

    /// The same with a note; behind another if there is one.
    pub fn note(mut self, note: &str) -> Fix {
        self.note = Some(match self.note {
            Some(before) => format!("{before}; {note}"),
            None => note.to_owned(),
        });
        self
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name, the same for ever: what a script asks for.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was seen.
    pub seen: String,
    /// Why it matters.
    pub why: &'static str,
    /// What mends it; there is always something unless all is well.
    pub fix: Option<Fix>,
}

/// Something to be looked at: its name, and why.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    name: &'static str,
    why: &'static str,
}

impl Subject {
    /// The name of its findings, and why it matters, in a sentence.
    pub const fn new(name: &'static str, why: &'static str) -> Subject {
        Subject { name, why }
    }

    /// It is as it should be.
    pub fn ok(self, seen: impl Into<String>) -> Finding {
        self.finding(Severity::Ok, seen.into(), None)
    }

    /// Somebody who tunes would change it.
    pub fn hint(self, seen: impl Into<String>, fix: Fix) -> Finding {
        self.finding(Severity::Hint, seen.into(), Some(fix))
    }

    /// It spoils something.
    pub fn warning(self, seen: impl Into<String>, fix: Fix) -> Finding {
        self.finding(Severity::Warning, seen.into(), Some(fix))
    }

    /// It will not work.
    pub fn error(self, seen: impl Into<String>, fix: Fix) -> Finding {
        self.finding(Severity::Error, seen.into(), Some(fix))
    }

    /// As bad as somebody else says.
    pub fn at(self, severity: Severity, seen: impl Into<String>, fix: Fix) -> Finding {
        let fix = (severity != Severity::Ok).then_some(fix);
        self.finding(severity, seen.into(), fix)
    }

    fn finding(self, severity: Severity, seen: String, fix: Option<Fix>) -> Finding {
        Finding { name: self.name, severity, seen, why: self.why, fix }
    }
}
