//! The built-in profiles. A comment in each explains the trade-off of every key.

use crate::error::ConfigError;

/// Name and text of every profile.
pub const PROFILES: [(&str, &str); 4] = [
    ("latency", include_str!("../profiles/latency.toml")),
    ("storage", include_str!("../profiles/storage.toml")),
    ("storage-large", include_str!("../profiles/storage-large.toml")),
    ("laptop", include_str!("../profiles/laptop.toml")),
];

/// The text of a profile.
pub(crate) fn text(name: &str) -> Result<&'static str, ConfigError> {
    let found = PROFILES.iter().find(|(profile, _)| *profile == name);
    found.map(|(_, text)| *text).ok_or_else(|| ConfigError::Profile {
        given: name.to_owned(),
        allowed: PROFILES.map(|(profile, _)| profile).join(", "),
    })
}
