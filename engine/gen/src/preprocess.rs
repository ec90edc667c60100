//! The lines that are for the preprocessor of C: constants, conditions, other files.
//!
//! ```text
//!   file ─▶ lines ─┬─ %...                 skipped; `%#define NAME VALUE` is a constant all the same
//!                  ├─ #define, #ifdef, ...  carried out
//!                  └─ others ─▶ tokens ─▶ names of constants replaced
//! ```
//! rpcgen runs the whole preprocessor of C. Descriptions use the few directives that are here; any
//! other is an error.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::expression::evaluate;
use crate::files::Files;
use crate::options::Options;
use crate::problem::Problem;
use crate::span::Span;
use crate::token::{Placed, Token, tokens};

/// The tokens of a file and of those that it includes.
pub(crate) struct Preprocessor<'a> {
    options: &'a Options,
    /// What was read.
    pub files: Files,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// The tokens.
    pub tokens: Vec<Placed>,
    defined: HashMap<String, Vec<Placed>>,
    /// Files that are being read, the outermost first.
    open: Vec<PathBuf>,
}

/// A condition that is open: `#if` up to its `#endif`.
struct Condition {
    span: Span,
    /// Whether its lines count now.
    counts: bool,
    /// Whether lines of an earlier branch have counted, or none may.
    is_over: bool,
    has_else: bool,
}

/// The lines of a file that are read together: no directive is among them.
#[derive(Default)]
struct Chunk {
    text: String,
    /// Where it begins in its file.
    start: usize,
    /// A comment of it has no end yet.
    in_comment: bool,
}

