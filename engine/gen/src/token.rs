//! Tokens of the language (RFC 4506 section 6.2), and of its comments the one that means something.

use logos::{FilterResult, Lexer, Logos};

use crate::expression;
use crate::span::Span;

/// A token.
#[derive(Logos, Debug, Clone, PartialEq, Eq)]
#[logos(skip r"[ \t\r\n\f]+")]
#[logos(skip(r"//[^\n]*", allow_greedy = true))]
pub(crate) enum Token {
    /// A name or a keyword: only the place of a word makes it one.
    #[regex("[A-Za-z_][A-Za-z0-9_]*", |lex| lex.slice().to_owned())]
    Word(String),
    /// A number: decimal, hexadecimal with `0x`, or octal with `0` in front. None if it is too
    /// large for any type.
    #[regex("-?[0-9][A-Za-z0-9_]*", number)]
    Number(Option<i128>),
    /// Text in quotes: the value of a constant, which rpcgen passes on to C.
    #[regex(r#""[^"\n]*""#, |lex| lex.slice().trim_matches('"').to_owned())]
    Text(String),
    /// `/* ddp */`: what is declared in front may be placed by the transport.
    #[token("/*", comment)]
    Ddp,
    #[token("{")]
    BraceOpen,
    #[token("}")]
    BraceClose,
    #[token("[")]
    BracketOpen,
    #[token("]")]
    BracketClose,
    #[token("<")]
    AngleOpen,
    #[token(">")]
    AngleClose,
    #[token("(")]
    ParenOpen,
    #[token(")")]
    ParenClose,
    #[token(";")]
    Semicolon,
    #[token(",")]
    Comma,
    #[token(":")]
    Colon,
    #[token("=")]
    Equals,
    #[token("*")]
    Star,
    /// The end of the text.
    End,
}

/// A token and its place.
pub(crate) type Placed = (Token, Span);

/// The words that name no type, member or constant (RFC 4506 section 6.2, RFC 5531 section 12.3).
pub(crate) const KEYWORDS: [&str; 21] = [
    "bool",
    "case",
    "const",
    "default",
    "double",
    "enum",
    "float",
    "hyper",
    "int",
    "opaque",
    "program",
    "quadruple",
    "string",
    "struct",
    "switch",
    "typedef",
    "union",
    "unsigned",
    "version",
    "void",
    "char",
];

fn number(lex: &mut Lexer<'_, Token>) -> Option<i128> {
    match lex.slice().strip_prefix('-') {
        Some(digits) => expression::number(digits).map(|value| -value),
        None => expression::number(lex.slice()),
    }
}

/// Skips a comment, unless it is the one that means something. One without an end is an error.
fn comment(lex: &mut Lexer<'_, Token>) -> FilterResult<(), ()> {
    let Some(len) = lex.remainder().find("*/") else {
        lex.bump(lex.remainder().len());
        return FilterResult::Error(());
    };
    let is_ddp = lex.remainder()[..len].trim() == "ddp";
    lex.bump(len + 2);
    if is_ddp { FilterResult::Emit(()) } else { FilterResult::Skip }
}

impl Token {
    /// As it is named in an error.
    pub fn shown(&self) -> String {
        let sign = match self {
            Token::Word(word) => return format!("`{word}`"),
            Token::Number(_) => return "a number".to_owned(),
            Token::Text(_) => return "a text in quotes".to_owned(),
            Token::Ddp => return "`/* ddp */`".to_owned(),
            Token::End => return "the end of the file".to_owned(),
            Token::BraceOpen => "{",
            Token::BraceClose => "}",
            Token::BracketOpen => "[",
            Token::BracketClose => "]",
            Token::AngleOpen => "<",
            Token::AngleClose => ">",
            Token::ParenOpen => "(",
            Token::ParenClose => ")",
            Token::Semicolon => ";",
            Token::Comma => ",",
            Token::Colon => ":",
            Token::Equals => "=",
            Token::Star => "*",
        };
        format!("`{sign}`")
    }

    /// Whether it is this word.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Token::Word(it) if it == word)
    }
}

/// The tokens of a part of a file. What is none goes to `bad`, with the reason.
pub(crate) fn tokens(
    text: &str,
    base: usize,
    file: u32,
    mut bad: impl FnMut(Span, String),
) -> Vec<Placed> {
    let mut found = Vec::new();
    for (token, range) in Token::lexer(text).spanned() {
        let span = Span::new(file, base + range.start..base + range.end);
        let slice = &text[range];
        match token {
            Ok(token) => {
                if token == Token::Number(None) {
                    bad(span, format!("`{slice}` is no number"));
                }
                found.push((token, span));
            }
            Err(()) if slice.starts_with("/*") => {
                let start = Span { end: span.start + 2, ..span };
                bad(start, "the comment has no end: `*/` expected".to_owned());
            }
            Err(()) => bad(span, format!("{slice:?} is no part of the language")),
        }
    }
    found
}
