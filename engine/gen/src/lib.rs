//! Descriptions of ONC RPC programs: `.x` files, as rpcgen takes them.
//!
//! ```text
//!   file ─▶ preprocess ─▶ tokens ─▶ parser ─▶ definitions ─▶ check
//!              │             │         │                       │
//!              └─────────────┴─────────┴── problems ◀──────────┘
//! ```
//! The language is that of RFC 4506 section 6 and RFC 5531 section 12. Beside it, as rpcgen takes
//! them: the types of C (`long`, `u_int`, `int64_t`, ...), enumerators without a value, `struct NAME`
//! as a type, `netobj`, constants that are a text, several arguments, lines for C that begin with `%`, and the directives of the
//! preprocessor that descriptions use. A comment means something: `/* ddp */` behind opaque data or a
//! string says that the transport may place them (RFC 8166 section 6).
//!
//! ```
//! use rpcrdma_gen::{Options, read_text};
//!
//! let text = "program STORE { version ONE { hyper SIZE(void) = 1; } = 1; } = 0x20000001;";
//! let description = read_text("store.x", text, &Options::default()).expect("it has no error");
//! assert_eq!(description.definitions.len(), 1);
//!
//! let problems = read_text("store.x", "const SIZE = ;\nstruct s { int };", &Options::default());
//! assert_eq!(
//!     problems.expect_err("it has two").to_string(),
//!     "store.x:1:14: the value of the constant expected: a number or the name of a constant; \
//!      found `;`\nstore.x:2:16: the name of a member expected; found `}`"
//! );
//! ```
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `preprocess`, `parser`, `check`
//! - `problem`
//! - `files`, `ast`, `options`, `token`
//! - `expression`, `span`
#![forbid(unsafe_code)]

pub mod ast;
mod check;
mod expression;
mod files;
mod options;
mod parser;
mod preprocess;
mod problem;
mod span;
#[cfg(test)]
mod tests;
mod token;

use std::path::Path;

pub use options::Options;
pub use problem::{Problem, Problems};
pub use span::{At, Span};

use self::ast::Description;
use self::preprocess::Preprocessor;
use self::token::Token;

/// Reads a file.
///
/// # Errors
/// Everything that is wrong in it.
pub fn read(path: impl AsRef<Path>, options: &Options) -> Result<Description, Problems> {
    let path = path.as_ref();
    read_by(path, options, |preprocessor| preprocessor.file(path))
}

/// Reads a text as the file with this path.
///
/// # Errors
/// Everything that is wrong in it.
pub fn read_text(
    path: impl AsRef<Path>,
    text: &str,
    options: &Options,
) -> Result<Description, Problems> {
    let path = path.as_ref();
    read_by(path, options, |preprocessor| preprocessor.text(path, text.to_owned()))
}

fn read_by(
    path: &Path,
    options: &Options,
    read: impl FnOnce(&mut Preprocessor<'_>) -> Result<(), String>,
) -> Result<Description, Problems> {
    let mut preprocessor = Preprocessor::new(options);
    if let Err(why) = read(&mut preprocessor) {
        let file = preprocessor.files.add(path, String::new());
        preprocessor.problems.push(Problem::new(Span::new(file, 0..0), why));
    }
    let Preprocessor { files, mut problems, mut tokens, numbers_of_c, .. } = preprocessor;
    let end = files.text(0).len();
    tokens.push((Token::End, Span::new(0, end..end)));
    let description = parser::parse(&tokens, &mut problems);
    // A definition that cannot be read is not there, and each use of it would be an error of its own.
    if problems.is_empty() {
        check::check(&description, &numbers_of_c, &mut problems);
    }
    if problems.is_empty() { Ok(description) } else { Err(Problems::new(files, problems)) }
}
