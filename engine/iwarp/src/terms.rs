//! What both sides agree on at the start of a connection.
//!
//! ```text
//!   request(requested) ──▶ answer(request, requested) ─▶ reply, Terms
//!   Terms ◀─ agree(requested, reply) ◀──────────────────┘
//! ```

use crate::wire::start::{DEPTH_MASK, Enhanced, Kind, Revision, Start};

/// What both sides have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// CRCs are made and checked.
    pub checks_crc: bool,
    /// The Reads that the peer may have under way at this side. At least one is served.
    pub ird: u32,
    /// The Reads that this side may have under way. 0: the peer serves none. One is sent all the
    /// same, and refused by a Terminate message: a request that waited would wait for ever.
    pub ord: u32,
    /// Which side sends the first FPDU.
    pub first: First,
}

/// Which side sends the first FPDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// This side: it has connected. With a ready-to-receive message it sends that at once, and the
    /// peer may send then; without one the peer waits for what this side sends.
    Ours {
        /// The message, if a peer-to-peer start was agreed.
        ready: Option<ReadyToReceive>,
    },
    /// The peer. This side sends nothing before it has come.
    Theirs,
}

/// The message that ends a peer-to-peer start (RFC 6581 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadyToReceive {
    /// An FPDU without a segment.
    Fpdu,
    /// An RDMA Write of no bytes.
    Write,
    /// An RDMA Read of no bytes.
    Read,
}

/// The parameters that a side requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requested {
    /// CRCs. They are used if either side wants them.
    pub crc: bool,
    /// The most Reads of the peer that this side serves at a time.
    pub ird: u32,
    /// The most Reads that this side has under way at a time.
    pub ord: u32,
}

/// Why the sides cannot agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disagreement {
    /// The peer wants markers.
    #[error("{}", MARKERS)]
    Markers,
    /// The reply chooses a ready-to-receive message that was not offered, or none.
    #[error("{}", READY)]
    ReadyToReceive,
    /// The reply announces more Reads than this side serves.
    #[error("{}: {given}; the limit is {max}", READS)]
    Reads {
        /// The ORD of the reply.
        given: u16,
        /// The IRD of the request.
        max: u16,
    },
}

impl Disagreement {
    /// The same without numbers.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Disagreement::Markers => MARKERS,
            Disagreement::ReadyToReceive => READY,
            Disagreement::Reads { .. } => READS,
        }
    }
}

/// The MPA request of a side that requests these parameters: revision 2, with a peer-to-peer start.
pub fn request(requested: &Requested) -> Start {
    Start {
        kind: Kind::Request,
        wants_markers: false,
        wants_crc: requested.crc,
        is_rejected: false,
        revision: Revision::Two,
        enhanced: Some(Enhanced {
            ird: depth(requested.ird),
            ord: depth(requested.ord),
            peer_to_peer: true,
            rtr_fpdu: false,
            rtr_write: true,
            rtr_read: true,
        }),
    }
}

/// The reply that accepts `request`, and the terms of the side that sends it.
///
/// # Errors
/// What this side cannot do. [`reject`] is the reply then.
pub fn answer(request: &Start, requested: &Requested) -> Result<(Start, Terms), Disagreement> {
    // RFC 5044 7.1: a side may refuse a peer that wants markers.
    if request.wants_markers {
        return Err(Disagreement::Markers);
    }
    let wants_crc = request.wants_crc || requested.crc;
    let enhanced = request.enhanced.map(|asked| answer_of(&asked, requested));
    let (ird, ord) = match enhanced {
        Some(Enhanced { ird, ord, .. }) => (u32::from(ird), u32::from(ord)),
        None => (requested.ird, requested.ord),
    };
    let reply = Start { kind: Kind::Reply, wants_crc, enhanced, ..*request };
    Ok((reply, Terms { checks_crc: wants_crc, ird, ord, first: First::Theirs }))
}

/// The reply that rejects `request`.
pub fn reject(request: &Start) -> Start {
    let enhanced = request.enhanced.map(|_| Enhanced::default());
    Start { kind: Kind::Reply, wants_markers: false, is_rejected: true, enhanced, ..*request }
}

