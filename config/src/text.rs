//! A value as text, before it is checked.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::units::Length;

/// A value that is checked later: a word, a length, a duration, a list or `auto`.
///
/// A bare number or boolean in the file is kept as text, so that its error can name the key and the
/// missing unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RawText(String);

impl RawText {
    /// A length in bytes, in the notation of a file.
    pub fn length(bytes: u64) -> RawText {
        RawText(Length(bytes).to_string())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for RawText {
    fn from(text: &str) -> RawText {
        RawText(text.to_owned())
    }
}

impl From<String> for RawText {
    fn from(text: String) -> RawText {
        RawText(text)
    }
}

/// A bare number, as in `buffers = 256`.
impl From<u32> for RawText {
    fn from(number: u32) -> RawText {
        RawText(number.to_string())
    }
}

/// A switch, as in `lock = true`.
impl From<bool> for RawText {
    fn from(is_on: bool) -> RawText {
        RawText(is_on.to_string())
    }
}

impl fmt::Display for RawText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RawText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawText, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl de::Visitor<'_> for TextVisitor {
    type Value = RawText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RawText, E> {
        Ok(RawText(text.to_owned()))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<RawText, E> {
        Ok(RawText(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<RawText, E> {
        Ok(RawText(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<RawText, E> {
        Ok(RawText(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<RawText, E> {
        Ok(RawText(value.to_string()))
    }
}
