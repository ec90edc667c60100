//! The mirror of a configuration file: it accepts what has the right shape and judges nothing.
//!
//! [`Raw::default`] is the profile `laptop`; a key that a file leaves out keeps that value. To
//! change a configuration in a program, change its `Raw` and check it again:
//!
//! ```
//! use rpcrdma_config::{Config, Raw};
//! let mut raw = Raw::default();
//! raw.receive.inline = "8KiB".into();
//! raw.connections.max = 2;
//! let config = Config::try_from(raw)?;
//! assert_eq!(config.receive().inline_len.value(), 8192);
//! # Ok::<(), rpcrdma_config::ConfigError>(())
//! ```

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::units::Length;

/// A whole file. Every key is described in `docs/configuration.md`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Raw {
    /// Threads and the device they poll.
    pub engine: RawEngine,
    /// How memory is obtained.
    pub memory: RawMemory,
    /// What is received into.
    pub receive: RawReceive,
    /// What is sent from.
    pub send: RawSend,
    /// Limits of and per connection.
    pub connections: RawConnections,
    /// Parts of the protocol that may be switched off.
    pub features: RawFeatures,
    /// Which version of the protocol is spoken.
    pub protocol: RawProtocol,
    /// Data that moves by RDMA Read and Write.
    pub explicit: RawExplicit,
    /// Habits of other implementations.
    pub interop: RawInterop,
    /// The software fabric.
    pub fabric: RawFabric,
    /// Memory for the program that embeds the engine.
    pub app: RawApp,
}

/// `[engine]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawEngine {
    /// `fabric` or `verbs`.
    pub provider: Text,
    /// `auto` or a core list.
    pub cores: Text,
    /// How many shards, one thread each.
    pub shards: i64,
    /// Whether a shard's memory comes from its core's node.
    pub numa_bind: bool,
    /// What a shard does when there is nothing to do.
    pub idle: RawIdle,
}

/// `engine.idle`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawIdle {
    /// `spin`, `backoff` or `block`.
    pub policy: Text,
    /// How long to spin before backing off or blocking: a duration.
    pub spin: Text,
}

/// `[memory]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawMemory {
    /// `1G`, `2M`, `transparent` or `4K`: the rung of the ladder to begin with.
    pub pages: Text,
    /// Whether to lock the memory.
    pub lock: bool,
    /// Whether to touch every page at the start.
    pub prefault: bool,
}

/// `[receive]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawReceive {
    /// The leading segment, for headers and payload: a length.
    pub inline: Text,
    /// The segments that data may be placed into.
    pub placement: RawPlacement,
    /// `auto` or how many Receives a shard keeps posted.
    pub buffers: Text,
    /// `auto` or how many of them are kept for replies to our own calls.
    pub replies: Text,
    /// Placement segments in reserve for loans, per shard.
    pub spares: i64,
}

/// `receive.placement`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawPlacement {
    /// Segments per receive buffer; 0 is none.
    pub count: i64,
    /// Of each segment: a length.
    pub length: Text,
    /// Of each segment's address: a length.
    pub align: Text,
}

/// `[send]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawSend {
    /// Send slots per shard.
    pub slots: i64,
    /// Payload that a slot has room for: a length.
    pub length: Text,
    /// The longest message that is copied into its work request: a length.
    pub inline_max: Text,
    /// One send in so many asks for a completion.
    pub signal_every: i64,
    /// The zeros that padding is gathered from: a length.
    pub zero: Text,
}

/// `[connections]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawConnections {
    /// Connections per shard.
    pub max: i64,
    /// Credits granted to one connection at most.
    pub credits: i64,
    /// Credits asked for on a connection.
    pub credits_requested: i64,
    /// Outstanding calls of our own, per shard.
    pub calls_max: i64,
    /// Transmissions that a call of ours may have.
    pub call_transmissions_max: i64,
    /// Transmissions that a reply to us may have.
    pub reply_transmissions_max: i64,
    /// Transmissions that a request to us may have.
    pub request_transmissions_max: i64,
    /// Transmissions that a reply of ours may have.
    pub response_transmissions_max: i64,
    /// The longest RPC message with everything that was placed: a length.
    pub rpc_len_max: Text,
    /// How long a message may stay incomplete: a duration.
    pub group_timeout: Text,
    /// How long a peer may owe an answer; `0s` is for ever: a duration.
    pub call_timeout: Text,
    /// How long to wait for a connection: a duration.
    pub connect_timeout: Text,
    /// How long a stop waits for what is outstanding: a duration.
    pub stop_timeout: Text,
}

/// `[features]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawFeatures {
    /// Transport properties.
    pub properties: bool,
    /// Send-based placement.
    pub placement: bool,
    /// Message continuation.
    pub continuation: bool,
}

/// `[protocol]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawProtocol {
    /// `auto`, `one` or `two`.
    pub version: Text,
    /// How long the first message of version two may stay without an answer: a duration.
    pub negotiation_timeout: Text,
    /// How long it is remembered which version a peer speaks; `0s` is not at all: a duration.
    pub version_memory: Text,
}