/// The terms of the side that has sent [`request`] and got this reply, which does not reject it.
///
/// # Errors
/// What this side cannot do: the connection cannot be used.
pub fn agree(requested: &Requested, reply: &Start) -> Result<Terms, Disagreement> {
    if reply.wants_markers {
        return Err(Disagreement::Markers);
    }
    let checks_crc = requested.crc || reply.wants_crc;
    // Revision 1, or 2 without its words: nothing is negotiated.
    let Some(chosen) = reply.enhanced else {
        let first = First::Ours { ready: None };
        return Ok(Terms { checks_crc, ird: requested.ird, ord: requested.ord, first });
    };
    let (ird, ord) = (depth(requested.ird), depth(requested.ord));
    // RFC 6581 9.1: the side that connects serves all Reads that the other announces.
    if chosen.ord > ird && chosen.ord != DEPTH_MASK {
        return Err(Disagreement::Reads { given: chosen.ord, max: ird });
    }
    let ready = match chosen {
        Enhanced { peer_to_peer: false, .. } => None,
        Enhanced { rtr_write: true, .. } => Some(ReadyToReceive::Write),
        Enhanced { rtr_read: true, .. } => Some(ReadyToReceive::Read),
        _ => return Err(Disagreement::ReadyToReceive),
    };
    let ord = ord.min(chosen.ird).max(u16::from(ready == Some(ReadyToReceive::Read)));
    let (ird, ord) = (u32::from(ird.min(chosen.ord)), u32::from(ord));
    Ok(Terms { checks_crc, ird, ord, first: First::Ours { ready } })
}

/// The words of the reply to these words of a request: the smaller depth of each direction, and one
/// of the ready-to-receive messages that are offered.
fn answer_of(asked: &Enhanced, requested: &Requested) -> Enhanced {
    let Enhanced { rtr_fpdu, rtr_write, rtr_read, peer_to_peer, .. } = *asked;
    // siw proposes a Write, too, to a side that offers nothing.
    let write = peer_to_peer && (rtr_write || !(rtr_read || rtr_fpdu));
    let read = peer_to_peer && !write && rtr_read;
    Enhanced {
        // A Read that is the ready-to-receive message is one that is served.
        ird: depth(requested.ird).min(asked.ord).max(u16::from(read)),
        ord: depth(requested.ord).min(asked.ird),
        peer_to_peer,
        rtr_fpdu: peer_to_peer && !write && !read,
        rtr_write: write,
        rtr_read: read,
    }
}

/// A depth on the wire. The largest one means something else there.
fn depth(reads: u32) -> u16 {
    u16::try_from(reads).map_or(DEPTH_MASK - 1, |reads| reads.min(DEPTH_MASK - 1))
}

const MARKERS: &str = "the peer wants MPA markers, which this side does not send";
const READY: &str =
    "the peer chooses no ready-to-receive message that was offered (RDMA Write, RDMA Read)";
const READS: &str = "the peer has more RDMA Reads under way at a time than are served here";

#[cfg(test)]
mod tests {
    use super::*;

    const NO: Requested = Requested { crc: false, ird: 16, ord: 16 };
    const CRC: Requested = Requested { crc: true, ..NO };

    /// A request of revision 1.
    const OLD: Start = Start {
        kind: Kind::Request,
        wants_markers: false,
        wants_crc: false,
        is_rejected: false,
        revision: Revision::One,
        enhanced: None,
    };

    fn asking(enhanced: Enhanced) -> Start {
        Start { revision: Revision::Two, enhanced: Some(enhanced), ..OLD }
    }

    /// Peer-to-peer, with these messages offered or chosen: B, C, D.
    fn ready(rtr_fpdu: bool, rtr_write: bool, rtr_read: bool) -> Enhanced {
        Enhanced { ird: 4, ord: 8, peer_to_peer: true, rtr_fpdu, rtr_write, rtr_read }
    }

    fn replying(enhanced: Enhanced) -> Start {
        Start { kind: Kind::Reply, ..asking(enhanced) }
    }

