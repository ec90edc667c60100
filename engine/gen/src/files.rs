//! The files of a description: the one that was named, and those that it includes.

use std::fmt;
use std::path::Path;

use ariadne::{Cache, Source};

use crate::span::Span;

/// The files that were read, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: Vec<File>,
}

/// A file.
#[derive(Debug)]
pub(crate) struct File {
    /// The path as it was named, or the folder of inclusion and the name in the file.
    shown: String,
    source: Source<String>,
}

impl Files {
    /// Keeps a file; returns its number.
    pub fn add(&mut self, path: &Path, text: String) -> u32 {
        let shown = path.display().to_string();
        self.files.push(File { shown, source: Source::from(text) });
        self.files.len() as u32 - 1
    }

    /// How many were read.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// The file with this number.
    pub fn file(&self, number: u32) -> &File {
        &self.files[number as usize]
    }

    /// The text of the file with this number.
    pub fn text(&self, number: u32) -> &str {
        self.file(number).source.text()
    }

    /// Path, line and column of a place, counted from 1.
    pub fn place(&self, span: Span) -> (&str, usize, usize) {
        let file = self.file(span.file);
        let before = &file.source.text()[..(span.start as usize).min(file.source.text().len())];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        (&file.shown, line, column)
    }
}

impl Cache<u32> for &Files {
    type Storage = String;

    fn fetch(&mut self, id: &u32) -> Result<&Source<String>, impl fmt::Debug> {
        self.files.get(*id as usize).map(|file| &file.source).ok_or("no such file")
    }

    fn display<'a>(&self, id: &'a u32) -> Option<impl fmt::Display + 'a> {
        self.files.get(*id as usize).map(|file| file.shown.clone())
    }
}
