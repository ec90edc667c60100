//! Configuration errors: each names the key, the given value and the allowed values.

use std::path::PathBuf;

/// Why a configuration was rejected. The text is for the author of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is not TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line in the text, from 1.
        line: usize,
        /// The message of the TOML parser.
        message: String,
    },
    /// The file contains an unknown key, usually a misspelt one.
    #[error("line {line}: {key} = {given}: unknown key; allowed: {allowed}")]
    UnknownKey {
        /// The line in the text, from 1.
        line: usize,
        /// The path of the key, with dots: `receive.placement.count`.
        key: String,
        /// The given value.
        given: String,
        /// The keys that exist at this place.
        allowed: String,
    },
    /// A value has the wrong type, for example a string instead of a number.
    #[error("line {line}: {key} = {given}; allowed: {allowed}")]
    Kind {
        /// The line in the text, from 1.
        line: usize,
        /// The path of the key.
        key: String,
        /// The value that was given.
        given: String,
        /// The expected type.
        allowed: String,
    },
    /// A value is out of range, or is not one of the allowed words.
    #[error("{key} = {given}; allowed: {allowed}")]
    Value {
        /// The path of the key.
        key: &'static str,
        /// The value that was given.
        given: String,
        /// The range or the words that are allowed.
        allowed: String,
    },
    /// Values that are valid alone contradict each other.
    #[error("{key} = {given}: {reason}; allowed: {allowed}")]
    Sum {
        /// The path of the key to change first.
        key: &'static str,
        /// The value that was given.
        given: String,
        /// What it contradicts: every term with its key.
        reason: String,
        /// The allowed values, given the other values.
        allowed: String,
    },
    /// The profile does not exist.
    #[error("unknown profile {given:?}; allowed: {allowed}")]
    Profile {
        /// The name that was given.
        given: String,
        /// The existing profiles.
        allowed: String,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file was read and rejected.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error in it.
        source: Box<ConfigError>,
    },
}

impl ConfigError {
    /// The path of the wrong key, if the error is about a key.
    pub fn key(&self) -> Option<&str> {
        match self {
            ConfigError::UnknownKey { key, .. } | ConfigError::Kind { key, .. } => Some(key),
            ConfigError::Value { key, .. } | ConfigError::Sum { key, .. } => Some(key),
            ConfigError::File { source, .. } => source.key(),
            ConfigError::Syntax { .. } | ConfigError::Profile { .. } | ConfigError::Read { .. } => {
                None
            }
        }
    }
}

/// Values that contradict each other.
pub(crate) fn sum(
    key: &'static str,
    given: impl ToString,
    reason: String,
    allowed: String,
) -> ConfigError {
    ConfigError::Sum { key, given: given.to_string(), reason, allowed }
}

pub(crate) fn at_most(limit: u32) -> String {
    format!("at most {limit}")
}
