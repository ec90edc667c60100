//! Counters of a shard: written by its thread alone, read from any.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

/// One counter. A plain load and store for its writer: there is only one.
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
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a shard has counted since it started.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: Counter,)*
        }

        /// The counters of a shard at one moment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Reads every counter, one after the other.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot { $($name: self.$name.count(),)* }
            }
        }

        impl Snapshot {
            /// Name and value of every counter, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Transmissions received.
    received,
    /// Transmissions sent.
    sent,
    /// Work requests posted inline: copied while posting.
    sent_inline,
    /// Calls from `post_send`: doorbells.
    doorbells,
    /// Completions polled, of Receives and of signaled sends.
    completions,
    /// Calls handed to the handler. Each of them is open, or was answered, refused or left
    /// unanswered: `replies_out`, `refusals_out` and `calls_unanswered` count these.
    calls_in,
    /// Calls not handed to the handler that came while the shard stopped, and have no answer.
    calls_dropped,
    /// Calls not handed to the handler, for want of room, and answered with an error.
    calls_turned_back,
    /// Replies sent, deferred ones included.
    replies_out,
    /// Errors sent in the place of replies: the handler refused the call, its reply could not be sent,
    /// or its ticket was dropped.
    refusals_out,
    /// Calls that had no answer when their connection ended, or their shard stopped.
    calls_unanswered,
    /// Calls sent: those that are open, and `calls_done`.
    calls_out,
    /// Calls completed, failures included.
    calls_done,
    /// Calls completed with an error.
    calls_failed,
    /// Calls that took longer than their deadline allowed; those that were not sent are among them.
    call_deadlines,
    /// Calls that the program has cancelled; those that were not sent are among them.
    calls_cancelled,
    /// Replies that came when their call had been given up, and errors about such calls.
    late_replies,
    /// Calls not sent because the peer's credits were used up.
    busy_credits,
    /// Calls not sent because this side had no slot, buffer or Receive left.
    busy_local,
    /// Groups completed that took more than one transmission, in either direction.
    groups,
    /// RDMA Reads posted for calls of peers.
    reads,
    /// RDMA Writes posted for replies.
    writes,
    /// Pieces of memory shown to peers for own calls.
    exposed,
    /// Rights to memory taken back by work requests of our own; the others the peer gave up.
    invalidations,
    /// Segments that a handler or a client took out of a receive buffer.
    taken,
    /// Segments wanted by a handler or a client while no spare was left.
    spares_out,
    /// Transmissions ignored, for whatever reason the protocol has.
    ignored,
    /// Errors of peers that were reported to them. Calls that are refused are none.
    violations,
    /// Errors of peers that were not reported, and questions not answered, because too many
    /// earlier messages wait for the peer to take them.
    unreported,
    /// Errors reported by peers.
    reported,
    /// Connections that came up.
    connected,
    /// Connections that came up in version one.
    version_one,
    /// Connections that came up in version two.
    version_two,
    /// Peers that answered version two with ERR_VERS: version one goes on, on the same connection.
    fallbacks_error,
    /// Peers that did not answer version two: connected anew in version one.
    fallbacks_silence,
    /// Peers that were lost over the first message in version two: connected anew in version one.
    fallbacks_loss,
    /// Connections begun in version one because the peer was remembered.
    versions_remembered,
    /// Peers that speak no version that this side speaks.
    versions_refused,
    /// Peers that speak version two without properties.
    properties_refused,
    /// Connections that ended because the peer owed an answer for too long.
    call_timeouts,
    /// Connections that ended because the peer took nothing of what it was sent for too long.
    send_timeouts,
    /// Connections that ended because data of the peer's calls did not arrive.
    read_timeouts,
    /// Connections that ended because the peer did not open them in time.
    opening_timeouts,
    /// Connections that ended because the peer left a message incomplete for too long.
    group_timeouts,
    /// Connections that ended because the peer, which had made them, asked for nothing for too long.
    idle_timeouts,
    /// Connections that ended.
    closed,
    /// Requests of peers that the handler, or a shard that stops, has turned down.
    not_admitted,
    /// Connections turned down because the shard was full.
    turned_down,
    /// Completions of queue pairs that were gone already.
    late,
    /// Completions with an error.
    failed_completions,
    /// Completions of what the device did not have: what it had refused, or had completed before.
    unasked,
    /// Times that the device or the queues of the shard were lost.
    devices_lost,
    /// Times that the device's port went down.
    ports_down,
    /// Times that the device's port came up.
    ports_up,
    /// Turns that found nothing to do, as long as the idle policy counts them.
    idle_turns,
    /// Sleeps under the idle policy `block`.
    sleeps,
    /// Calls whose memory is out of use for good: the device did not take a peer's right to it back.
    rights_lost,
    /// Memory windows that the device did not give back when their connection ended.
    windows_lost,
    /// Buffers given up for good because a queue pair could not be drained.
    leaked,
}

/// The counters of one shard, shared with whoever watches it; on a cache line of its own.
pub type SharedStats = std::sync::Arc<CachePadded<Stats>>;
