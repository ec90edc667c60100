//! From tokens to definitions. An error ends its definition; the next one is read all the same.

mod declarations;
mod definitions;
mod programs;

use crate::ast::{Description, Name, Value};
use crate::problem::Problem;
use crate::span::{At, Span};
use crate::token::{KEYWORDS, Placed, Token};

/// Reads all definitions.
pub(crate) fn parse(tokens: &[Placed], problems: &mut Vec<Problem>) -> Description {
    let mut parser = Parser { tokens, at: 0, failed_at: 0, depth: 0, problems };
    let mut description = Description::default();
    while *parser.peek() != Token::End {
        let began = parser.at;
        match parser.definition() {
            Ok(definition) => description.definitions.push(definition),
            Err(Failed) => parser.skip_definition(began),
        }
    }
    description
}

/// A definition that cannot be read: the problem is noted.
#[derive(Debug)]
struct Failed;

type Parsed<T> = Result<T, Failed>;

struct Parser<'a> {
    /// With `Token::End` as the last.
    tokens: &'a [Placed],
    at: usize,
    /// Where the last error was found.
    failed_at: usize,
    /// Types within types.
    depth: u32,
    problems: &'a mut Vec<Problem>,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn span(&self) -> Span {
        self.tokens[self.at].1
    }

    /// The place of the token in front.
    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].1
    }

    fn advance(&mut self) {
        // The last token stays.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    /// Takes a token if it is this one.
    fn take(&mut self, token: &Token) -> bool {
        let is_it = self.peek() == token;
        if is_it {
            self.advance();
        }
        is_it
    }

    /// Takes a word if it is this one.
    fn take_word(&mut self, word: &str) -> bool {
        let is_it = self.peek().is_word(word);
        if is_it {
            self.advance();
        }
        is_it
    }

    fn expect(&mut self, token: &Token, place: &str) -> Parsed<()> {
        if self.take(token) {
            return Ok(());
        }
        // What is missing belongs to the end of what is there.
        let behind = Span { start: self.last_span().end, ..self.last_span() };
        let is_missing = matches!(token, Token::Semicolon | Token::Comma) && self.at > 0;
        let span = if is_missing { behind } else { self.span() };
        self.fail_at(span, &format!("{} expected {place}", token.shown()))
    }

    fn expect_word(&mut self, word: &str, place: &str) -> Parsed<()> {
        match self.take_word(word) {
            true => Ok(()),
            false => self.fail(&format!("`{word}` expected {place}")),
        }
    }

    /// A name that is no keyword.
    fn name(&mut self, of: &str) -> Parsed<Name> {
        let span = self.span();
        match self.peek() {
            Token::Word(word) if KEYWORDS.contains(&word.as_str()) => {
                self.fail(&format!("the name of {of} expected: keywords are no names"))
            }
            Token::Word(word) => {
                let name = At::new(word.clone(), span);
                self.advance();
                Ok(name)
            }
            _ => self.fail(&format!("the name of {of} expected")),
        }
    }

    /// A number or the name of one.
    fn value(&mut self, of: &str) -> Parsed<Value> {
        let span = self.span();
        if let Token::Number(number) = self.peek() {
            // What is no number was reported.
            let number = number.unwrap_or(0);
            self.advance();
            return Ok(Value::Number(At::new(number, span)));
        }
        match self.peek() {
            Token::Word(word) if !KEYWORDS.contains(&word.as_str()) => {
                Ok(Value::Named(self.name(of)?))
            }
            _ => self.fail(&format!("{of} expected: a number or the name of a constant")),
        }
    }

    /// Notes what is expected in place of the next token.
    fn fail<T>(&mut self, expected: &str) -> Parsed<T> {
        self.fail_at(self.span(), expected)
    }

    fn fail_at<T>(&mut self, span: Span, expected: &str) -> Parsed<T> {
        let message = format!("{expected}; found {}", self.peek().shown());
        self.problems.push(Problem::new(span, message));
        self.failed_at = self.at;
        Err(Failed)
    }

    /// Goes on behind the definition that could not be read, which began at a token: behind its `;`,
    /// or in front of a word that begins another.
    fn skip_definition(&mut self, began: usize) {
        let mut depth = 0_u32;
        for at in began..self.tokens.len() - 1 {
            self.at = at;
            let token = self.peek();
            let begins =
                |words: &[&str]| at > began && words.iter().any(|word| token.is_word(word));
            match token {
                Token::BraceOpen => depth += 1,
                Token::BraceClose => depth = depth.saturating_sub(1),
                _ if at < self.failed_at => {}
                Token::Semicolon if depth == 0 => return self.advance(),
                _ if begins(&ONLY_OUTSIDE) || (depth == 0 && begins(&ALSO_TYPES)) => return,
                _ => {}
            }
        }
        self.at = self.tokens.len() - 1;
    }
}

/// Words that begin a definition, and are in none.
const ONLY_OUTSIDE: [&str; 3] = ["const", "typedef", "program"];
/// Words that begin a definition, or a type in one.
const ALSO_TYPES: [&str; 3] = ["enum", "struct", "union"];
