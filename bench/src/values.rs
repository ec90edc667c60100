//! Values of options: operations, placements, idle policies.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
// The numbers are those of the procedures.
pub enum Op {
    /// Call without arguments, reply without results
    Null = 0,
    /// The reply returns the bytes of the request
    Echo = 1,
    /// Short request, payload in the reply
    Read = 2,
    /// Payload in the request, short reply
    Write = 3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Placement {
    /// In the payload stream, copied by the application
    Inline,
    /// Placed by Send into segments of the receiver's buffers, without a copy
    Send,
    /// Moved by explicit RDMA: the server reads arguments and writes results; from 4 KiB on
    Rdma,
}

impl Placement {
    /// Whether the data are outside of the payload stream.
    pub fn is_placed(self) -> bool {
        self != Placement::Inline
    }
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Touch {
    /// Nothing
    None,
    /// Reads the first byte of each cache line
    Lines,
    /// Compares every byte
    All,
}

/// What a thread does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Idle {
    /// Keeps polling
    Spin,
    /// Polls for a while, then pauses with growing intervals
    Backoff,
    /// Polls for a while, then sleeps until an event
    Block,
}
