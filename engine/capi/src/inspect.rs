//! Reports: what a shard and its connections have, by name.

use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;
use std::ffi::CString;

use ::rpcrdma::{Counts, Gauges, InspectError, PeerReport, PeerState, ShardReport};

use crate::arguments::{OK, caught, given, taken_back};
use crate::failure::{c_text, with_text};
use crate::handle::rpcrdma_handle;
use crate::limits::rpcrdma_limits;
use crate::message::rpcrdma_connection;
use crate::stats::rpcrdma_counter;
use crate::status::rpcrdma_status::{
    RPCRDMA_E_NO_TURN, RPCRDMA_E_OTHER, RPCRDMA_E_PANICKED, RPCRDMA_E_STOPPED,
};

/// A report on a shard and its connections at one moment. It does not change, and belongs to the
/// program. Later versions may add fields.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_report {
    /// What the shard has, such as "calls_total" and "calls_free".
    pub gauges: *const rpcrdma_counter,
    /// How many gauges there are.
    pub gauge_count: usize,
    /// The connections of the shard.
    pub peers: *const *const rpcrdma_peer_report,
    /// How many there are.
    pub peer_count: usize,
}

/// A connection in a report. Later versions may add fields.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_peer_report {
    /// Its name.
    pub connection: rpcrdma_connection,
    /// The address of the peer, as text.
    pub address: *const c_char,
    /// What it has counted, such as "calls_received".
    pub counters: *const rpcrdma_counter,
    /// How many counters there are.
    pub counter_count: usize,
    /// What it has, such as "credits_used". "is_up" is 1 while calls may go both ways, "version" is 0
    /// until it is known.
    pub gauges: *const rpcrdma_counter,
    /// How many gauges there are.
    pub gauge_count: usize,
}

/// A report with what it points to.
#[repr(C)]
struct OwnedReport {
    /// What the program sees.
    shown: rpcrdma_report,
    gauges: Vec<rpcrdma_counter>,
    peers: Vec<OwnedPeer>,
    shown_peers: Vec<*const rpcrdma_peer_report>,
}

struct OwnedPeer {
    shown: rpcrdma_peer_report,
    address: CString,
    counters: Vec<rpcrdma_counter>,
    gauges: Vec<rpcrdma_counter>,
}

/// Asks the shard for a report, which it writes in its next turns. `RPCRDMA_E_NO_TURN` if it took
/// none within `timeout_ns`: the thread that polls a shard cannot wait for that shard.
/// `RPCRDMA_E_STOPPED` if it has ended. Freed by `rpcrdma_report_free`.
///
/// Thread: any, not a callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_handle_inspect(
    handle: Option<&rpcrdma_handle>,
    timeout_ns: u64,
    report: Option<&mut MaybeUninit<*mut rpcrdma_report>>,
) -> c_int {
    given!(handle, report);
    caught(|| match handle.0.inspect(Duration::from_nanos(timeout_ns)) {
        Ok(made) => {
            report.write(Box::into_raw(OwnedReport::of(&made)).cast());
            OK
        }
        Err(why) => with_text(
            match why {
                InspectError::TimedOut(_) => RPCRDMA_E_NO_TURN,
                InspectError::Ended => RPCRDMA_E_STOPPED,
                InspectError::Panicked => RPCRDMA_E_PANICKED,
                _ => RPCRDMA_E_OTHER,
            },
            &why,
        ),
    })
}

/// Frees a report. NULL is ignored.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_report_free(report: *mut rpcrdma_report) {
    // SAFETY: the program had it from `rpcrdma_handle_inspect`, which makes such a report.
    drop(unsafe { taken_back(report.cast::<OwnedReport>()) });
}

impl OwnedReport {
    fn of(report: &ShardReport) -> Box<OwnedReport> {
        let shown = rpcrdma_report {
            gauges: ptr::null(),
            gauge_count: 0,
            peers: ptr::null(),
            peer_count: 0,
        };
        let gauges = values(SHARD_GAUGES, &report.gauges);
        let peers = report.peers.iter().map(OwnedPeer::of).collect();
        let mut made = Box::new(OwnedReport { shown, gauges, peers, shown_peers: Vec::new() });
        // It moves no more.
        for peer in &mut made.peers {
            peer.shown.address = peer.address.as_ptr();
            (peer.shown.counters, peer.shown.counter_count) = array_of(&peer.counters);
            (peer.shown.gauges, peer.shown.gauge_count) = array_of(&peer.gauges);
        }
        made.shown_peers = made.peers.iter().map(|peer| ptr::from_ref(&peer.shown)).collect();
        (made.shown.gauges, made.shown.gauge_count) = array_of(&made.gauges);
        (made.shown.peers, made.shown.peer_count) = array_of(&made.shown_peers);
        made
    }
}

