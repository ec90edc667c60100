//! What can be wrong with a configuration: the key, what was given, and what is allowed.

use std::path::PathBuf;

/// Why a configuration was refused. The text is meant for the person who wrote the file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is not TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line in the text, from 1.
        line: usize,
        /// What the TOML reader says.
        message: String,
    },
    /// The file has a key that does not exist, most often a misspelt one.
    #[error("line {line}: {key} = {given}: unknown key; allowed: {allowed}")]
    UnknownKey {
        /// The line in the text, from 1.
        line: usize,
        /// The path of the key, with dots: `receive.placement.count`.
        key: String,
        /// The value beside it.
        given: String,
        /// The keys that exist at this place.
        allowed: String,
    },
    /// A key has a value of another kind, as text where a number belongs.
    #[error("line {line}: {key} = {given}; allowed: {allowed}")]
    Kind {
        /// The line in the text, from 1.
        line: usize,
        /// The path of the key.
        key: String,
        /// The value that was given.
        given: String,
        /// What belongs there.
        allowed: String,
    },
    /// A value is out of its range or has no meaning.
    #[error("{key} = {given}; allowed: {allowed}")]
    Value {
        /// The path of the key.
        key: &'static str,
        /// The value that was given.
        given: String,
        /// The range or the words that are allowed.
        allowed: String,
    },
    /// Values that are fine alone do not add up together.
    #[error("{key} = {given}: {reason}; allowed: {allowed}")]
    Sum {
        /// The path of the key to change first.
        key: &'static str,
        /// The value that was given.
        given: String,
        /// What it collides with, every term with its key.
        reason: String,
        /// What would be allowed with the other values as they are.
        allowed: String,
    },
    /// There is no profile of this name.
    #[error("unknown profile {given:?}; allowed: {allowed}")]
    Profile {
        /// The name that was given.
        given: String,
        /// The names there are.
        allowed: String,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file was read and is refused.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<ConfigError>,
    },
}

impl ConfigError {
    /// The path of the key that is to blame, if it is a key.
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
