//! What is wrong in a description, and how it is shown.

use std::fmt;
use std::io;

use ariadne::{Config, IndexType, Label, Report, ReportKind};

use crate::files::Files;
use crate::span::Span;

/// An error in a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub span: Span,
    /// What is wrong, and what is allowed.
    pub message: String,
    /// Another place that matters, and why.
    pub note: Option<(Span, String)>,
}

impl Problem {
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Problem {
        Problem { span, message: message.into(), note: None }
    }

    pub(crate) fn with_note(self, span: Span, why: impl Into<String>) -> Problem {
        Problem { note: Some((span, why.into())), ..self }
    }
}

/// What is wrong in a description, the first hundred errors of it, and its files.
#[derive(Debug)]
pub struct Problems {
    files: Files,
    found: Vec<Problem>,
}

impl Problems {
    pub(crate) fn new(files: Files, mut found: Vec<Problem>) -> Problems {
        found.sort_by_key(|problem| (problem.span.file, problem.span.start));
        found.truncate(SHOWN_MAX);
        Problems { files, found }
    }

    /// The errors, in the order of the text.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Problem> {
        self.found.iter()
    }

    /// The path of the file, the line and the column of a place, both counted from 1.
    pub fn place(&self, span: Span) -> (&str, usize, usize) {
        self.files.place(span)
    }

    /// Writes all of them with the lines of the files, in colours or not.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(&self, out: &mut impl io::Write, colours: bool) -> io::Result<()> {
        let config = Config::default()
            .with_color(colours)
            .with_index_type(IndexType::Byte)
            .with_compact(true);
        for problem in &self.found {
            let place = (problem.span.file, problem.span.range());
            let mut report = Report::build(ReportKind::Error, place.clone())
                .with_config(config)
                .with_message(&problem.message)
                .with_label(Label::new(place));
            if let Some((span, why)) = &problem.note {
                report = report.with_label(Label::new((span.file, span.range())).with_message(why));
            }
            report.finish().write(&self.files, &mut *out)?;
        }
        Ok(())
    }
}

/// One line for each error: file, line, column and message, as compilers print them.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.found.iter().enumerate() {
            let (file, line, column) = self.place(problem.span);
            let end = if at + 1 < self.found.len() { "\n" } else { "" };
            write!(f, "{file}:{line}:{column}: {}{end}", problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Errors that are shown.
const SHOWN_MAX: usize = 100;