impl OwnedPeer {
    fn of(report: &PeerReport) -> OwnedPeer {
        let shown = rpcrdma_peer_report {
            connection: rpcrdma_connection::of(report.id),
            address: ptr::null(),
            counters: ptr::null(),
            counter_count: 0,
            gauges: ptr::null(),
            gauge_count: 0,
        };
        OwnedPeer {
            shown,
            address: c_text(&report.address),
            counters: values(PEER_COUNTERS, &report.counts),
            gauges: values(PEER_GAUGES, report),
        }
    }
}

/// An array as C has it.
fn array_of<T>(all: &[T]) -> (*const T, usize) {
    (all.as_ptr(), all.len())
}

/// Names, and where their values are found.
type Table<T> = &'static [(&'static CStr, fn(&T) -> u64)];

/// The values of a table.
fn values<T>(table: Table<T>, of: &T) -> Vec<rpcrdma_counter> {
    let all = table.iter();
    all.map(|(name, value)| rpcrdma_counter { name: name.as_ptr(), value: value(of) }).collect()
}

const SHARD_GAUGES: Table<Gauges> = &[
    (c"connections_total", |it| it.connections.total),
    (c"connections_free", |it| it.connections.free),
    (c"calls_total", |it| it.calls.total),
    (c"calls_free", |it| it.calls.free),
    (c"slots_total", |it| it.slots.total),
    (c"slots_free", |it| it.slots.free),
    (c"segments_total", |it| it.segments.total),
    (c"segments_free", |it| it.segments.free),
    (c"buffers_total", |it| it.buffers.total),
    (c"buffers_free", |it| it.buffers.free),
    (c"rdma_buffers_total", |it| it.rdma_buffers.total),
    (c"rdma_buffers_free", |it| it.rdma_buffers.free),
    (c"windows_total", |it| it.windows.total),
    (c"windows_free", |it| it.windows.free),
    (c"fetches_total", |it| it.fetches.total),
    (c"fetches_free", |it| it.fetches.free),
    (c"grants_total", |it| it.grants.total),
    (c"grants_free", |it| it.grants.free),
    (c"replies_total", |it| it.replies.total),
    (c"replies_free", |it| it.replies.free),
    (c"receives", |it| it.receives),
    (c"receives_posted", |it| it.receives_posted),
    (c"receives_waiting", |it| it.receives_waiting),
    (c"calls_open", |it| it.calls_open),
    (c"messages_pending", |it| it.messages_pending),
    (c"sends_outstanding", |it| it.sends_outstanding),
];

const PEER_COUNTERS: Table<Counts> = &[
    (c"calls_received", |it| it.calls_received),
    (c"replies_sent", |it| it.replies_sent),
    (c"refusals_sent", |it| it.refusals_sent),
    (c"calls_unanswered", |it| it.calls_unanswered),
    (c"calls_rejected", |it| it.calls_rejected),
    (c"calls_dropped", |it| it.calls_dropped),
    (c"calls_sent", |it| it.calls_sent),
    (c"calls_completed", |it| it.calls_completed),
    (c"calls_failed", |it| it.calls_failed),
    (c"refusals_handler", |it| it.refusals_handler),
    (c"refusals_unsent", |it| it.refusals_unsent),
    (c"refusals_dropped", |it| it.refusals_dropped),
    (c"failed_deadline", |it| it.failed_deadline),
    (c"bytes_continued", |it| it.bytes_continued),
    (c"bytes_read", |it| it.bytes_read),
    (c"bytes_written", |it| it.bytes_written),
];

const PEER_GAUGES: Table<PeerReport> = &[
    (c"is_requested", |it| it.is_requested.into()),
    (c"is_up", |it| (it.state == PeerState::Up).into()),
    (c"version", |it| rpcrdma_limits::of(&it.limits).version.into()),
    (c"credits_limit", |it| it.credits.limit.into()),
    (c"credits_used", |it| it.credits.used.into()),
    (c"granted_limit", |it| it.granted.limit.into()),
    (c"granted_used", |it| it.granted.used.into()),
    (c"calls_open", |it| it.calls_open.into()),
    (c"calls_fetching", |it| it.calls_fetching.into()),
    (c"calls_exposed", |it| it.calls_exposed.into()),
    (c"messages_waiting", |it| it.messages_waiting.into()),
    (c"messages_pending", |it| it.messages_pending.into()),
    (c"sends_outstanding", |it| it.sends_outstanding.into()),
    (c"slots", |it| it.slots.into()),
];
