//! The lines that are for the preprocessor of C: constants, conditions, other files.
//!
//! ```text
//!   file ─▶ lines ─┬─ %...                 skipped; of `%#define NAME NUMBER` the number is kept
//!                  ├─ #define, #ifdef, ...  carried out
//!                  └─ others ─▶ tokens ─▶ names that are defined replaced
//! ```
//! What a name stands for is worked out where it is defined: nothing is replaced twice, so a short
//! text cannot become a long one.
//!
//! rpcgen runs the whole preprocessor of C. Descriptions use the few directives that are here; any
//! other is an error.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::expression::{self, evaluate};
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
    /// The numbers that the header of C would define.
    pub numbers_of_c: HashMap<String, i128>,
    defined: HashMap<String, Vec<Token>>,
    /// Files that are being read, the outermost first.
    open: Vec<PathBuf>,
}

/// A condition that is open: `#if` up to its `#endif`.
struct Condition {
    span: Span,
    /// For the lines of the description, and for those that are passed on to the header of C.
    branches: [Branch; 2],
    has_else: bool,
}

/// Which lines of a condition count.
#[derive(Clone, Copy)]
struct Branch {
    /// Whether its lines count now.
    counts: bool,
    /// Whether lines of an earlier branch have counted, or none may.
    is_over: bool,
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
        let defined = options.defines.iter().map(|define| match define.split_once('=') {
            Some((name, value)) => {
                (name.to_owned(), vec![Token::Number(expression::number(value))])
            }
            None => (define.clone(), Vec::new()),
        });
        Preprocessor {
            options,
            files: Files::default(),
            problems: Vec::new(),
            tokens: Vec::new(),
            numbers_of_c: HashMap::new(),
            defined: defined.collect(),
            open: Vec::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub fn file(&mut self, path: &Path) -> Result<(), String> {
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|why| why.to_string())?;
        let read = file.take(TEXT_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|why| why.to_string())?;
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
            return Err(format!("it is too long; at most {TEXT_MAX} bytes are read"));
        }
        self.open.push(path.to_owned());
        let file = self.files.add(path, text.clone());
        let mut conditions: Vec<Condition> = Vec::new();
        let mut chunk = Chunk::default();
        // A comment of a line that is not read has no end yet.
        let mut in_comment = false;
        for (start, line) in lines(&text) {
            let span = Span::new(file, start..start + line.trim_end().len());
            let [counts, counts_for_c] = match conditions.last() {
                Some(condition) => condition.branches.map(|branch| branch.counts),
                None => [true; 2],
            };
            if chunk.in_comment {
                chunk.add(line, start);
            } else if in_comment {
                in_comment = ends_in_comment(line, true);
            } else if let Some(directive) = line.trim_start().strip_prefix('#') {
                self.chunk(file, &mut chunk);
                in_comment = ends_in_comment(line, false);
                self.directive(directive, span, counts, &mut conditions);
            } else if let Some(passed_on) = line.strip_prefix('%') {
                self.chunk(file, &mut chunk);
                if counts_for_c {
                    self.number_of_c(passed_on);
                }
            } else if counts {
                chunk.add(line, start);
            } else {
                in_comment = ends_in_comment(line, false);
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
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem::new(span, message));
        }
    }

    /// Takes the tokens of lines without directives.
    fn chunk(&mut self, file: u32, chunk: &mut Chunk) {
        let Chunk { text, start, .. } = std::mem::take(chunk);
        let mut bad = Vec::new();
        let found = tokens(&text, start, file, |span, why| {
            if bad.len() < PROBLEMS_MAX {
                bad.push((span, why));
            }
        });
        bad.into_iter().for_each(|(span, why)| self.problem(span, why));
        for (token, span) in found {
            let body = match &token {
                Token::Word(word) => self.defined.get(word).map(Vec::as_slice),
                _ => None,
            };
            let Some(body) = body else {
                self.tokens.push((token, span));
                continue;
            };
            // What it stands for was worked out where it was defined.
            let is_other = |it: &&Token| **it != token && self.is_defined(it);
            if let Some(inner) = body.iter().find(is_other) {
                let message = format!(
                    "{} stands for {}, which is defined behind it: not known here",
                    token.shown(),
                    inner.shown()
                );
                self.problem(span, message);
                continue;
            }
            self.tokens.extend(body.iter().map(|token| (token.clone(), span)));
        }
    }

    fn is_defined(&self, token: &Token) -> bool {
        matches!(token, Token::Word(word) if self.defined.contains_key(word))
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
        match name {
            "ifdef" | "ifndef" => {
                let condition = format!("defined {rest}");
                let holds = self.holds(&condition, span, counts);
                self.open_condition(span, holds.map(|it| it == (name == "ifdef")), conditions);
            }
            "if" => {
                let holds = self.holds(&rest, span, counts);
                self.open_condition(span, holds, conditions);
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

    fn open_condition(&mut self, span: Span, holds: [bool; 2], conditions: &mut Vec<Condition>) {
        let outer = match conditions.last() {
            Some(condition) => condition.branches.map(|branch| branch.counts),
            None => [true; 2],
        };
        let branch =
            |at: usize| Branch { counts: outer[at] && holds[at], is_over: !outer[at] || holds[at] };
        conditions.push(Condition { span, branches: [branch(0), branch(1)], has_else: false });
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
        let is_asked = !condition.branches[0].is_over;
        let holds = if name == "else" { [true; 2] } else { self.holds(rest, span, is_asked) };
        for (branch, holds) in condition.branches.iter_mut().zip(holds) {
            branch.counts = !branch.is_over && holds;
            branch.is_over |= branch.counts;
        }
    }

    /// Whether a condition holds, for the description and for the header of C, where rpcgen defines
    /// one name more. What is wrong with one that is not asked for is no problem.
    fn holds(&mut self, condition: &str, span: Span, is_asked: bool) -> [bool; 2] {
        let value = |for_c: bool| {
            let is_header = |name: &str| for_c && name == HEADER;
            let number_of = |name: &str| match self.defined.get(name).map(Vec::as_slice) {
                Some([Token::Number(Some(value))]) => Ok(*value),
                Some([]) => Ok(1),
                Some(_) => Err(format!("`{name}` is no number")),
                // As in C.
                None => Ok(is_header(name).into()),
            };
            let is_defined = |name: &str| self.defined.contains_key(name) || is_header(name);
            evaluate(condition, number_of, is_defined)
        };
        let (ours, of_c) = (value(false), value(true));
        if let (Err(why), true) = (&ours, is_asked) {
            self.problem(span, why);
        }
        [ours, of_c].map(|value| value.is_ok_and(|value| value != 0))
    }

    fn define(&mut self, define: &str, span: Span) {
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
        let found = tokens(body, 0, span.file, |_, _| is_other = true);
        let is_other = is_other || found.iter().any(|(token, _)| HAS_OPERATORS.contains(token));
        let body = match is_other {
            // The language has no operators: what they make is a number.
            true => self.number(body).map(|number| vec![Token::Number(Some(number))]),
            false => Ok(found.into_iter().flat_map(|(token, _)| self.replaced(token)).collect()),
        };
        match body {
            Ok(body) if body.len() > BODY_MAX => {
                let message = format!("`{name}` stands for more than {BODY_MAX} words");
                self.problem(span, message);
            }
            Ok(body) => drop(self.defined.insert(name.to_owned(), body)),
            Err(why) => self.problem(span, why),
        }
    }

    /// A token of what a name stands for; what it stands for itself, if it is a name.
    fn replaced(&self, token: Token) -> Vec<Token> {
        match &token {
            Token::Word(word) => self.defined.get(word).cloned().unwrap_or_else(|| vec![token]),
            _ => vec![token],
        }
    }

    /// The number that an expression is; every name in it has to stand for one.
    fn number(&self, text: &str) -> Result<i128, String> {
        let number_of = |name: &str| match self.defined.get(name).map(Vec::as_slice) {
            Some([Token::Number(Some(value))]) => Ok(*value),
            _ => self.numbers_of_c.get(name).copied().ok_or(format!("`{name}` is no number here")),
        };
        evaluate(text, number_of, |name| self.defined.contains_key(name))
    }

    /// A line that is passed on to C. Descriptions use the numbers that it defines there.
    fn number_of_c(&mut self, line: &str) {
        let line = line.trim_start().strip_prefix('#').map(str::trim_start);
        let Some(define) = line.and_then(|line| line.strip_prefix("define")) else { return };
        let define = without_comments(define);
        let Some((name, body)) = define.trim().split_once([' ', '\t']) else { return };
        if let Ok(number) = self.number(body) {
            self.numbers_of_c.insert(name.to_owned(), number);
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
        if self.files.len() == FILES_MAX {
            return self.problem(span, format!("more than {FILES_MAX} files are included"));
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
    left.replace("\\\r\n", " ").replace("\\\n", " ")
}

/// The longest file that is read, in bytes.
const TEXT_MAX: usize = 16 << 20;
/// The name that rpcgen defines where it writes the header of C.
const HEADER: &str = "RPC_HDR";
/// Tokens that are operators of C as well.
const HAS_OPERATORS: [Token; 5] =
    [Token::Star, Token::ParenOpen, Token::ParenClose, Token::AngleOpen, Token::AngleClose];
/// Words that a name stands for.
const BODY_MAX: usize = 64;
/// Errors that are kept.
const PROBLEMS_MAX: usize = 100;
/// Files within each other.
const FILES_OPEN_MAX: usize = 64;
/// Files of a description.
const FILES_MAX: usize = 1000;
