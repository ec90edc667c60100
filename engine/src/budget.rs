//! The budget: every queue depth and pool size of a shard, derived from the configuration.
//!
//! No resource runs out unexpectedly: anything beyond these sums is refused with an error.

use rpcrdma_config::section::Exposure;
use rpcrdma_config::{Config, DeviceLimits, ReplyChunkUse, VersionChoice};
use rpcrdma_proto::{self as proto, InlinePlan, Interop, Settings, Versions};
use rpcrdma_xdr::property::RtrSupport;

use crate::error::SetupError;
use crate::provider::{DeviceCaps, QueueAttr};
use crate::state::io::{Depths, REFILL_MAX};
use crate::state::lane::messages::SLOTS_MAX;
use crate::state::rdma::exposures::TARGETS_MAX;
use crate::state::rdma::read_keys::LOANS_MAX;

/// The resources of one shard.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    /// Receive buffers, all of them posted.
    pub receives: u32,
    /// Of these, for calls of peers: the sum of all grants.
    pub grants: u32,
    /// Of these, for replies to own calls.
    pub replies: u32,
    /// Send slots.
    pub slots: u32,
    /// Messages: those with a slot, and those that are not Sends.
    pub messages: u32,
    /// Own calls outstanding.
    pub calls: u32,
    /// Connections.
    pub peers: u32,
    /// The maximum of pieces of an accepted message.
    pub pieces: usize,
    /// Calls that can be deferred: as many as can be open.
    pub tickets: u32,
    /// Gather entries of one work request.
    pub gather: u32,
    /// Scatter entries of one RDMA Read.
    pub scatter: u32,
    /// For the queues.
    pub queues: QueueAttr,
    /// For posting.
    pub depths: Depths,
    /// For the protocol.
    pub settings: Settings,
    /// For explicit RDMA.
    pub explicit: Explicit,
}

/// The resources of explicit RDMA; all 0 if it is off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Explicit {
    /// The way of exposing memory; `None` if none is exposed.
    pub exposure: Option<Exposure>,
    /// Memory windows.
    pub windows: u32,
    /// Own calls that have memory exposed at one time.
    pub exposures: u32,
    /// Calls of peers whose data is fetched: as many as can be open.
    pub fetches: u32,
    /// Of these, the maximum at one time.
    pub reading_max: u32,
    /// Whether the buffers of Reads are registered for the peer during the Reads.
    pub reads_expose: bool,
    /// Buffers for RDMA Reads and Writes.
    pub rdma_buffer_count: u32,
    /// Bytes of each.
    pub rdma_buffer_len: u32,
}

impl Budget {
    /// Computes the sums, and checks them against the device.
    pub fn new(config: &Config, caps: &DeviceCaps) -> Result<Budget, SetupError> {
        config
            .check_device(&DeviceLimits {
                recv_sge: caps.recv_sge,
                srq_depth: caps.srq_depth,
                message_len: caps.message_len,
            })
            .map_err(|error| SetupError::Config(error.to_string()))?;
        let (receive, send, connections) = (config.receive(), config.send(), config.connections());
        // Besides the granted ones, as many as a turn may hold before it refills.
        let receives = receive.buffers.value() + REFILL_MAX as u32;
        within("Receives of a shared receive queue", receives.into(), caps.srq_depth, caps)?;
        let grants = config.grants_max();
        let peers = connections.max.value();
        let calls = connections.calls_max.value();
        let explicit = explicit(config, grants, caps)?;
        let slots = send.slots.value();
        // Messages other than Sends have no slot: invalidations of rights, and Reads of the data of
        // calls, each of which has a message only while it is read.
        let messages = slots + explicit.exposures + explicit.fetches.min(explicit.reading_max);
        let signal_every = send.signal_every.value();
        // Signaling is early enough if half of the queue is then free.
        let send_depth = (2 * signal_every).max(SEND_DEPTH_MIN).min(caps.send_depth);
        let structure = *config.recv_structure();
        let segments = structure.segment_count() as usize;
        let settings = settings(config, caps);
        let transmissions = settings.request_rx_limit.max(settings.response_rx_max) as usize;
        let completions = u64::from(receives) + u64::from(peers) * u64::from(send_depth);
        within("entries of a completion queue", completions, caps.cq_depth, caps)?;
        let cq_depth = completions as u32;
        Ok(Budget {
            receives,
            grants,
            replies: receive.replies.value(),
            slots,
            messages,
            calls,
            peers,
            pieces: transmissions * segments + LOANS_MAX.max(TARGETS_MAX),
            tickets: grants + calls,
            // The maximum of the device: a message that needs more is refused.
            gather: caps.send_sge,
            scatter: caps.read_sge.min(caps.send_sge).max(1),
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
                // A send without a signal keeps its slots until a later one is signaled. A message
                // that needs the maximum of slots must not wait for a send that never comes.
                low_water: (slots as usize / 2)
                    .min((grants + calls) as usize)
                    .max(SLOTS_MAX.min(slots as usize)),
            },
            settings,
            explicit,
        })
    }
}

