//! Reports: what a shard and its connections have, by name.

use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use core::time::Duration;

use ::rpcrdma_engine::{Counts, Gauges, InspectError, PeerReport, PeerState, ShardReport};

use crate::arguments::{OK, array, caught, give, given, taken_back, write_text};
use crate::failure::{invalid, with_text};
use crate::handle::rpcrdma_handle;
use crate::limits::rpcrdma_limits;
use crate::message::rpcrdma_connection;
use crate::stats::{rpcrdma_counter, write_counters};
use crate::status::rpcrdma_status::{
    RPCRDMA_E_NO_TURN, RPCRDMA_E_OTHER, RPCRDMA_E_PANICKED, RPCRDMA_E_STOPPED,
};

/// A report on a shard and its connections at one moment. It does not change.
pub struct rpcrdma_report(ShardReport);

/// Asks the shard for a report, which it writes in its next turns. `RPCRDMA_E_NO_TURN` if it took
/// none within `timeout_ns`: the thread that polls a shard cannot wait for that shard.
/// `RPCRDMA_E_STOPPED` if it has ended.
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
        Ok(made) => give(report, rpcrdma_report(made)),
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
    // SAFETY: the program had it from `rpcrdma_handle_inspect`.
    drop(unsafe { taken_back(report) });
}

/// What the shard has, such as "calls_total" and "calls_free": writes at most `capacity` values, and
/// how many there are to `count`.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_report_gauges(
    report: Option<&rpcrdma_report>,
    gauges: *mut rpcrdma_counter,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    given!(report);
    // SAFETY: the program passes so many places.
    unsafe { write(SHARD_GAUGES, &report.0.gauges, gauges, capacity, count) }
}

/// How many peers the report is about.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_report_peers(report: Option<&rpcrdma_report>) -> usize {
    report.map_or(0, |report| report.0.peers.len())
}

/// The connection to a peer, by its index in the report; 0 if there is none.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_report_peer_connection(
    report: Option<&rpcrdma_report>,
    peer: usize,
) -> rpcrdma_connection {
    let peer = report.and_then(|report| report.0.peers.get(peer));
    peer.map_or(rpcrdma_connection::NONE, |peer| rpcrdma_connection::of(peer.id))
}

/// The address of a peer, as text with a NUL at its end, in at most `len` bytes.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_report_peer_address(
    report: Option<&rpcrdma_report>,
    peer: usize,
    text: *mut c_char,
    len: usize,
) -> c_int {
    given!(report);
    let Some(peer) = report.0.peers.get(peer) else { return invalid("peer") };
    // SAFETY: the program passes room for `len` bytes.
    unsafe { write_text(&peer.address, text, len) }
}

/// What the connection to a peer has counted, such as "calls_received". As `rpcrdma_report_gauges`.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_report_peer_counters(
    report: Option<&rpcrdma_report>,
    peer: usize,
    counters: *mut rpcrdma_counter,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    given!(report);
    let Some(peer) = report.0.peers.get(peer) else { return invalid("peer") };
    // SAFETY: the program passes so many places.
    unsafe { write(PEER_COUNTERS, &peer.counts, counters, capacity, count) }
}

/// What the connection to a peer has, such as "credits_used". "is_up" is 1 while calls may go both
/// ways, "version" is 0 until it is known. As `rpcrdma_report_gauges`.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_report_peer_gauges(
    report: Option<&rpcrdma_report>,
    peer: usize,
    gauges: *mut rpcrdma_counter,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    given!(report);
    let Some(peer) = report.0.peers.get(peer) else { return invalid("peer") };
    // SAFETY: the program passes so many places.
    unsafe { write(PEER_GAUGES, peer, gauges, capacity, count) }
}

/// Names, and where their values are found.
type Table<T> = &'static [(&'static CStr, fn(&T) -> u64)];

/// Writes the values of a table.
///
/// # Safety
/// `places` is NULL, or has room for `capacity` values.
unsafe fn write<T>(
    table: Table<T>,
    of: &T,
    places: *mut rpcrdma_counter,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    given!(count);
    // SAFETY: the caller guarantees it.
    let places = unsafe { array(places.cast(), capacity) };
    count.write(write_counters(table.iter().map(|(name, value)| (*name, value(of))), places));
    OK
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
