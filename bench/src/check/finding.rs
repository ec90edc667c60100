//! A finding: severity, observation, reason, and the command that fixes it.

use serde::Serialize;
use strum::IntoStaticStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    Ok,
    /// It works; tuning may help.
    Hint,
    /// It works, and spoils what is measured or costs a deployment speed.
    #[strum(serialize = "WARNING")]
    Warning,
    /// It will not work.
    #[strum(serialize = "ERROR")]
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    pub command: String,
    /// Where to run it, or what is to be done after it, if that is not plain.
    pub note: Option<String>,
}

impl Fix {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name, the same for ever: what a script asks for.
    pub name: &'static str,
    pub severity: Severity,
    pub seen: String,
    pub why: &'static str,
    /// The fix; always present unless all is well.
    pub fix: Option<Fix>,
}

/// Something to be looked at: its name, and why.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    pub name: &'static str,
    /// Why it matters, in a sentence.
    pub why: &'static str,
}

/// Subjects as constants: the name of its findings, and why it matters, in a sentence.
macro_rules! subjects {
    ($($subject:ident = $name:literal: $why:literal;)*) => {
        $(const $subject: $crate::check::finding::Subject =
            $crate::check::finding::Subject { name: $name, why: $why };)*
    };
}
pub(super) use subjects;

impl Subject {
    pub fn ok(self, seen: impl Into<String>) -> Finding {
        self.finding(Severity::Ok, seen.into(), None)
    }

    pub fn hint(self, seen: impl Into<String>, fix: Fix) -> Finding {
        self.finding(Severity::Hint, seen.into(), Some(fix))
    }

    pub fn warning(self, seen: impl Into<String>, fix: Fix) -> Finding {
        self.finding(Severity::Warning, seen.into(), Some(fix))
    }

    /// It will not work.
    pub fn error(self, seen: impl Into<String>, fix: Fix) -> Finding {
        self.finding(Severity::Error, seen.into(), Some(fix))
    }

    pub fn at(self, severity: Severity, seen: impl Into<String>, fix: Fix) -> Finding {
        let fix = (severity != Severity::Ok).then_some(fix);
        self.finding(severity, seen.into(), fix)
    }

    fn finding(self, severity: Severity, seen: String, fix: Option<Fix>) -> Finding {
        Finding { name: self.name, severity, seen, why: self.why, fix }
    }
}