/// `[explicit]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawExplicit {
    /// Whether data moves by RDMA Read and Write at all.
    pub enabled: bool,
    /// `auto`, `windows`, `registration` or `static-insecure`.
    pub exposure: Text,
    /// `auto` or memory windows per shard.
    pub windows: Text,
    /// Calls whose data are being read at one time, per shard.
    pub fetches: i64,
    /// Registered buffers for what is read and written.
    pub buffers: RawBulk,
}

/// `[interop]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawInterop {
    /// Arguments of one call that the peer may be asked to read.
    pub read_chunks_max: i64,
    /// Whether only the argument that ends a call may be read by the peer.
    pub read_chunk_last: bool,
    /// Results of one call that the peer may be asked to write.
    pub write_chunks_max: i64,
    /// Segments that one of the chunks we offer may have.
    pub segments_max: i64,
    /// `when-needed` or `always`.
    pub reply_chunk: Text,
    /// Whether a call that is read as a whole may have an argument read beside it.
    pub long_call_with_chunks: bool,
    /// Whether a Write chunk and a Reply chunk may be offered together.
    pub write_with_reply: bool,
    /// Whether memory may be invalidated by the Send that answers.
    pub remote_invalidation: bool,
}

/// `[fabric]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawFabric {
    /// One way from sender to receiver: a duration.
    pub delay: Text,
    /// Messages on their way on one queue pair, per direction.
    pub ring_slots: i64,
    /// How often a Send is tried again when the peer has no Receive; 7 is without end.
    pub rnr_retry: i64,
}

/// `[app]`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawApp {
    /// Registered buffers for bulk data.
    pub bulk: RawBulk,
}

/// `app.bulk`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawBulk {
    /// Buffers per shard; 0 is none.
    pub count: i64,
    /// Of each: a length.
    pub length: Text,
}

/// A value that is judged later: a word, a length, a duration, a list or `auto`.
///
/// A bare number or boolean in the file is kept as it is written, so that the error about it can
/// name the key and say which unit is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Text(String);

impl Text {
    /// A length in bytes, as a file would have it.
    pub fn length(bytes: u64) -> Text {
        Text(Length(bytes).to_string())
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(text)
    }
}

/// A bare number, as in `buffers = 256`.
impl From<u32> for Text {
    fn from(number: u32) -> Text {
        Text(number.to_string())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl de::Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }
}

impl Default for RawEngine {
    fn default() -> Self {
        Self {
            provider: "fabric".into(),
            cores: "auto".into(),
            shards: 1,
            numa_bind: true,
            idle: RawIdle::default(),
        }
    }
}

impl Default for RawIdle {
    fn default() -> Self {
        Self { policy: "block".into(), spin: "1ms".into() }
    }
}

impl Default for RawMemory {
    fn default() -> Self {
        Self { pages: "transparent".into(), lock: false, prefault: true }
    }
}

impl Default for RawReceive {
    fn default() -> Self {
        Self {
            inline: "4KiB".into(),
            placement: RawPlacement::default(),
            buffers: "auto".into(),
            replies: "auto".into(),
            spares: 64,
        }
    }
}

impl Default for RawPlacement {
    fn default() -> Self {
        Self { count: 4, length: "16KiB".into(), align: "4KiB".into() }
    }
}

impl Default for RawSend {
    fn default() -> Self {
        Self {
            slots: 256,
            length: "8KiB".into(),
            inline_max: "192B".into(),
            signal_every: 64,
            zero: "64KiB".into(),
        }
    }
}

impl Default for RawConnections {
    fn default() -> Self {
        Self {
            max: 8,
            credits: 32,
            credits_requested: 32,
            calls_max: 64,
            call_transmissions_max: 16,
            reply_transmissions_max: 16,
            request_transmissions_max: 16,
            response_transmissions_max: 16,
            rpc_len_max: "4MiB".into(),
            group_timeout: "5s".into(),
            call_timeout: "1min".into(),
            connect_timeout: "5s".into(),
            stop_timeout: "5s".into(),
        }
    }
}

impl Default for RawFeatures {
    fn default() -> Self {
        Self { properties: true, placement: true, continuation: true }
    }
}

impl Default for RawProtocol {
    fn default() -> Self {
        Self {
            version: "auto".into(),
            negotiation_timeout: "5s".into(),
            version_memory: "10min".into(),
        }
    }
}

impl Default for RawExplicit {
    fn default() -> Self {
        Self {
            enabled: true,
            exposure: "auto".into(),
            windows: "auto".into(),
            fetches: 64,
            buffers: RawBulk { count: 16, length: "512KiB".into() },
        }
    }
}

impl Default for RawInterop {
    fn default() -> Self {
        Self {
            read_chunks_max: 1,
            read_chunk_last: false,
            write_chunks_max: 1,
            segments_max: 16,
            reply_chunk: "when-needed".into(),
            long_call_with_chunks: false,
            write_with_reply: false,
            remote_invalidation: true,
        }
    }
}

impl Default for RawFabric {
    fn default() -> Self {
        Self { delay: "0us".into(), ring_slots: 256, rnr_retry: 7 }
    }
}

impl Default for RawBulk {
    fn default() -> Self {
        Self { count: 16, length: "1MiB".into() }
    }
}
