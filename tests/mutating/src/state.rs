//! What a measurement has found so far: a file with a line for each thing, so that it can be
//! stopped at any time and continued.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rpcrdma_mutants::names::Program;
use serde::{Deserialize, Serialize};

use crate::batch::Switches;

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// What the mutants were drawn by.
    pub seed: u64,
    /// How many were wanted.
    pub count: usize,
    /// A sum of the sources: another one has other mutants.
    pub sources: u64,
}

/// A test without mutations.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tried {
    /// Its program.
    pub program: Program,
    /// Its name there.
    pub name: String,
    /// How long it took.
    pub ms: u64,
    /// Whether it passed.
    pub is_passed: bool,
    /// The switches that it reaches.
    pub reached: Vec<usize>,
}

/// Which tests noticed a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caught {
    /// Those of its crate.
    Own,
    /// Those of other crates, and none of its own.
    Across,
    /// None.
    Never,
}

/// A mutant that was tried.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Found {
    /// Its number.
    pub number: usize,
    /// Which tests noticed it.
    pub caught: Caught,
    /// How.
    pub how: String,
}

/// A line of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Entry {
    /// The first line.
    Begin(Header),
    /// The places of the switches; the last one counts.
    Switches(Switches),
    /// A test.
    Tried(Tried),
    /// A mutant that no test of its crate noticed.
    Left(usize),
    /// A mutant.
    Found(Found),
}

/// The file.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    file: Mutex<File>,
    /// What was in it at the start.
    pub before: Vec<Entry>,
}

impl State {
    /// Opens the file, or begins a new one.
    ///
    /// # Errors
    /// If it is to be continued and is of another measurement, or cannot be read or written.
    pub fn open(path: &Path, header: &Header, is_continued: bool) -> Result<State, String> {
        let at = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut before = Vec::new();
        if is_continued {
            let text = fs::read_to_string(path).map_err(at)?;
            // The last line may have been cut.
            before = text.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
            let is_same = matches!(before.first(), Some(Entry::Begin(begun)) if begun == header);
            if !is_same {
                let first = before.first();
                return Err(format!("{} is of {first:?}, not of {header:?}", path.display()));
            }
        }
        let mut options = OpenOptions::new();
        let file = match is_continued {
            true => options.append(true).open(path),
            false => File::create(path),
        };
        let state = State { path: path.to_owned(), file: Mutex::new(file.map_err(at)?), before };
        if !is_continued {
            state.add(&Entry::Begin(header.clone()))?;
        }
        Ok(state)
    }

    /// Writes a line.
    ///
    /// # Errors
    /// If it cannot.
    pub fn add(&self, entry: &Entry) -> Result<(), String> {
        let mut line = serde_json::to_string(entry).map_err(|error| error.to_string())?;
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write_all(line.as_bytes());
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}