impl<'a> Preprocessor<'a> {
    pub fn new(options: &'a Options) -> Preprocessor<'a> {
        let defined = options.defines.iter().map(|name| (name.clone(), Vec::new()));
        Preprocessor {
            options,
            files: Files::default(),
            problems: Vec::new(),
            tokens: Vec::new(),
            defined: defined.collect(),
            open: Vec::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub fn file(&mut self, path: &Path) -> Result<(), String> {
        let bytes = fs::read(path).map_err(|why| why.to_string())?;
        let text = String::from_utf8(bytes)
            .map_err(|why| format!("byte {} is not UTF-8", why.utf8_error().valid_up_to()))?;
        self.text(path, text)
    }

    /// Reads a text as the file with this path.
    ///
    /// # Errors
    /// If it is too long.
    pub fn text(&mut self, path: &Path, text: String) -> Result<(), String> {
        if text.len() > TEXT_MAX {
            return Err(format!("it has {} bytes; at most {TEXT_MAX} are read", text.len()));
        }
        self.open.push(path.to_owned());
        let file = self.files.add(path, text.clone());
        let mut conditions: Vec<Condition> = Vec::new();
        let mut chunk = Chunk::default();
        for (start, line) in lines(&text) {
            let span = Span::new(file, start..start + line.trim_end().len());
            let counts = conditions.iter().all(|condition| condition.counts);
            if chunk.in_comment {
                chunk.add(line, start);
            } else if let Some(directive) = line.trim_start().strip_prefix('#') {
                self.chunk(file, &mut chunk);
                self.directive(directive, span, counts, &mut conditions);
            } else if let Some(passed_on) = line.strip_prefix('%') {
                self.chunk(file, &mut chunk);
                self.constant_for_c(passed_on, span);
            } else if counts {
                chunk.add(line, start);
            }
        }
        self.chunk(file, &mut chunk);
        for condition in conditions {
            self.problem(condition.span, "the condition has no end: `#endif` expected");
        }
        self.open.pop();
        Ok(())
    }

    fn problem(&mut self, span: Span, message: impl Into<String>) {
        self.problems.push(Problem::new(span, message));
    }

    /// Takes the tokens of lines without directives.
    fn chunk(&mut self, file: u32, chunk: &mut Chunk) {
        let Chunk { text, start, .. } = std::mem::take(chunk);
        for (token, span) in self.tokens_of(&text, start, file) {
            match &token {
                Token::Word(word) if self.defined.contains_key(word) => {
                    let mut seen = vec![word.clone()];
                    self.replace(word, span, &mut seen);
                }
                _ => self.tokens.push((token, span)),
            }
        }
    }

    fn tokens_of(&mut self, text: &str, start: usize, file: u32) -> Vec<Placed> {
        let problems = &mut self.problems;
        tokens(text, start, file, |span, why| problems.push(Problem::new(span, why)))
    }

    /// Puts what a name stands for in its place.
    fn replace(&mut self, word: &str, span: Span, seen: &mut Vec<String>) {
        let body = self.defined.get(word).cloned().unwrap_or_default();
        for (token, _) in body {
            match &token {
                Token::Word(inner) if self.defined.contains_key(inner) && !seen.contains(inner) => {
                    if self.tokens.len() >= TOKENS_MAX {
                        return;
                    }
                    seen.push(inner.clone());
                    self.replace(inner, span, seen);
                    seen.pop();
                }
                _ => self.tokens.push((token.clone(), span)),
            }
        }
    }

    fn directive(
        &mut self,
        directive: &str,
        span: Span,
        counts: bool,
        conditions: &mut Vec<Condition>,
    ) {
        let directive = directive.trim();
        let end = directive.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(directive.len());
        let (name, rest) = directive.split_at(end);
        let rest = without_comments(rest);
        let is_defined = |it: &Self| it.defined.contains_key(rest.trim());
        match name {
            "ifdef" => self.open_condition(span, counts, is_defined(self), conditions),
            "ifndef" => self.open_condition(span, counts, !is_defined(self), conditions),
            "if" => {
                let is_true = counts && self.holds(&rest, span);
                self.open_condition(span, counts, is_true, conditions);
            }
            "elif" | "else" | "endif" => self.next_branch(name, &rest, span, conditions),
            _ if !counts => {}
            "define" => self.define(&rest, span),
            "undef" => drop(self.defined.remove(rest.trim())),
            "include" => self.include(&rest, span),
            // What is for the compiler of C, and the lines that its preprocessor leaves.
            "pragma" | "ident" | "line" | "" => {}
            _ => self.problem(
                span,
                format!(
                    "`#{name}` is not known; define, undef, include, if, ifdef, ifndef, elif, else \
                     and endif are"
                ),
            ),
        }
    }

    fn open_condition(
        &mut self,
        span: Span,
        outer: bool,
        is_true: bool,
        conditions: &mut Vec<Condition>,
    ) {
        let counts = outer && is_true;
        conditions.push(Condition { span, counts, is_over: !outer || is_true, has_else: false });
    }

    fn next_branch(&mut self, name: &str, rest: &str, span: Span, conditions: &mut Vec<Condition>) {
        let Some(condition) = conditions.last_mut() else {
            return self.problem(span, format!("`#{name}` without a condition in front"));
        };
        if name == "endif" {
            conditions.pop();
            return;
        }
        if condition.has_else {
            let opened = condition.span;
            let why = format!("`#{name}` behind `#else`: `#endif` expected");
            let problem = Problem::new(span, why).with_note(opened, "the condition begins here");
            return self.problems.push(problem);
        }
        condition.has_else = name == "else";
        let may_count = !condition.is_over;
        let is_true = name == "else" || (may_count && self.holds(rest, span));
        if let Some(condition) = conditions.last_mut() {
            condition.counts = may_count && is_true;
            condition.is_over |= condition.counts;
        }
    }

    fn holds(&mut self, condition: &str, span: Span) -> bool {
        match self.evaluate(condition) {
            Ok(value) => value != 0,
            Err(why) => {
                self.problem(span, why);
                false
            }
        }
    }

    fn evaluate(&self, text: &str) -> Result<i128, String> {
        let number_of = |name: &str| match self.defined.get(name).map(Vec::as_slice) {
            Some([(Token::Number(Some(value)), _)]) => Some(*value),
            Some([]) => Some(1),
            Some(_) | None => None,
        };
        evaluate(text, number_of, |name| self.defined.contains_key(name))
    }

    fn define(&mut self, define: &str, span: Span) {
        let define = without_comments(define);
        let define = define.trim();
        let end = define.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, body) = define.split_at(end.unwrap_or(define.len()));
        if name.is_empty() {
            return self.problem(span, "`#define` without a name");
        }
        if body.starts_with('(') {
            let message = format!("`{name}` is a macro with arguments, which is not known here");
            return self.problem(span, message);
        }
        let mut is_other = false;
        let mut body_tokens = tokens(body, 0, span.file, |_, _| is_other = true);
        if is_other || body_tokens.len() > 1 {
            // The language has no operators: what they make is a number.
            match self.evaluate(body) {
                Ok(value) => body_tokens = vec![(Token::Number(Some(value)), span)],
                Err(why) if is_other => return self.problem(span, why),
                Err(_) => {}
            }
        }
        body_tokens.iter_mut().for_each(|(_, at)| *at = span);
        self.defined.insert(name.to_owned(), body_tokens);
    }

    /// A line that is passed on to C. Descriptions use the numbers that it defines there.
    fn constant_for_c(&mut self, line: &str, span: Span) {
        let line = line.trim_start().strip_prefix('#').map(str::trim_start);
        let Some(define) = line.and_then(|line| line.strip_prefix("define")) else { return };
        let define = without_comments(define);
        let Some((name, body)) = define.trim().split_once([' ', '\t']) else { return };
        let is_number = self.evaluate(body).is_ok();
        if is_number && !self.defined.contains_key(name) {
            self.define(&define, span);
        }
    }

    fn include(&mut self, rest: &str, span: Span) {
        let rest = rest.trim();
        let quoted = rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let angled = rest.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
        let Some(name) = quoted.or(angled) else {
            return self.problem(span, "`#include` expects \"FILE\" or <FILE>");
        };
        let beside = self.open.last().and_then(|path| path.parent()).map(Path::to_owned);
        let beside = beside.filter(|_| quoted.is_some());
        let folders = beside.iter().chain(&self.options.include);
        let path = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
        let Some(path) = path else {
            return self
                .problem(span, format!("there is no file {name} in the folders of inclusion"));
        };
        let same = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if self.open.iter().any(|open| fs::canonicalize(open).is_ok_and(|open| open == same)) {
            return self.problem(span, format!("{} includes itself", path.display()));
        }
        if self.open.len() == FILES_OPEN_MAX {
            let message = format!("files include each other deeper than {FILES_OPEN_MAX}");
            return self.problem(span, message);
        }
        if let Err(why) = self.file(&path) {
            self.problem(span, format!("{}: {why}", path.display()));
        }
    }
}

impl Chunk {
    fn add(&mut self, line: &str, start: usize) {
        if self.text.is_empty() {
            self.start = start;
        }
        self.text.push_str(line);
        self.in_comment = ends_in_comment(line, self.in_comment);
    }
}

/// The lines of a text with their ends, and where they begin. One that ends with a backslash has
/// the next with it.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        if rest.is_empty() {
            return None;
        }
        let mut len = 0;
        while let Some(end) = rest[len..].find('\n') {
            len += end + 1;
            if !rest[..len - 1].trim_end_matches('\r').ends_with('\\') {
                break;
            }
        }
        if len == 0 || !rest[..len].ends_with('\n') {
            len = rest.len();
        }
        let line = (at, &rest[..len]);
        at += len;
        Some(line)
    })
}

/// Whether a comment is open at the end of a line.
fn ends_in_comment(line: &str, mut is_open: bool) -> bool {
    let mut rest = line;
    loop {
        let next = if is_open { rest.find("*/") } else { rest.find("/*") };
        match next {
            // Behind `//` nothing begins.
            Some(at) if !is_open && rest[..at].contains("//") => return false,
            Some(at) => rest = &rest[at + 2..],
            None => return is_open,
        }
        is_open = !is_open;
    }
}

fn without_comments(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        left.push_str(&rest[..at]);
        left.push(' ');
        rest = rest[at..].split_once("*/").map_or("", |(_, rest)| rest);
    }
    left.push_str(rest);
    let end = left.find("//").unwrap_or(left.len());
    left.truncate(end);
    left.replace("\\\n", " ")
}

/// The longest file that is read, in bytes.
const TEXT_MAX: usize = 16 << 20;
/// Files within each other.
const FILES_OPEN_MAX: usize = 64;
/// Tokens up to which names are replaced: names that stand for many others may not fill the memory.
const TOKENS_MAX: usize = 4 << 20;
