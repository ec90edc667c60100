//! Counters of a shard: written only by its thread, readable from any thread.

pub(crate) mod inspection;
pub mod latency;
pub mod report;
pub(crate) mod sampling;
pub mod tally;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

/// One counter. It has one writer, which uses a plain load and store.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `n` more. Only the owning shard calls this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The count so far.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// What a shard has counted since it started.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[doc = $doc])* pub $name: Counter,)*
        }

        /// The counters of a shard at one moment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Snapshot {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Reads every counter, one after the other.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot { $($name: self.$name.count(),)* }
            }
        }

        impl Snapshot {
            /// Name, description and value of every counter, in the order of declaration.
            #[cfg(feature = "metrics")]
            pub(crate) fn described(
                &self,
            ) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
                [$((stringify!($name), concat!($($doc),*), self.$name),)*].into_iter()
            }

            /// Name and value of every counter, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Transmissions received.
    transmissions_received,
    /// Bytes of these transmissions, headers and placed data included.
    bytes_received,
    /// Transmissions sent.
    transmissions_sent,
    /// Work requests posted inline: copied while posting.
    transmissions_sent_inline,
    /// Calls from `post_send`: doorbells.
    doorbells,
    /// Completions polled, of Receives and of signaled sends.
    completions,
    /// Calls delivered to the handler. Each is open, answered, rejected or left unanswered:
    /// `replies_sent`, `refusals_sent` and `calls_unanswered` count these.
    calls_received,
    /// Calls that arrived while the shard stopped: not delivered and not answered.
    calls_dropped,
    /// Calls not delivered for lack of resources, and answered with an error.
    calls_rejected,
    /// Replies sent, deferred ones included.
    replies_sent,
    /// Calls answered without a reply of the program: the handler rejected the call, its reply could
    /// not be sent, or its ticket was dropped. The caller got RDMA_ERROR, or for a dropped ticket a
    /// reply that states SYSTEM_ERR.
    refusals_sent,
    /// Of `refusals_sent`: the handler rejected the call.
    refusals_handler,
    /// Of `refusals_sent`: the reply could not be sent.
    refusals_unsent,
    /// Of `refusals_sent`: the ticket of the call was dropped.
    refusals_dropped,
    /// Calls without an answer when their connection ended or their shard stopped.
    calls_unanswered,
    /// Calls sent: open calls plus `calls_completed`.
    calls_sent,
    /// Calls completed, failures included.
    calls_completed,
    /// Calls completed with an error.
    calls_failed,
    /// Of `calls_failed`: the connection ended.
    failed_lost,
    /// Of `calls_failed`: the peer answered with an error.
    failed_rejected,
    /// Of `calls_failed`: the peer refused the form of the call, and has not executed it.
    failed_form,
    /// Of `calls_failed`: the reply violated a rule.
    failed_reply,
    /// Of `calls_failed`: the reply arrived, and the call's memory was lost.
    failed_memory,
    /// Of `calls_failed`: the deadline passed.
    failed_deadline,
    /// Of `calls_failed`: the program cancelled the call.
    failed_cancelled,
    /// Calls that exceeded their deadline, including calls not sent.
    call_deadlines,
    /// Calls cancelled by the program, including calls not sent.
    calls_cancelled,
    /// Replies, and errors, that arrived after their call had ended.
    replies_late,
    /// Calls not sent because the peer's credits were used up.
    calls_not_sent_credits,
    /// Calls not sent because this side had no free slot, buffer or Receive.
    calls_not_sent_local,
    /// Groups of more than one transmission completed, in either direction.
    groups_completed,
    /// Bytes received in these groups; part of `bytes_received`.
    bytes_continued,
    /// Bytes that peers have placed in segments of receive buffers, in messages delivered; part of
    /// `bytes_received`.
    bytes_placed,
    /// RDMA Reads posted for calls of peers.
    rdma_reads,
    /// Bytes of these RDMA Reads.
    bytes_read,
    /// RDMA Writes posted for replies.
    rdma_writes,
    /// Bytes of these RDMA Writes.
    bytes_written,
    /// Pieces of memory exposed to peers for own calls.
    exposures,
    /// Rights invalidated by own work requests; peers invalidated the others.
    invalidations,
    /// Segments that a handler or client took out of a receive buffer.
    segments_taken,
    /// Segments that a handler or client asked for while the reserve was empty.
    segments_not_taken,
    /// Transmissions ignored, for any reason that the protocol permits.
    transmissions_ignored,
    /// Violations by peers that were reported to them. Rejected calls do not count.
    violations,
    /// Violations not reported, and requests not answered, because the peer has not accepted too
    /// many earlier messages.
    violations_unreported,
    /// Errors reported by peers.
    errors_reported_by_peers,
    /// Connections established.
    connections_established,
    /// Connections established in version one.
    connections_version_one,
    /// Connections established in version two.
    connections_version_two,
    /// Peers that answered version two with ERR_VERS: version one follows on the same connection.
    fallbacks_error,
    /// Peers that did not answer version two: reconnected in version one.
    fallbacks_silence,
    /// Connections lost over the first message in version two: reconnected in version one.
    fallbacks_loss,
    /// Connections begun in version one because the peer's version was cached.
    versions_remembered,
    /// Peers that support none of this side's versions.
    versions_refused,
    /// Peers that support version two without properties.
    properties_refused,
    /// Connections that ended because the peer did not answer a call in time.
    call_timeouts,
    /// Connections that ended because the peer accepted no sent message in time.
    send_timeouts,
    /// Connections that ended because data of the peer's calls did not arrive in time.
    read_timeouts,
    /// Connections that ended because the peer did not complete opening in time.
    opening_timeouts,
    /// Connections that ended because the peer left a message incomplete for too long.
    group_timeouts,
    /// Connections made by the peer that ended because it sent no call for too long.
    idle_timeouts,
    /// Connections that ended.
    connections_closed,
    /// Connection requests rejected by the handler or by a stopping shard.
    connections_not_admitted,
    /// Connections rejected because the shard was full.
    connections_rejected,
    /// Completions of queue pairs that no longer exist.
    completions_late,
    /// Completions with an error.
    completions_failed,
    /// Completions of work requests that were not outstanding: refused, or completed before.
    completions_unasked,
    /// Losses of the device or of the shard's queues.
    devices_lost,
    /// Port-down events of the device.
    ports_down,
    /// Port-up events of the device.
    ports_up,
    /// Turns without work, as far as the idle policy counts them.
    idle_turns,
    /// Sleeps under the idle policy `block`.
    sleeps,
    /// Calls whose memory is permanently out of use: the device did not release a peer's right to
    /// it.
    rights_lost,
    /// Memory windows that the device did not release when their connection ended.
    windows_lost,
    /// Buffers permanently out of use because a queue pair could not be drained.
    buffers_leaked,
}

/// The counters of one shard, shared with their readers; on their own cache lines.
pub type SharedStats = std::sync::Arc<CachePadded<Stats>>;