    fn answered(request: &Start) -> (Start, Terms) {
        answer(request, &NO).expect("they agree")
    }

    #[test]
    fn two_sides_of_this_provider_agree() {
        for (ours, theirs) in [(NO, NO), (NO, CRC), (CRC, NO), (CRC, CRC)] {
            let ours = Requested { ird: 4, ord: 32, ..ours };
            let asked = request(&ours);
            assert_eq!((asked.revision, asked.wants_crc), (Revision::Two, ours.crc));
            let (reply, there) = answer(&asked, &theirs).expect("they agree");
            let here = agree(&ours, &reply).expect("they agree");
            assert_eq!((reply.kind, reply.is_rejected), (Kind::Reply, false));
            let either = ours.crc || theirs.crc;
            assert_eq!([here.checks_crc, there.checks_crc], [either; 2]);
            assert_eq!((here.ord, there.ird), (16, 16), "the smaller one");
            assert_eq!((here.ird, there.ord), (4, 4), "the smaller one");
            let ready = Some(ReadyToReceive::Write);
            assert_eq!((here.first, there.first), (First::Ours { ready }, First::Theirs));
        }
    }

    #[test]
    fn a_request_is_answered_in_its_own_revision() {
        for wants_crc in [false, true] {
            for requested in [NO, CRC] {
                let (reply, terms) =
                    answer(&Start { wants_crc, ..OLD }, &requested).expect("agreed");
                let crc = wants_crc || requested.crc;
                let expected = Start { kind: Kind::Reply, wants_crc: crc, ..OLD };
                assert_eq!(reply, expected);
                let first = First::Theirs;
                assert_eq!(terms, Terms { checks_crc: crc, ird: 16, ord: 16, first });
            }
        }
        let bare = Start { revision: Revision::Two, ..OLD };
        assert_eq!(answered(&bare).0, Start { kind: Kind::Reply, ..bare });
        // siw, whose programs are not peers.
        let siw = Enhanced { ird: 128, ord: 2, ..Enhanced::default() };
        let (reply, terms) = answered(&asking(siw));
        assert_eq!(reply.enhanced, Some(Enhanced { ird: 2, ord: 16, ..Enhanced::default() }));
        assert_eq!((terms.ird, terms.ord, terms.first), (2, 16, First::Theirs));
    }

    #[test]
    fn one_message_is_chosen_of_those_that_a_peer_offers() {
        for [fpdu, write, read] in ALL {
            let (reply, terms) = answered(&asking(ready(fpdu, write, read)));
            let chosen = reply.enhanced.expect("revision 2");
            let expected = match (fpdu, write, read) {
                (_, true, _) | (false, false, false) => (false, true, false),
                (_, false, true) => (false, false, true),
                (true, false, false) => (true, false, false),
            };
            assert_eq!((chosen.rtr_fpdu, chosen.rtr_write, chosen.rtr_read), expected);
            assert!(chosen.peer_to_peer && terms.first == First::Theirs);
        }
        // Not peer-to-peer: nothing is chosen.
        for [fpdu, write, read] in ALL {
            let asked = Enhanced { peer_to_peer: false, ..ready(fpdu, write, read) };
            let chosen = answered(&asking(asked)).0.enhanced.expect("revision 2");
            let none = Enhanced { ird: chosen.ird, ord: chosen.ord, ..Enhanced::default() };
            assert_eq!(chosen, none);
        }
        let none = Enhanced { ird: 0, ord: 0, ..ready(false, false, true) };
        let (reply, terms) = answered(&asking(none));
        assert_eq!(
            reply.enhanced.expect("revision 2").ird,
            1,
            "the Read that is the ready-to-receive message"
        );
        assert_eq!((terms.ird, terms.ord), (1, 0));
    }