/// What a configuration takes of a device for each shard, by the sums that its start uses.
///
/// Objects of a device are limited for the whole device, that is, for all shards and programs that
/// use it; the lengths of its queues are limited for each queue.
///
/// ```
/// use rpcrdma::{Config, Fabric, Provider, ShardNeeds};
///
/// let config = Config::profile("storage")?;
/// let needs = ShardNeeds::new(&config, Fabric::new().caps())?;
/// assert_eq!(needs.queue_pairs, 256);
/// assert_eq!(needs.completions, needs.receives + 256 * needs.sends);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardNeeds {
    /// Queue pairs, at most: `connections.max`.
    pub queue_pairs: u32,
    /// Receives of the shared receive queue.
    pub receives: u32,
    /// Of these, those that are granted as credits.
    pub credits: u32,
    /// Work requests of the send queue of each queue pair.
    pub sends: u32,
    /// Entries of the completion queue: every Receive and every work request may be there.
    pub completions: u32,
    /// Memory windows.
    pub windows: u32,
    /// Bytes of registered memory, without headers and before they are rounded up to pages:
    /// [`Config::shard_memory_len`].
    pub memory: u64,
}

impl ShardNeeds {
    /// The sums of one shard.
    ///
    /// # Errors
    /// If a queue or the number of windows exceeds the limits of the device: what the start of a
    /// shard fails with.
    pub fn new(config: &Config, caps: &DeviceCaps) -> Result<ShardNeeds, SetupError> {
        let budget = Budget::new(config, caps)?;
        Ok(ShardNeeds {
            queue_pairs: budget.queues.qp_max,
            receives: budget.receives,
            credits: budget.grants,
            sends: budget.queues.send_depth,
            completions: budget.queues.cq_depth,
            windows: budget.explicit.windows,
            memory: config.shard_memory_len(),
        })
    }
}

/// Checks that a sum is within the limits of the device.
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

/// The way of exposing memory to a peer, if any. A way that exposes it to every connection of the
/// device is used only if the configuration names it.
fn exposure(config: &Config, caps: &DeviceCaps) -> Option<Exposure> {
    let explicit = config.explicit();
    match explicit.exposure {
        _ if !explicit.enabled => None,
        Exposure::Auto => (caps.windows > 0).then_some(Exposure::Windows),
        named => Some(named),
    }
}

/// Whether the device reads the data of calls. Where a Read opens its buffer to peers, it opens it
/// to every connection of the device, which needs the same configuration as for own calls.
fn reads(config: &Config, caps: &DeviceCaps) -> bool {
    let ways = [Exposure::Registration, Exposure::StaticInsecure];
    let is_allowed = !caps.reads_expose || ways.contains(&config.explicit().exposure);
    caps.rd_atomic > 0 && is_allowed
}

/// The resources of explicit RDMA.
fn explicit(config: &Config, grants: u32, caps: &DeviceCaps) -> Result<Explicit, SetupError> {
    let explicit = config.explicit();
    let exposure = exposure(config, caps);
    let nothing = Explicit {
        exposure,
        windows: 0,
        exposures: 0,
        fetches: 0,
        reading_max: 0,
        reads_expose: false,
        rdma_buffer_count: 0,
        rdma_buffer_len: explicit.buffers.len.value(),
    };
    if !explicit.enabled {
        return Ok(nothing);
    }
    let calls = config.connections().calls_max.value();
    let windows = match exposure {
        Some(Exposure::Windows) => {
            let wanted = explicit.windows.value();
            let least = if explicit.derives_windows { 1 } else { wanted.max(1) };
            within("memory windows (explicit.windows)", least.into(), caps.windows, caps)?;
            wanted.min(caps.windows)
        }
        _ => 0,
    };
    let exposures = match exposure {
        None => 0,
        Some(Exposure::Windows) => calls.min(windows),
        Some(_) => calls,
    };
    // RFC 5666 6.2: reject requests that need a Read if the device performs none.
    let reading_max = if reads(config, caps) { explicit.fetches.value() } else { 0 };
    let is_static = exposure == Some(Exposure::StaticInsecure) && exposures > 0;
    Ok(Explicit {
        // Without own calls there is nothing to expose, and no memory is prepared for it.
        exposure: exposure.filter(|_| exposures > 0),
        windows: if exposures > 0 { windows } else { 0 },
        exposures,
        fetches: if reading_max > 0 { grants } else { 0 },
        reading_max,
        reads_expose: caps.reads_expose && reading_max > 0 && !is_static,
        rdma_buffer_count: explicit.buffers.count.value(),
        ..nothing
    })
}

