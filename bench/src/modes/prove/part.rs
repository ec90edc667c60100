//! The parts of a proof, and what became of each.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum PartOutcome {
    Passed,
    #[strum(serialize = "FAILED")]
    Failed,
    /// It was not run.
    Skipped,
}

/// One of: host, scenarios, latency, rate, bandwidth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    pub name: &'static str,
    pub result: PartOutcome,
    pub seconds: f64,
    /// What was done, in a few words.
    pub what: String,
    /// Why it failed or was not run, and what could not be done of it.
    pub reasons: Vec<String>,
}