    #[test]
    fn the_message_of_the_reply_is_sent_if_it_was_offered() {
        for [fpdu, write, read] in ALL {
            let outcome = agree(&NO, &replying(ready(fpdu, write, read)));
            let ready = match (write, read) {
                (true, _) => ReadyToReceive::Write,
                (false, true) => ReadyToReceive::Read,
                (false, false) => {
                    assert_eq!(outcome, Err(Disagreement::ReadyToReceive));
                    continue;
                }
            };
            let first = First::Ours { ready: Some(ready) };
            assert_eq!(outcome.expect("agreed").first, first);
            let reply = Enhanced { peer_to_peer: false, ..self::ready(fpdu, write, read) };
            let outcome = agree(&NO, &replying(reply)).expect("agreed");
            assert_eq!(outcome.first, First::Ours { ready: None });
        }
    }

    #[test]
    fn a_reply_without_words_negotiates_nothing() {
        for (requested, wants_crc) in [(NO, false), (NO, true), (CRC, false), (CRC, true)] {
            for revision in [Revision::One, Revision::Two] {
                let reply = Start { kind: Kind::Reply, wants_crc, revision, ..OLD };
                let terms = agree(&requested, &reply).expect("agreed");
                let (checks_crc, first) = (wants_crc || requested.crc, First::Ours { ready: None });
                assert_eq!(terms, Terms { checks_crc, ird: 16, ord: 16, first });
            }
        }
    }

    #[test]
    fn depths_are_the_smaller_ones_and_no_more_reads_come_than_are_served() {
        let reply = |ird, ord| {
            agree(&NO, &replying(Enhanced { ird, ord, ..ready(false, true, false) }))
                .map(|terms| (terms.ird, terms.ord))
        };
        assert_eq!(reply(4, 8), Ok((8, 4)));
        assert_eq!(reply(16, 16), Ok((16, 16)));
        assert_eq!(reply(1000, 0), Ok((0, 16)));
        assert_eq!(reply(0, 17), Err(Disagreement::Reads { given: 17, max: 16 }));
        assert_eq!(reply(DEPTH_MASK, DEPTH_MASK), Ok((16, 16)), "they are not negotiated");
        let read = Enhanced { ird: 0, ..ready(false, false, true) };
        assert_eq!(
            agree(&NO, &replying(read)).expect("agreed").ord,
            1,
            "it is the ready-to-receive message"
        );
        let asked = |ird, ord| {
            let (reply, terms) = answered(&asking(Enhanced { ird, ord, ..Enhanced::default() }));
            let chosen = reply.enhanced.expect("revision 2");
            assert_eq!((terms.ird, terms.ord), (chosen.ird.into(), chosen.ord.into()));
            (terms.ird, terms.ord)
        };
        assert_eq!(asked(4, 8), (8, 4));
        assert_eq!(asked(1000, 1000), (16, 16));
        assert_eq!(asked(DEPTH_MASK, DEPTH_MASK), (16, 16));
        assert_eq!(asked(0, 0), (0, 0));
    }

    #[test]
    fn a_depth_that_has_no_room_on_the_wire_is_the_largest_that_has() {
        for reads in [0x3ffe, 0x3fff, 0x4000, 0xffff, 0x1_0000, u32::MAX] {
            let words = request(&Requested { ird: reads, ord: reads, ..NO }).enhanced;
            let words = words.expect("revision 2");
            assert_eq!((words.ird, words.ord), (0x3ffe, 0x3ffe));
        }
    }

    #[test]
    fn markers_are_refused() {
        for request in [OLD, asking(ready(false, true, true))] {
            let wants = Start { wants_markers: true, wants_crc: true, ..request };
            assert_eq!(answer(&wants, &NO), Err(Disagreement::Markers));
            let reply = reject(&wants);
            assert_eq!((reply.kind, reply.revision), (Kind::Reply, request.revision));
            assert!(reply.is_rejected && !reply.wants_markers && reply.wants_crc);
            assert_eq!(reply.enhanced, request.enhanced.map(|_| Enhanced::default()));
            assert_eq!(agree(&NO, &wants), Err(Disagreement::Markers));
        }
    }

    /// All choices of three messages.
    const ALL: [[bool; 3]; 8] = [
        [false, false, false],
        [false, false, true],
        [false, true, false],
        [false, true, true],
        [true, false, false],
        [true, false, true],
        [true, true, false],
        [true, true, true],
    ];
}
