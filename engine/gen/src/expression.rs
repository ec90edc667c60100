//! Integer expressions, as in C: those of `#if`, and values that `#define` names.

/// The value of an expression. `number_of` is what a name stands for, or why it is none.
///
/// # Errors
/// What is wrong with the expression.
pub(crate) fn evaluate(
    text: &str,
    number_of: impl Fn(&str) -> Result<i128, String>,
    is_defined: impl Fn(&str) -> bool,
) -> Result<i128, String> {
    let words = words_of(text)?;
    let mut rest =
        Words { words: &words, depth: 0, number_of: &number_of, is_defined: &is_defined };
    let value = rest.binary(0)?;
    match rest.words {
        [] => Ok(value),
        [next, ..] => Err(format!("the expression has `{next}` where it should end")),
    }
}

/// The words of an expression that are left.
struct Words<'a> {
    words: &'a [&'a str],
    /// Parentheses and signs that are open.
    depth: u32,
    number_of: &'a dyn Fn(&str) -> Result<i128, String>,
    is_defined: &'a dyn Fn(&str) -> bool,
}

impl<'a> Words<'a> {
    fn take(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }

    fn next(&mut self) -> Result<&'a str, String> {
        let (first, rest) = self.words.split_first().ok_or("the expression ends too early")?;
        self.words = rest;
        Ok(first)
    }

    /// Operators that bind at least as strongly as those at this place of [`OPERATORS`].
    fn binary(&mut self, strength: usize) -> Result<i128, String> {
        let Some(operators) = OPERATORS.get(strength) else { return self.unary() };
        let mut value = self.binary(strength + 1)?;
        while let Some((_, apply)) =
            operators.iter().find(|(sign, _)| self.words.first() == Some(sign))
        {
            let sign = self.next()?;
            let other = self.binary(strength + 1)?;
            value = apply(value, other)
                .ok_or_else(|| format!("`{value} {sign} {other}` has no value"))?;
        }
        Ok(value)
    }

    fn unary(&mut self) -> Result<i128, String> {
        if self.depth == DEPTH_MAX {
            return Err(format!("the expression is nested deeper than {DEPTH_MAX}"));
        }
        self.depth += 1;
        let value = if self.take("!") {
            self.unary().map(|value| i128::from(value == 0))
        } else if self.take("-") {
            self.unary().map(|value| value.wrapping_neg())
        } else if self.take("(") {
            let value = self.binary(0);
            match self.take(")") {
                true => value,
                false => value.and(Err("`)` expected in the expression".to_owned())),
            }
        } else {
            self.primary()
        };
        self.depth -= 1;
        value
    }

    fn primary(&mut self) -> Result<i128, String> {
        let word = self.next()?;
        if word == "defined" {
            let in_parentheses = self.take("(");
            let name = self.next()?;
            if in_parentheses && !self.take(")") {
                return Err(format!("`defined({name}` has no `)`"));
            }
            return Ok(i128::from((self.is_defined)(name)));
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return number(word.trim_end_matches(['u', 'U', 'l', 'L']))
                .ok_or_else(|| format!("`{word}` is no number"));
        }
        match word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            true => (self.number_of)(word),
            false => Err(format!("a number or a name expected in the expression; found `{word}`")),
        }
    }
}

/// A number: decimal, hexadecimal with `0x`, or octal with `0` in front.
pub(crate) fn number(text: &str) -> Option<i128> {
    let (radix, digits) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if text.len() > 1 && text.starts_with('0') => (8, &text[1..]),
        None => (10, text),
    };
    let has_sign = digits.starts_with(['+', '-']);
    i128::from_str_radix(digits, radix).ok().filter(|_| !has_sign)
}

fn words_of(mut text: &str) -> Result<Vec<&str>, String> {
    let mut words = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() {
            return Ok(words);
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = match text.find(|c| !is_word(c)) {
            Some(0) => SIGNS.iter().find(|sign| text.starts_with(**sign)).map(|sign| sign.len()),
            Some(len) => Some(len),
            None => Some(text.len()),
        };
        let Some(len) = len else {
            let sign = text.chars().next().unwrap_or_default();
            return Err(format!("`{sign}` is not known in an expression"));
        };
        let (word, rest) = text.split_at(len);
        words.push(word);
        text = rest;
    }
}

type Operator = (&'static str, fn(i128, i128) -> Option<i128>);

/// Operators, those that bind the weakest first.
const OPERATORS: [&[Operator]; 8] = [
    &[("||", |a, b| Some(i128::from(a != 0 || b != 0)))],
    &[("&&", |a, b| Some(i128::from(a != 0 && b != 0)))],
    &[("|", |a, b| Some(a | b))],
    &[("&", |a, b| Some(a & b))],
    &[
        ("==", |a, b| Some(i128::from(a == b))),
        ("!=", |a, b| Some(i128::from(a != b))),
        ("<=", |a, b| Some(i128::from(a <= b))),
        (">=", |a, b| Some(i128::from(a >= b))),
        ("<", |a, b| Some(i128::from(a < b))),
        (">", |a, b| Some(i128::from(a > b))),
    ],
    &[
        ("<<", |a, b| a.checked_mul(2_i128.checked_pow(u32::try_from(b).ok()?)?)),
        (">>", |a, b| a.checked_shr(u32::try_from(b).ok()?)),
    ],
    &[("+", i128::checked_add), ("-", i128::checked_sub)],
    &[("*", i128::checked_mul), ("/", i128::checked_div), ("%", i128::checked_rem)],
];

/// Signs, of those that begin alike the longer one first.
const SIGNS: [&str; 20] = [
    "||", "&&", "==", "!=", "<=", ">=", "<<", ">>", "<", ">", "!", "(", ")", "|", "&", "+", "-",
    "*", "/", "%",
];

/// Parentheses and signs within each other: each takes a part of the stack.
const DEPTH_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_those_of_c() {
        let number_of = |name: &str| Ok(if name == "TWO" { 2 } else { 0 });
        let value = |text: &str| evaluate(text, number_of, |name| name == "TWO");
        for (text, expected) in [
            ("0", 0),
            ("0x10 + 010", 24),
            ("TWO", 2),
            ("OTHER", 0),
            ("defined(TWO)", 1),
            ("defined TWO && !defined(OTHER)", 1),
            ("!TWO || OTHER", 0),
            ("TWO == 2 && TWO != 1 && TWO >= 2 && TWO <= 2 && TWO > 1 && TWO < 3", 1),
            ("1 + 2 * 3 - 4 / 2", 5),
            ("(1 + 2) * 3 % 4", 1),
            ("1 << 8 >> 4 | 1", 17),
            ("6 & 3 | 8", 10),
            ("10 - 2 - 3", 5),
            ("-1 + - -1", 0),
            ("1024L+1", 1025),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_wrong_expression_says_what_is_wrong() {
        let deep = "(".repeat(1000);
        for (text, why) in [
            ("", "the expression ends too early"),
            ("1 1", "the expression has `1` where it should end"),
            ("defined(ONE", "`defined(ONE` has no `)`"),
            ("(1", "`)` expected in the expression"),
            ("09", "`09` is no number"),
            ("1 ~ 1", "`~` is not known in an expression"),
            ("1 + *", "a number or a name expected in the expression; found `*`"),
            ("1 / 0", "`1 / 0` has no value"),
            ("1 << 127", "`1 << 127` has no value"),
            ("1 << -1", "`1 << -1` has no value"),
            (&deep, "the expression is nested deeper than 64"),
        ] {
            assert_eq!(evaluate(text, |_| Ok(0), |_| false), Err(why.to_owned()), "{text}");
        }
    }
}
