//! What options may be set to: operations, ways, policies, providers.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// The software fabric, within this process
    Fabric,
    /// An RDMA device
    Verbs,
}

impl Over {
    /// As a configuration names it.
    pub const fn name(self) -> &'static str {
        match self {
            Over::Fabric => "fabric",
            Over::Verbs => "verbs",
        }
    }
}

/// What one call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// A call without arguments and a reply without results
    Null,
    /// The reply brings back the bytes of the request
    Echo,
    /// A short request, data in the reply
    Read,
    /// Data in the request, a short reply
    Write,
}

impl Op {
    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Op::Null => "null",
            Op::Echo => "echo",
            Op::Read => "read",
            Op::Write => "write",
        }
    }
}

/// How data travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// In the payload stream, copied by the program
    Inline,
    /// Placed by Sends into segments of the receiver's buffers, without a copy by the engine
    Send,
}

impl Placement {
    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Inline => "inline",
            Placement::Send => "send",
        }
    }
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It may
    On,
    /// It may not
    Off,
}

/// What the receiver of data does with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Touch {
    /// Nothing
    None,
    /// Reads the first byte of each cache line
    Lines,
    /// Compares every byte
    All,
}

impl Touch {
    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Touch::None => "none",
            Touch::Lines => "lines",
            Touch::All => "all",
        }
    }
}

/// What a thread does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    /// Polls on
    Spin,
    /// Polls for a while, then pauses longer and longer
    Backoff,
    /// Polls for a while, then sleeps until something happens
    Block,
}

impl Idle {
    /// As a configuration file has it.
    pub fn name(self) -> &'static str {
        match self {
            Idle::Spin => "spin",
            Idle::Backoff => "backoff",
            Idle::Block => "block",
        }
    }
}
