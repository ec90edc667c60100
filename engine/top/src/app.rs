//! The state of the screen: the last two looks, the chosen table, row and order, and what keys do.

use std::error::Error;
use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::source::Scrape;
use crate::tables::{Table, tables};

/// What the screen shows.
#[derive(Debug)]
pub struct App {
    url: String,
    before: Option<Scrape>,
    now: Option<Scrape>,
    /// Why there is no answer, and since when.
    silence: Option<(Instant, String)>,
    /// The chosen table.
    pub table: usize,
    /// The chosen row and the column to sort by, of each table.
    pub row: [usize; 4],
    pub column: [usize; 4],
    is_reversed: [bool; 4],
}

impl App {
    pub fn new(url: &str) -> App {
        App {
            url: url.to_owned(),
            before: None,
            now: None,
            silence: None,
            table: 0,
            row: [0; 4],
            column: [0; 4],
            is_reversed: [false; 4],
        }
    }

    /// Takes the outcome of a look. What was seen last stays while there is no answer.
    pub fn take(&mut self, look: Result<Scrape, Box<dyn Error + Send + Sync>>, at: Instant) {
        match look {
            Ok(scrape) => {
                self.before = self.now.replace(scrape);
                self.silence = None;
            }
            Err(why) => {
                let since = self.silence.as_ref().map_or(at, |(since, _)| *since);
                self.silence = Some((since, why.to_string()));
            }
        }
    }

    /// Does what a key asks for. True if that is to end.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let (table, rows) = (self.table, self.rows());
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Tab => self.table = (table + 1) % 4,
            KeyCode::BackTab => self.table = (table + 3) % 4,
            KeyCode::Char(digit @ '1'..='4') => self.table = digit as usize - '1' as usize,
            KeyCode::Up => self.row[table] = self.row[table].saturating_sub(1),
            KeyCode::Down => self.row[table] += 1,
            KeyCode::PageUp => self.row[table] = self.row[table].saturating_sub(PAGE),
            KeyCode::PageDown => self.row[table] += PAGE,
            KeyCode::Home => self.row[table] = 0,
            KeyCode::End => self.row[table] = rows,
            KeyCode::Left => self.column[table] = self.column[table].saturating_sub(1),
            KeyCode::Right => self.column[table] += 1,
            KeyCode::Char('r') => self.is_reversed[table] = !self.is_reversed[table],
            _ => {}
        }
        self.keep_within();
        false
    }

    /// The chosen table, sorted. `None` before the first answer.
    pub fn shown(&self) -> Option<Table> {
        let mut tables = tables(self.before.as_ref(), self.now.as_ref()?);
        let mut table = std::mem::replace(&mut tables[self.table], EMPTY);
        table.sort(self.column[self.table], self.is_reversed[self.table]);
        Some(table)
    }

    /// The line about the process, and whether it is bad news.
    pub fn status(&self, at: Instant) -> (String, bool) {
        match &self.silence {
            Some((since, why)) => {
                let seconds = at.saturating_duration_since(*since).as_secs();
                (format!("no answer from {} for {seconds} s: {why}", self.url), true)
            }
            None if self.now.is_none() => (format!("asking {}", self.url), false),
            None => (self.url.clone(), false),
        }
    }

    fn rows(&self) -> usize {
        self.shown().map_or(0, |table| table.rows.len())
    }

    fn keep_within(&mut self) {
        let Some(table) = self.shown() else { return };
        let (row, column) = (&mut self.row[self.table], &mut self.column[self.table]);
        *row = (*row).min(table.rows.len().saturating_sub(1));
        *column = (*column).min(table.columns.len() - 1);
    }
}

const EMPTY: Table = Table { title: "", columns: &[], rows: Vec::new() };
/// Rows of a page.
const PAGE: usize = 10;
