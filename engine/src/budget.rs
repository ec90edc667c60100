//! Every depth and count of a shard, summed from the configuration, with the reason beside each.
//!
//! After this nothing runs out by surprise: what is not in these sums is refused with an error.

use rpcrdma_config::{Config, Limits, ReplyChunkUse};
use rpcrdma_proto::{self as proto, Interop, Settings};
use rpcrdma_xdr::property::RtrSupport;

use crate::error::SetupError;
use crate::io::{Depths, REFILL_MAX};
use crate::provider::{DeviceCaps, QueueAttr};
use crate::shard::message::SLOTS_MAX;

/// What one shard is made of.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    /// Receive buffers, all of them posted.
    pub receives: u32,
    /// Of these, for calls of peers: the sum of all grants.
    pub grants: u32,
    /// Of these, for replies to own calls.
    pub replies: u32,
    /// Send slots, and messages: each has at least one slot.
    pub messages: u32,
    /// Own calls outstanding.
    pub calls: u32,
    /// Connections.
    pub peers: u32,
    /// Pieces that the largest message that is accepted can lie in.
    pub pieces: usize,
    /// Calls that can be deferred: no more than can be open.
    pub tickets: u32,
    /// Gather entries of one work request.
    pub gather: u32,
    /// For the queues.
    pub queues: QueueAttr,
    /// For posting.
    pub depths: Depths,
    /// For the protocol.
    pub settings: Settings,
}

impl Budget {
    /// Adds everything up, and checks it against the device.
    pub fn new(config: &Config, caps: &DeviceCaps) -> Result<Budget, SetupError> {
        config
            .check_device(&Limits {
                recv_sge: caps.recv_sge,
                srq_depth: caps.srq_depth,
                message_len: caps.message_len,
            })
            .map_err(|error| SetupError::Config(error.to_string()))?;
        let (receive, send, connections) = (config.receive(), config.send(), config.connections());
        // Beside those that were granted, as many as a turn may hold before it refills.
        let receives = receive.buffers.value() + REFILL_MAX as u32;
        within("Receives of a shared receive queue", receives.into(), caps.srq_depth, caps)?;
        let grants = config.grants_max();
        let peers = connections.max.value();
        let calls = connections.calls_max.value();
        let messages = send.slots.value();
        let signal_every = send.signal_every.value();
        // A work request is signaled in time if half of the queue is left when it is.
        let send_depth = (2 * signal_every).max(SEND_DEPTH_MIN).min(caps.send_depth);
        let structure = *config.recv_structure();
        let segments = structure.segment_count() as usize;
        let settings = settings(config);
        let transmissions = settings.request_rx_limit.max(settings.response_rx_max) as usize;
        let completions = u64::from(receives) + u64::from(peers) * u64::from(send_depth);
        within("entries of a completion queue", completions, caps.cq_depth, caps)?;
        let cq_depth = completions as u32;
        Ok(Budget {
            receives,
            grants,
            replies: receive.replies.value(),
            messages,
            calls,
            peers,
            pieces: transmissions * segments,
            tickets: grants + calls,
            // All that the device has: a message that needs more of them is refused.
            gather: caps.send_sge,
            queues: QueueAttr {
                srq_depth: receives,
                cq_depth,
                qp_max: peers,
                send_depth,
                send_sge: caps.send_sge,
                recv_sge: segments as u32,
            },
            depths: Depths {
                send_depth,
                signal_every: signal_every.min(send_depth / 2),
                inline_len: send.inline_max.value().min(caps.inline_len),
                // A send without a signal keeps its slots until another has one. Whoever needs as
                // many slots as one message can have must not wait for a send that never comes.
                low_water: (messages as usize / 2)
                    .min((grants + calls) as usize)
                    .max(SLOTS_MAX.min(messages as usize)),
            },
            settings,
        })
    }
}

/// Whether a sum stays within what the device has.
fn within(
    what: &'static str,
    needed: u64,
    limit: u32,
    caps: &DeviceCaps,
) -> Result<(), SetupError> {
    let limit = limit.into();
    match needed <= limit {
        true => Ok(()),
        false => Err(SetupError::Limit { what, needed, limit, device: caps.name.clone() }),
    }
}

/// What the protocol is told of the configuration.
fn settings(config: &Config) -> Settings {
    let (connections, features) = (config.connections(), config.features());
    let mut settings = Settings::new(*config.recv_structure());
    settings.explicit = false;
    settings.credits_requested = connections.credits_requested.value();
    settings.credits_granted_max = connections.credits.value();
    settings.call_count_max = connections.call_transmissions_max.value();
    settings.response_rx_max = connections.reply_transmissions_max.value();
    settings.request_rx_limit = connections.request_transmissions_max.value();
    settings.response_sx_limit = connections.response_transmissions_max.value();
    settings.rpc_len_max = connections.rpc_len_max.value();
    settings.properties = features.properties;
    settings.interop = interop(config);
    settings.rtr = RtrSupport::XREQ | RtrSupport::XRESP | RtrSupport::XCONT;
    if !features.continuation {
        settings.rtr.remove(RtrSupport::XCONT);
        settings.call_count_max = 1;
        settings.response_rx_max = 1;
        settings.request_rx_limit = 1;
        settings.response_sx_limit = 1;
    }
    if !features.placement && !features.continuation {
        settings.rtr = RtrSupport::empty();
    }
    settings
}

/// What other implementations can take.
fn interop(config: &Config) -> Interop {
    let given = config.interop();
    Interop {
        read_chunks_max: given.read_chunks_max.value(),
        read_chunk_last: given.read_chunk_last,
        write_chunks_max: given.write_chunks_max.value(),
        segments_max: given.segments_max.value(),
        long_call_with_chunks: given.long_call_with_chunks,
        write_with_reply: given.write_with_reply,
        reply_chunk: match given.reply_chunk {
            ReplyChunkUse::WhenNeeded => proto::ReplyChunkUse::WhenNeeded,
            ReplyChunkUse::Always => proto::ReplyChunkUse::Always,
        },
        remote_invalidation: given.remote_invalidation,
    }
}

/// Work requests of the smallest send queue.
const SEND_DEPTH_MIN: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_other_implementations_reaches_the_protocol() {
        assert_eq!(settings(&Config::default()).interop, Interop::default());
        let text = "[interop]\nread_chunks_max = 2\nread_chunk_last = true\nwrite_chunks_max = 3\nsegments_max = 4\n\
                    reply_chunk = \"always\"\nlong_call_with_chunks = true\n\
                    write_with_reply = true\nremote_invalidation = false\n";
        let given = settings(&Config::parse(text).expect("all keys are known")).interop;
        let numbers = [given.read_chunks_max, given.write_chunks_max, given.segments_max];
        assert_eq!(numbers, [2, 3, 4]);
        assert_eq!(given.reply_chunk, proto::ReplyChunkUse::Always);
        assert!(given.read_chunk_last && given.long_call_with_chunks && given.write_with_reply);
        assert!(!given.remote_invalidation);
    }
}
