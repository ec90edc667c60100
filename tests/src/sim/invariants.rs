//! The invariants that must hold after every turn of a shard, each with a name.
//!
//! The model checks what programs see. This module checks what they do not see: memory, Receives
//! and credits, counted by the shard's audit, and properties of both ends of a connection.

use rpcrdma::shard::audit::{Audit, Held, Lent, PeerAudit};
use rpcrdma::{Counts, Snapshot};

use super::model::Violation;

/// A shard after a turn, with the state of its program and of the model.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    /// The index of the shard.
    pub shard: usize,
    /// Its audit.
    pub audit: &'a Audit,
    /// Its counters.
    pub stats: Snapshot,
    /// Segments and buffers that its program owns.
    pub loans_kept: usize,
    /// Keys under which peers may write to memory of any shard, as the devices count them.
    pub keys_open: i64,
    /// Whether any shard has memory exposed.
    pub is_exposed: bool,
    /// Keys that devices failed to invalidate, so far.
    pub keys_kept: u64,
    /// Whether its device failed to invalidate one.
    pub keeps_rights: bool,
    /// Open calls of its program.
    pub calls_open: usize,
    /// Receives reserved for messages without a credit.
    pub control_reserve: usize,
    /// Whether its device does not take Receives.
    pub is_starved: bool,
    /// Whether its device may never complete sends.
    pub is_lost: bool,
}

