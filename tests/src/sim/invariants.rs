//! The invariants: what must be so after every turn of a shard, each by its name.
//!
//! What a program sees is checked where it sees it, in the model; here is what nobody sees: memory,
//! Receives and credits, counted by the shard's audit, and whatever needs both ends of a connection.

use rpcrdma_engine::shard::audit::{Audit, Held, Lent, PeerAudit};

use super::model::Violation;

/// A shard after a turn, and what its program and the model say of it.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    /// Which shard.
    pub shard: usize,
    /// What it counts.
    pub audit: &'a Audit,
    /// Segments that its program keeps.
    pub spares_kept: usize,
    /// Buffers that its program has.
    pub bulk_kept: usize,
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
pub const CHECKS: [(&str, Check); 14] = [
    ("receive buffers are each in one hand", receives),
    ("receives posted cover what is granted", posted),
    ("segments are each in one hand", segments),
    ("bulk buffers are each in one hand", bulk),
    ("buffers for explicit RDMA are each in one hand", landing),
    ("memory windows are each in one hand", windows),
    ("send slots are each in one hand", send_slots),
    ("header slots are each in one hand", header_slots),
    ("messages are each in one hand", messages),
    ("open calls are those that were made", calls),
    ("credits in use are those of open calls", credits),
    ("receives set aside are those of open calls", replies),
    ("grants add up", grants),
    ("credits come home", home),
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

/// Looks at a shard that has stopped, and whose program has let go of everything.
///
/// # Errors
/// If anything of it is not at home.
pub fn check_stopped(shard: usize, audit: &Audit) -> Result<(), Violation> {
    let Audit { spares, bulk, send, headers, messages, .. } = audit;
    let lent = |name: &str, it: &Lent| match it.home + it.returning == it.total {
        true => Ok(()),
        false => Err(format!("{name}: {it:?}")),
    };
    let held = |name: &str, it: &Held| match it.home == it.total {
        true => Ok(()),
        false => Err(format!("{name}: {it:?}")),
    };
    let found = lent("segments", spares)
        .and(lent("bulk buffers", bulk))
        .and(lent("buffers for explicit RDMA", &audit.landing))
        .and(held("memory windows", &audit.windows))
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
    let there = audit.receives_posted + audit.receives_waiting;
    match there >= needed {
        true => Ok(()),
        false => Err(format!("{there} posted or here, {needed} needed: {audit:?}")),
    }
}

fn segments(state: &State<'_>) -> Result<(), String> {
    lent(&state.audit.spares, state.spares_kept, state)
}

fn bulk(state: &State<'_>) -> Result<(), String> {
    lent(&state.audit.bulk, state.bulk_kept, state)
}

fn lent(it: &Lent, kept: usize, state: &State<'_>) -> Result<(), String> {
    let found = it.home + it.leaving + it.returning + kept;
    // What waits in letters is seen when the letters are read.
    let unseen = state.audit.letters * LETTER_LOANS + usize::from(state.is_lost) * it.total;
    match found <= it.total && found + unseen >= it.total {
        true => Ok(()),
        false => Err(format!("{it:?}, {kept} with the program, {} letters", state.audit.letters)),
    }
}

fn landing(state: &State<'_>) -> Result<(), String> {
    lent(&state.audit.landing, 0, state)
}

fn windows(state: &State<'_>) -> Result<(), String> {
    held(&state.audit.windows, state)
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
    equal(*calls_open, audit.calls as usize, "in the table", &[audit.calls as usize])
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
        // A call that waits for a send slot, or is being fetched, is nobody's yet.
        let is_coming = audit.receives_waiting > 0 || audit.fetches > 0;
        let is_open = peer.open_calls > 0 || peer.group_is_call || is_coming;
        if !is_open && peer.outstanding > 0 || peer.outstanding > peer.granted {
            return Err(format!("{peer:?}"));
        }
    }
    Ok(())
}

fn equal(total: usize, found: usize, what: &str, parts: &[usize]) -> Result<(), String> {
    if total == found {
        Ok(())
    } else {
        Err(format!("{total} there are, {found} found: {what} {parts:?}"))
    }
}

/// Loans of an answer that was made elsewhere: the scripts have one item at most.
const LETTER_LOANS: usize = 1;
