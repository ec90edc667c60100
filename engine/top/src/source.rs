//! The source: the process that is watched, over HTTP.

use std::error::Error;
use std::time::{Duration, Instant};

use ureq::Agent;

use crate::samples::{self, Sample};

/// Where metrics come from.
#[derive(Debug, Clone)]
pub struct Source {
    agent: Agent,
    url: String,
}

/// All metrics at one moment.
#[derive(Debug, Clone)]
pub struct Scrape {
    pub at: Instant,
    pub samples: Vec<Sample>,
}

impl Source {
    pub fn new(url: String) -> Source {
        // Not through a proxy: what is watched is near.
        let config = Agent::config_builder().timeout_global(Some(TIME_MAX)).proxy(None).build();
        Source { agent: config.into(), url }
    }

    /// Where the metrics are.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Looks once.
    ///
    /// # Errors
    /// If there is no answer in time, or it is no metrics.
    pub fn scrape(&self) -> Result<Scrape, Box<dyn Error + Send + Sync>> {
        let mut answer = self.agent.get(&self.url).call()?;
        let text = answer.body_mut().with_config().limit(LEN_MAX).read_to_string()?;
        Ok(Scrape { at: Instant::now(), samples: samples::parse(&text)? })
    }
}

/// For connection, request and answer.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const LEN_MAX: u64 = 64 << 20;