type Check = fn(&State<'_>) -> Result<(), String>;

/// Every check of one shard, with its name.
pub const CHECKS: [(&str, Check); 16] = [
    ("each receive buffer has one owner", receives),
    ("parked buffers are of open groups", parked),
    ("receives posted cover what is granted", posted),
    ("each segment and buffer has one owner", loans),
    ("windows are free or bound for an open call", windows),
    ("no memory is open to a peer without a call", exposed),
    ("each send slot has one owner", send_slots),
    ("each header slot has one owner", header_slots),
    ("each message has one owner", messages),
    ("open calls are those that were made", calls),
    ("credits in use are those of open calls", credits),
    ("receives set aside are those of open calls", replies),
    ("grants add up", grants),
    ("credits return", credits_return),
    ("counters add up", counters),
    ("counters of connections add up", counts),
];

/// Checks one shard.
///
/// # Errors
/// The first invariant that does not hold.
pub fn check(state: &State<'_>) -> Result<(), Violation> {
    for (name, check) in CHECKS {
        check(state).map_err(|detail| Violation {
            check: name,
            detail: format!("shard {}: {detail}", state.shard),
        })?;
    }
    Ok(())
}

/// Checks both ends of a connection without losses and changes.
///
/// # Errors
/// If one of them uses more than the other granted.
pub fn check_pair(ends: [&PeerAudit; 2]) -> Result<(), Violation> {
    for [caller, callee] in [ends, [ends[1], ends[0]]] {
        if caller.credits_in_flight > callee.granted.max(1) {
            return Err(Violation {
                check: "never more outstanding than granted",
                detail: format!("{caller:?} calls {callee:?}"),
            });
        }
        if callee.outstanding > caller.credits_in_flight {
            return Err(Violation {
                check: "never more answered for than called",
                detail: format!("{caller:?} calls {callee:?}"),
            });
        }
    }
    Ok(())
}

/// Checks a stopped shard whose program has released everything. Only memory that a device failed
/// to release is out of use.
///
/// # Errors
/// If anything else is missing.
pub fn check_stopped(shard: usize, audit: &Audit, keeps_rights: bool) -> Result<(), Violation> {
    let Audit { spares, bulk, rdma_buffers, windows, send, headers, messages, .. } = audit;
    let lent = |name: &str, it: &Lent, sliced: usize| {
        let lost = it.lost + sliced;
        match it.free + it.returning + lost == it.total && (lost == 0 || keeps_rights) {
            true => Ok(()),
            false => Err(format!("{name}: {it:?}")),
        }
    };
    let held = |name: &str, it: &Held| match it.free == it.total {
        true => Ok(()),
        false => Err(format!("{name}: {it:?}")),
    };
    // A program has one buffer as the source of slices.
    let found = lent("segments", spares, 0)
        .and(lent("bulk buffers", bulk, audit.slices_lost.min(1)))
        .and(lent("RDMA buffers", rdma_buffers, 0))
        .and(held("windows", windows))
        .and(held("send slots", send))
        .and(held("header slots", headers))
        .and(held("messages", messages))
        .and(match audit {
            Audit {
                receives_parked: 0, receives_waiting: 0, calls: 0, reply_reserved: 0, ..
            } if audit.peers.is_empty() && audit.granted == 0 && audit.leaked == 0 => Ok(()),
            _ => Err(format!("{audit:?}")),
        });
    found.map_err(|detail| Violation {
        check: "all memory is free after the stop",
        detail: format!("shard {shard}: {detail}"),
    })
}

fn receives(State { audit, .. }: &State<'_>) -> Result<(), String> {
    let hands = [
        audit.receives_free,
        audit.receives_posted,
        audit.receives_refill,
        audit.receives_parked,
        audit.receives_waiting,
        audit.receives_held,
    ];
    let names = "free, posted, refill, parked, waiting, held";
    equal(audit.receives, hands.iter().sum(), names, &hands)
}

fn parked(State { audit, .. }: &State<'_>) -> Result<(), String> {
    let open = audit.peers.iter().filter(|peer| !peer.is_closing);
    let here: u32 = open.map(|peer| peer.group_here).sum();
    equal(audit.receives_parked, here as usize, "of open groups", &[here as usize])
}

/// Every message that peers may send within their grants has a Receive.
fn posted(state: &State<'_>) -> Result<(), String> {
    let State { audit, control_reserve, is_starved, .. } = *state;
    if is_starved {
        return Ok(());
    }
    let mut needed = control_reserve;
    for peer in audit.peers.iter().filter(|peer| !peer.is_closing) {
        needed += (peer.granted - peer.outstanding) as usize + peer.replies_held as usize;
        if peer.group_is_call {
            needed += peer.group_missing as usize;
        } else {
            needed -= (peer.group_here).min(peer.replies_held) as usize;
        }
    }
    let there = audit.receives_posted + audit.receives_waiting + audit.receives_fenced;
    match there >= needed {
        true => Ok(()),
        false => Err(format!("{there} posted or here, {needed} needed: {audit:?}")),
    }
}

/// A loan of a message may be a segment, a program's buffer or an RDMA buffer.
fn loans(state: &State<'_>) -> Result<(), String> {
    let State { audit, loans_kept, .. } = *state;
    let pools = [audit.spares, audit.bulk, audit.rdma_buffers];
    let found = |it: &Lent| it.free + it.leaving + it.returning + it.lost;
    let may_be_lost = state.keeps_rights || state.is_lost;
    let total: usize = pools.iter().map(|it| it.total).sum();
    let sum = pools.iter().map(found).sum::<usize>() + loans_kept;
    // Answers in the mailbox are counted when it is read.
    let unseen = audit.answers * ANSWER_LOANS + usize::from(state.is_lost) * total;
    let is_right = pools.iter().all(|it| found(it) <= it.total && (it.lost == 0 || may_be_lost));
    match is_right && sum <= total && sum + unseen >= total {
        true => Ok(()),
        false => {
            let answers = audit.answers;
            Err(format!("{pools:?}, {loans_kept} with the program, {answers} answers"))
        }
    }
}

fn windows(state: &State<'_>) -> Result<(), String> {
    let Audit { windows, windows_quarantined, exposures, .. } = state.audit;
    held(windows, state)?;
    match windows.held == *windows_quarantined || *exposures > 0 || state.is_lost {
        true => Ok(()),
        false => {
            Err(format!("{windows:?}, {windows_quarantined} quarantined, {exposures} exposures"))
        }
    }
}

/// As the devices count bindings and invalidations. A right that a device failed to end stays until
/// its queue pair ends, or for ever.
fn exposed(state: &State<'_>) -> Result<(), String> {
    match state.is_exposed || state.keys_open <= state.keys_kept as i64 {
        true => Ok(()),
        false => Err(format!("{} keys", state.keys_open)),
    }
}

fn send_slots(state: &State<'_>) -> Result<(), String> {
    held(&state.audit.send, state)
}

fn header_slots(state: &State<'_>) -> Result<(), String> {
    held(&state.audit.headers, state)
}

fn messages(state: &State<'_>) -> Result<(), String> {
    held(&state.audit.messages, state)
}

fn held(it: &Held, state: &State<'_>) -> Result<(), String> {
    let found = it.free + it.held;
    match found == it.total || (state.is_lost && found < it.total) {
        true => Ok(()),
        false => Err(format!("{it:?}")),
    }
}

fn calls(State { audit, calls_open, .. }: &State<'_>) -> Result<(), String> {
    let (calls, abandoned) = (audit.calls as usize, audit.abandoned as usize);
    equal(*calls_open + abandoned, calls, "in the table, and given up", &[calls, abandoned])
}

fn credits(State { audit, .. }: &State<'_>) -> Result<(), String> {
    for peer in &audit.peers {
        if peer.credits_held != peer.credits_in_flight {
            return Err(format!("{peer:?}"));
        }
    }
    Ok(())
}

fn replies(State { audit, .. }: &State<'_>) -> Result<(), String> {
    let held: u32 = audit.peers.iter().map(|peer| peer.replies_held).sum();
    let calls: u32 = audit.peers.iter().map(|peer| peer.calls).sum();
    let is_right = held == audit.reply_reserved
        && calls == audit.calls
        && audit.reply_reserved <= audit.reply_receives;
    if is_right { Ok(()) } else { Err(format!("{audit:?}")) }
}

fn grants(State { audit, .. }: &State<'_>) -> Result<(), String> {
    let granted: u32 = audit.peers.iter().map(|peer| peer.granted).sum();
    let is_right = granted == audit.granted && audit.granted <= audit.grant_receives;
    if is_right { Ok(()) } else { Err(format!("{granted} of connections: {audit:?}")) }
}

/// A peer without open or arriving calls has all its credits.
fn credits_return(State { audit, .. }: &State<'_>) -> Result<(), String> {
    for peer in audit.peers.iter().filter(|peer| peer.is_up) {
        let is_open =
            peer.open_calls > 0 || peer.fetching > 0 || peer.dropped > 0 || peer.group_is_call;
        if !is_open && peer.outstanding > 0 || peer.outstanding > peer.granted {
            return Err(format!("{peer:?}"));
        }
    }
    Ok(())
}

/// The counters of received and sent messages are consistent.
fn counters(State { audit, stats, .. }: &State<'_>) -> Result<(), String> {
    let open: u64 = audit.peers.iter().map(|peer| u64::from(peer.open_calls)).sum();
    let ends = [stats.replies_sent, stats.refusals_sent, stats.calls_unanswered, open];
    if stats.calls_received != ends.iter().sum() {
        let names = "replies, refusals, unanswered, open";
        return Err(format!("{} calls came in; {names}: {ends:?}", stats.calls_received));
    }
    let refused = [stats.refusals_handler, stats.refusals_unsent, stats.refusals_dropped];
    let failed = [
        stats.failed_lost,
        stats.failed_rejected,
        stats.failed_form,
        stats.failed_reply,
        stats.failed_memory,
        stats.failed_deadline,
        stats.failed_cancelled,
    ];
    if [stats.refusals_sent, stats.calls_failed] != [refused.iter().sum(), failed.iter().sum()] {
        return Err(format!("refused {refused:?}, failed {failed:?} of {stats:?}"));
    }
    match stats.calls_sent == stats.calls_completed + u64::from(audit.calls - audit.abandoned) {
        true => Ok(()),
        false => Err(format!("{} calls out, {} done", stats.calls_sent, stats.calls_completed)),
    }
}

/// Each connection counts its calls by itself, and the shard all of them.
fn counts(State { audit, stats, .. }: &State<'_>) -> Result<(), String> {
    let mut sum = audit.gone;
    for peer in &audit.peers {
        let of = &peer.counts;
        let answered = of.replies_sent + of.refusals_sent + of.calls_unanswered;
        let ended = of.calls_completed + u64::from(peer.calls - peer.abandoned);
        let refused = of.refusals_handler + of.refusals_unsent + of.refusals_dropped;
        let sums = [answered + u64::from(peer.open_calls), ended, refused];
        if [of.calls_received, of.calls_sent, of.refusals_sent] != sums {
            return Err(format!("{peer:?}"));
        }
        sum.add(of);
    }
    let mut all = Counts::default();
    all.calls_received = stats.calls_received;
    all.replies_sent = stats.replies_sent;
    all.refusals_sent = stats.refusals_sent;
    all.calls_unanswered = stats.calls_unanswered;
    all.calls_rejected = stats.calls_rejected;
    all.calls_dropped = stats.calls_dropped;
    all.calls_sent = stats.calls_sent;
    all.calls_completed = stats.calls_completed;
    all.calls_failed = stats.calls_failed;
    all.refusals_handler = stats.refusals_handler;
    all.refusals_unsent = stats.refusals_unsent;
    all.refusals_dropped = stats.refusals_dropped;
    all.failed_deadline = stats.failed_deadline;
    all.bytes_continued = stats.bytes_continued;
    all.bytes_read = stats.bytes_read;
    all.bytes_written = stats.bytes_written;
    if sum == all { Ok(()) } else { Err(format!("connections {sum:?}, the shard {all:?}")) }
}

fn equal(total: usize, found: usize, what: &str, parts: &[usize]) -> Result<(), String> {
    if total == found {
        Ok(())
    } else {
        Err(format!("{total} there are, {found} found: {what} {parts:?}"))
    }
}

/// Loans of an answer of another thread: the scripts have at most one item.
const ANSWER_LOANS: usize = 1;
