//! The sections about peers: connections, parts of the protocol, and limits of other
//! implementations.

use std::time::Duration;

use super::limits::{CHUNKS_MAX, RECEIVES_MAX, SEGMENTS_MAX};
use super::table::section;
use crate::access::Access;
use crate::bounded::Bounded;
use crate::check::{self, DAY, HOUR, MS, as_it_is};
use crate::choice::{ReplyChunkUse, VersionChoice};
use crate::text::RawText;

section! {
    /// Limits of and per connection: `[connections]`.
    "connections" ConnectionsSection from RawConnections(raw) {
        /// Connections per shard.
        max: i64 = 8 => max: Bounded<1, 16_384>, check::count;
        /// Connections of one peer, over all shards; 0 is without limit.
        max_per_peer: i64 = 0 => max_per_peer: Bounded<0, 65_536>, check::count;
        /// The maximum of credits granted to one connection, in transmissions.
        credits: i64 = 32 => credits: Bounded<1, 1024>, check::count;
        /// Credits requested on a connection, in transmissions.
        credits_requested: i64 = 32 => credits_requested: Bounded<1, 1024>, check::count;
        /// The maximum of outstanding own calls, per shard; 0 for a server that makes no calls.
        calls_max: i64 = 64 => calls_max: Bounded<0, RECEIVES_MAX>, check::count;
        /// The maximum of transmissions of an own call.
        call_transmissions_max: i64 = 16 => call_transmissions_max: GroupLimit, check::count;
        /// The maximum of transmissions of a reply to an own call (`optxrq_rsbuf`).
        reply_transmissions_max: i64 = 16 => reply_transmissions_max: GroupLimit, check::count;
        /// The maximum of transmissions of a received call (property REQRXLIM).
        request_transmissions_max: i64 = 16 => request_transmissions_max: GroupLimit, check::count;
        /// The maximum of transmissions of an own reply (property RESPSXLIM).
        response_transmissions_max: i64 = 16 => response_transmissions_max: GroupLimit, check::count;
        /// Bytes of the longest RPC message, including placed data.
        rpc_len_max: RawText = "4MiB" => rpc_len_max: Bounded<1024, 1_073_741_824>, check::length;
        /// How long a message may stay incomplete; 1 ms to 1 h.
        group_timeout: RawText = "5s" => group_timeout: Duration, check::duration::<MS, HOUR>;
        /// How long a peer may take to answer a call before its connection is closed; 1 ms to 1 h,
        /// zero is without limit (`None`).
        call_timeout: RawText = "0s"
            => call_timeout: Option<Duration>, check::duration_or_none::<MS, HOUR>;
        /// How long a peer may receive nothing of what it is sent before its connection is closed;
        /// 1 ms to 1 h, zero is without limit (`None`).
        send_timeout: RawText = "30s"
            => send_timeout: Option<Duration>, check::duration_or_none::<MS, HOUR>;
        /// How long a connected peer may send no call before its connection is closed; 1 ms to
        /// 24 h, zero is without limit (`None`).
        idle_timeout: RawText = "10min"
            => idle_timeout: Option<Duration>, check::duration_or_none::<MS, DAY>;
        /// How often a Send is retried when the peer has no Receive; 7 is without limit.
        rnr_retry: i64 = 7 => rnr_retry: Bounded<0, 7>, check::count;
        /// How long to wait for a connection; 1 ms to 1 h.
        connect_timeout: RawText = "5s" => connect_timeout: Duration, check::duration::<MS, HOUR>;
        /// How long a stop waits for open calls; 1 ms to 1 h.
        stop_timeout: RawText = "5s" => stop_timeout: Duration, check::duration::<MS, HOUR>;
    }
    file {
        /// Who may connect: networks, addresses, `uid:` and `gid:` with a number; all if it is empty.
        allow: Vec<String> = Vec::<String>::new();
        /// Who may not connect, though `allow` permits it.
        deny: Vec<String> = Vec::<String>::new();
    }
    fields {
        /// Who may connect.
        access: Access = Access::parse(&raw.allow, &raw.deny);
    }
}

/// A number of transmissions of one message (`wire.md` E40).
pub type GroupLimit = Bounded<1, 64>;

section! {
    /// Parts of the protocol that can be switched off: `[features]`.
    "features" FeaturesSection from RawFeatures(raw) {
        /// Transport properties: CONNPROP and its three companions (`wire.md` P14).
        properties: bool = true => properties: bool, as_it_is;
        /// Send-based placement, in both directions.
        placement: bool = true => placement: bool, as_it_is;
        /// Message continuation, in both directions.
        continuation: bool = true => continuation: bool, as_it_is;
    }
}

section! {
    /// The version of the protocol: `[protocol]`.
    "protocol" ProtocolSection from RawProtocol(raw) {
        /// The version, or negotiation: `auto`, `one` or `two`.
        version: RawText = "auto" => version: VersionChoice, check::word;
        /// How long the first message of version two may stay unanswered before the connection is
        /// closed and the next one uses version one; 1 ms to 1 h.
        negotiation_timeout: RawText = "5s"
            => negotiation_timeout: Duration, check::duration::<MS, HOUR>;
        /// How long the version of a peer is remembered; zero is not at all, at most 24 h.
        version_memory: RawText = "10min" => version_memory: Duration, check::duration::<0, DAY>;
    }
}

section! {
    /// Limits of other implementations that are narrower than the protocol: `[interop]`.
    ///
    /// The defaults suit all known implementations, except where a key names one.
    "interop" InteropSection from RawInterop(raw) {
        /// The maximum of arguments of one call that the peer reads; the others stay in the payload
        /// stream.
        read_chunks_max: i64 = 1 => read_chunks_max: Bounded<1, CHUNKS_MAX>, check::count;
        /// Whether the peer reads only the argument at the end of a call.
        read_chunk_last: bool = false => read_chunk_last: bool, as_it_is;
        /// The maximum of results of one call that the peer writes.
        write_chunks_max: i64 = 1 => write_chunks_max: Bounded<1, CHUNKS_MAX>, check::count;
        /// Whether up to three bytes behind a result in its Write chunk are taken for padding.
        write_chunk_padding: bool = false => write_chunk_padding: bool, as_it_is;
        /// Whether the targets of links are requested in the payload stream.
        links_in_line: bool = false => links_in_line: bool, as_it_is;
        /// The maximum of segments of an offered chunk.
        segments_max: i64 = 16 => segments_max: Bounded<1, SEGMENTS_MAX>, check::count;
        /// When a server uses an offered Reply chunk: `when-needed` or `always`.
        reply_chunk: RawText = "when-needed" => reply_chunk: ReplyChunkUse, check::word;
        /// Whether a call that is read as a whole may also have a Read chunk for an argument.
        long_call_with_chunks: bool = false => long_call_with_chunks: bool, as_it_is;
        /// Whether a Write chunk and a Reply chunk may be offered together.
        write_with_reply: bool = false => write_with_reply: bool, as_it_is;
        /// Whether this side permits remote invalidation by the reply's Send, and uses it if the
        /// peer permits it.
        remote_invalidation: bool = true => remote_invalidation: bool, as_it_is;
    }
}
