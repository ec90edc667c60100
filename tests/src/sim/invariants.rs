//! The invariants: what must be so after every turn of a shard, each by its name.
//!
//! What a program sees is checked where it sees it, in the model; here is what nobody sees: memory,
//! Receives and credits, counted by the shard's audit, and whatever needs both ends of a connection.

use rpcrdma_engine::Snapshot;
use rpcrdma_engine::shard::audit::{Audit, Held, Lent, PeerAudit};

use super::model::Violation;

/// A shard after a turn, and what its program and the model say of it.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    /// Which shard.
    pub shard: usize,
    /// What it has.
    pub audit: &'a Audit,
    /// What it has counted.
    pub stats: Snapshot,
    /// Segments and buffers that its program has.
    pub loans_kept: usize,
    /// Keys under which peers may write to memory of any shard, as the devices know it.
    pub keys_open: i64,
    /// Whether any shard has memory exposed.
    pub is_exposed: bool,
    /// Keys that devices have kept, so far.
    pub keys_kept: u64,
    /// Whether its device has kept one.
    pub keeps_rights: bool,
    /// Calls that its program has made and that are not over.
    pub calls_open: usize,
    /// Receives kept for what costs no credit.
    pub control_reserve: usize,
    /// Whether its device refuses Receives.
    pub is_starved: bool,
    /// Whether its device may never give messages back.
    pub is_lost: bool,
}

type Check = fn(&State<'_>) -> Result<(), String>;

/// Every check of one shard, with its name.
pub const CHECKS: [(&str, Check); 15] = [
    ("receive buffers are each in one hand", receives),
    ("parked buffers are of open groups", parked),
    ("receives posted cover what is granted", posted),
    ("segments and buffers are each in one hand", loans),
    ("windows are free or bound for an open call", windows),
    ("nothing is open to a peer without a call", exposed),
    ("send slots are each in one hand", send_slots),
    ("header slots are each in one hand", header_slots),
    ("messages are each in one hand", messages),
    ("open calls are those that were made", calls),
    ("credits in use are those of open calls", credits),
    ("receives set aside are those of open calls", replies),
    ("grants add up", grants),
    ("credits come home", home),
    ("counters add up", counters),
];

/// Looks at one shard.
///
/// # Errors
/// The first check that does not hold.
pub fn check(state: &State<'_>) -> Result<(), Violation> {
    for (name, check) in CHECKS {
        check(state).map_err(|detail| Violation {
            check: name,
            detail: format!("shard {}: {detail}", state.shard),
        })?;
    }
    Ok(())
}

/// Looks at both ends of a connection of which nothing was lost or changed.
///
/// # Errors
/// If one of them uses more than the other gave.
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

/// Looks at a shard that has stopped, and whose program has let go of everything. What a device keeps
/// a right to is out of use, and nothing else.
///
/// # Errors
/// If anything of it is not at home.
pub fn check_stopped(shard: usize, audit: &Audit, keeps_rights: bool) -> Result<(), Violation> {
    let Audit { spares, bulk, rdma_buffers, windows, send, headers, messages, .. } = audit;
    let lent = |name: &str, it: &Lent, sliced: usize| {
        let lost = it.lost + sliced;
        match it.home + it.returning + lost == it.total && (lost == 0 || keeps_rights) {
            true => Ok(()),
            false => Err(format!("{name}: {it:?}")),
        }
    };
    let held = |name: &str, it: &Held| match it.home == it.total {
        true => Ok(()),
        false => Err(format!("{name}: {it:?}")),
    };
    // A program has one buffer that it sends slices of.
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
        check: "all memory is home after the stop",
        detail: format!("shard {shard}: {detail}"),
    })
}

fn receives(State { audit, .. }: &State<'_>) -> Result<(), String> {
    let hands = [
        audit.receives_home,
        audit.receives_posted,
        audit.receives_refill,
        audit.receives_parked,
        audit.receives_waiting,
        audit.receives_held,
    ];
    let names = "home, posted, refill, parked, waiting, held";
    equal(audit.receives, hands.iter().sum(), names, &hands)
}

fn parked(State { audit, .. }: &State<'_>) -> Result<(), String> {
    let open = audit.peers.iter().filter(|peer| !peer.is_closing);
    let here: u32 = open.map(|peer| peer.group_here).sum();
    equal(audit.receives_parked, here as usize, "of open groups", &[here as usize])
}

/// What may still arrive without anybody oversteping what it was told has a Receive.
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

/// What a program takes out of a message may be a segment, its own buffer or one of the engine's.
fn loans(state: &State<'_>) -> Result<(), String> {
    let State { audit, loans_kept, .. } = *state;
    let pools = [audit.spares, audit.bulk, audit.rdma_buffers];
    let found = |it: &Lent| it.home + it.leaving + it.returning + it.lost;
    let may_be_lost = state.keeps_rights || state.is_lost;
    let total: usize = pools.iter().map(|it| it.total).sum();
    let sum = pools.iter().map(found).sum::<usize>() + loans_kept;
    // Answers that wait in the mailbox are seen when it is read.
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
    let Audit { windows, windows_resting, exposures, .. } = state.audit;
    held(windows, state)?;
    match windows.held == *windows_resting || *exposures > 0 || state.is_lost {
        true => Ok(()),
        false => Err(format!("{windows:?}, {windows_resting} rest, {exposures} exposures")),
    }
}

/// As the devices know it, which see what is bound and what is invalidated. What one has kept is open
/// for good, or until its queue pair ends.
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
    let found = it.home + it.held;
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

/// A peer whose calls are all answered, and that has none on its way here, has all its credits.
fn home(State { audit, .. }: &State<'_>) -> Result<(), String> {
    for peer in audit.peers.iter().filter(|peer| peer.is_up) {
        let is_open =
            peer.open_calls > 0 || peer.fetching > 0 || peer.dropped > 0 || peer.group_is_call;
        if !is_open && peer.outstanding > 0 || peer.outstanding > peer.granted {
            return Err(format!("{peer:?}"));
        }
    }
    Ok(())
}

/// What came in and what went out is accounted for.
fn counters(State { audit, stats, .. }: &State<'_>) -> Result<(), String> {
    let open: u64 = audit.peers.iter().map(|peer| u64::from(peer.open_calls)).sum();
    let ends = [stats.replies_out, stats.refusals_out, stats.calls_unanswered, open];
    if stats.calls_in != ends.iter().sum() {
        let names = "replies, refusals, unanswered, open";
        return Err(format!("{} calls came in; {names}: {ends:?}", stats.calls_in));
    }
    match stats.calls_out == stats.calls_done + u64::from(audit.calls - audit.abandoned) {
        true => Ok(()),
        false => Err(format!("{} calls out, {} done", stats.calls_out, stats.calls_done)),
    }
}

fn equal(total: usize, found: usize, what: &str, parts: &[usize]) -> Result<(), String> {
    if total == found {
        Ok(())
    } else {
        Err(format!("{total} there are, {found} found: {what} {parts:?}"))
    }
}

/// Loans of an answer that was made elsewhere: the scripts have one item at most.
const ANSWER_LOANS: usize = 1;