/// The protocol settings of the configuration.
pub(crate) fn settings(config: &Config, caps: &DeviceCaps) -> Settings {
    let (connections, features) = (config.connections(), config.features());
    let mut settings = Settings::new(*config.recv_structure());
    let explicit = config.explicit();
    settings.explicit = explicit.enabled && explicit.fetches.value() > 0 && reads(config, caps);
    // wire.md P12: a Send of the peer can invalidate only windows.
    settings.requester_invalidation = explicit.enabled
        && config.interop().remote_invalidation
        && explicit.windows.value() > 0
        && exposure(config, caps) == Some(Exposure::Windows);
    settings.credits_requested = connections.credits_requested.value();
    settings.credits_granted_max = connections.credits.value();
    settings.call_count_max = connections.call_transmissions_max.value();
    settings.response_rx_max = connections.reply_transmissions_max.value();
    settings.request_rx_limit = connections.request_transmissions_max.value();
    settings.response_sx_limit = connections.response_transmissions_max.value();
    settings.rpc_len_max = connections.rpc_len_max.value();
    settings.properties = features.properties;
    settings.placement = features.placement;
    settings.interop = interop(config);
    settings.versions = match config.protocol().version {
        VersionChoice::Auto => Versions::all(),
        VersionChoice::One => Versions::ONE,
        VersionChoice::Two => Versions::TWO,
    };
    // One slot and its header: more is sent only to peers that state their buffers.
    settings.inline_send_max = config.send().payload_len.value() + InlinePlan::HEADER_LEN;
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

/// Limits of other implementations.
fn interop(config: &Config) -> Interop {
    let given = config.interop();
    Interop {
        read_chunks_max: given.read_chunks_max.value(),
        read_chunk_last: given.read_chunk_last,
        write_chunks_max: given.write_chunks_max.value(),
        write_chunk_padding: given.write_chunk_padding,
        links_in_line: given.links_in_line,
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
    use crate::fabric::Fabric;
    use crate::provider::Provider;

    #[test]
    fn interop_keys_reach_the_protocol() {
        let fabric = Fabric::new();
        let caps = fabric.caps();
        assert_eq!(settings(&Config::default(), caps).interop, Interop::default());
        let text = "[interop]\nread_chunks_max = 2\nread_chunk_last = true\nwrite_chunks_max = 3\nsegments_max = 4\n\
                    reply_chunk = \"always\"\nlong_call_with_chunks = true\n\
                    write_with_reply = true\nremote_invalidation = false\n\
                    write_chunk_padding = true\nlinks_in_line = true\n";
        let config = Config::parse(text).expect("all keys are known");
        let given = settings(&config, caps).interop;
        let numbers = [given.read_chunks_max, given.write_chunks_max, given.segments_max];
        assert_eq!(numbers, [2, 3, 4]);
        assert_eq!(given.reply_chunk, proto::ReplyChunkUse::Always);
        assert!(given.read_chunk_last && given.long_call_with_chunks && given.write_with_reply);
        assert!(!given.remote_invalidation && given.write_chunk_padding && given.links_in_line);
    }

    #[test]
    fn reads_that_expose_their_buffers_are_made_if_that_is_configured() {
        let caps = DeviceCaps { reads_expose: true, windows: 0, ..Fabric::new().caps().clone() };
        for (way, reads, by_keys) in
            [("auto", false, false), ("registration", true, true), ("static-insecure", true, false)]
        {
            let config = Config::parse(&format!("[explicit]\nexposure = \"{way}\"\n"));
            let budget = Budget::new(&config.expect("it is right"), &caps).expect("a budget");
            let Explicit { reading_max, fetches, reads_expose, .. } = budget.explicit;
            assert_eq!(
                (reading_max > 0, fetches > 0, reads_expose),
                (reads, reads, by_keys),
                "{way}"
            );
            assert_eq!(budget.settings.explicit, reads, "{way}: as stated to the peer");
        }
    }

    #[test]
    fn a_device_that_makes_no_reads_fetches_no_calls() {
        let mut caps = Fabric::new().caps().clone();
        let budget = Budget::new(&Config::default(), &caps).expect("all of it is there");
        assert!(budget.settings.explicit && budget.explicit.fetches > 0);
        caps.rd_atomic = 0;
        let budget = Budget::new(&Config::default(), &caps).expect("it is not needed");
        assert!(!budget.settings.explicit && budget.explicit.fetches == 0);
    }
}
