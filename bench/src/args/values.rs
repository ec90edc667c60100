//! What options may be set to: operations, ways, policies, providers.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Over {
    /// The software fabric, within this process
    Fabric,
    /// An RDMA device
    Verbs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Placement {
    /// In the payload stream, copied by the program
    Inline,
    /// Placed by Sends into segments of the receiver's buffers, without a copy by the engine
    Send,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It may
    On,
    /// It may not
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
    /// Polls on
    Spin,
    /// Polls for a while, then pauses longer and longer
    Backoff,
    /// Polls for a while, then sleeps until something happens
    Block,
}
