//! The plan of a message: its transmissions, and the pieces that each is gathered from.
//!
//! ```text
//!   GroupPlan ──next_transmission()──▶ Transmission ──pieces()──▶ Payload | Zero | Bulk | Zero | Bulk
//! ```
//! A plan holds the decisions (which items are placed, in which segments); transmissions and pieces
//! are computed on demand. The *stream* is the payload stream as the peer sees it: the program's
//! payload bytes with every item that is not placed put back in, padded (wire.md E16).

use core::ops::Range;

use rpcrdma_xdr::array::{Array, Wire};
use rpcrdma_xdr::chunk::ChunkLists;
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::header::{Body, Header, Optional};
use rpcrdma_xdr::numbers::opttype;
use rpcrdma_xdr::one_chunk::BaseStart;
use rpcrdma_xdr::rtr::fixed::{Operation, ReqEnd, RespEnd, Stamp};
use rpcrdma_xdr::rtr::placement::{Loc, MsgItem, RsdSet, Tbsns};
use rpcrdma_xdr::rtr::structure::{RecvStructure, SegmentRun};
use rpcrdma_xdr::rtr::transmit::XmtCont;

use crate::demand::{Exposed, Want};
use crate::item::{BulkItem, ItemSet};
use crate::layout::{self, CONT_LEN, Layout, Run, Walk, WalkBounds};
use crate::placement::direct;
use crate::placement::exrw;
use crate::placement::inline::{Direction, InlinePlan};
use crate::placement::lists::{CallLists, ReplyLists};

/// How a message is sent.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on one stack, and nothing is allocated")]
pub enum Plan<'a> {
    /// In one RDMA_MSG, all of it the program's payload.
    Inline(InlinePlan),
    /// In anything else.
    Group(GroupPlan<'a>),
}

impl Plan<'_> {
    /// Transmissions that the message takes.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        match self {
            Self::Inline(_) => 1,
            Self::Group(plan) => plan.count(),
        }
    }

    /// The handle that the last transmission of the message is to invalidate.
    #[inline]
    #[must_use]
    pub fn invalidate(&self) -> Option<u32> {
        match self {
            Self::Inline(plan) => plan.invalidate,
            Self::Group(plan) => plan.invalidate(),
        }
    }

    /// Whether an item is placed by Send.
    #[must_use]
    pub fn is_placed(&self, item: usize) -> bool {
        match self {
            Self::Inline(_) => false,
            Self::Group(plan) => plan.is_placed(item),
        }
    }
}

/// What the first header of a group is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form<'a> {
    /// RDMA_MSG: a single transmission, nothing placed.
    Msg(Direction),
    /// A base call with chunks.
    ChunkCall(CallLists),
    /// The base reply to a call with chunks.
    ChunkReply(ReplyLists<'a>),
    /// A transmit request. A result with memory has its list in `exposed`.
    Request { wants: &'a [Want], offered: ItemSet, rsbuf: u32 },
    /// A transmit response to these directions.
    Response { rsd: Array<'a, RsdSet<'a>> },
}

impl Form<'_> {
    /// Whether it is a call or a reply.
    pub(crate) fn direction(&self) -> Direction {
        match self {
            Self::Msg(direction) => *direction,
            Self::ChunkCall(_) | Self::Request { .. } => Direction::Call,
            Self::ChunkReply(_) | Self::Response { .. } => Direction::Reply,
        }
    }
}

/// A message laid out in transmissions.
#[derive(Debug)]
pub struct GroupPlan<'a> {
    pub(crate) form: Form<'a>,
    xid: u32,
    pub(crate) stream: u32,
    pub(crate) items: &'a [BulkItem],
    placed: ItemSet,
    /// Items moved by explicit RDMA.
    pub(crate) direct: ItemSet,
    exposed: Exposed<'a>,
    header_len: u32,
    first_room: u32,
    cont_room: u32,
    count: u32,
    pub(crate) gather_max: u32,
    next: u32,
    pub(crate) writes: WriteCursor,
    /// What the last transmission invalidates.
    pub(crate) handle: Option<u32>,
    /// Before the first placed item.
    start: Walk,
    bulk: BulkCursor,
}

/// One transmission of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmission {
    /// Its number in the group, from 0.
    pub index: u32,
    /// Bytes of its header.
    pub header_len: u32,
    /// Its part of the stream.
    pub payload: Range<u32>,
    /// All its bytes on the wire.
    pub len: u32,
    /// Where its items begin.
    pub(super) bulk: BulkCursor,
}

/// How far the placed items are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BulkCursor {
    /// The item that is next, or under way.
    item: usize,
    /// Bytes of it that are sent.
    done: u32,
    /// The number of its first segment, once that is known.
    first: Option<u32>,
    /// The segment that continues it, counted in the transmission.
    k: u32,
    /// Behind the items whose first segment is known.
    walk: Walk,
}

/// A part of a placed item that lies in one piece in a transmission.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub(super) item: usize,
    pub(super) start: u32,
    pub(super) len: u32,
    /// Where it begins in the transmission.
    pub(super) at: u32,
}

/// How far the RDMA Writes of a message are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WriteCursor {
    /// The Write chunk, or the direction; behind the last Write chunk it is the Reply chunk.
    pub(crate) chunk: usize,
    pub(crate) segment: usize,
    /// Bytes of the segment that are written.
    pub(crate) within: u32,
    /// Bytes of the item, or of the message, that are written.
    pub(crate) done: u32,
}

/// What a plan is made from.
pub(crate) struct Sizes<'a> {
    pub(crate) form: Form<'a>,
    pub(crate) xid: u32,
    pub(crate) stream: u32,
    pub(crate) items: &'a [BulkItem],
    pub(crate) placed: ItemSet,
    pub(crate) direct: ItemSet,
    pub(crate) exposed: Exposed<'a>,
    pub(crate) gather_max: u32,
}

impl<'a> GroupPlan<'a> {
    /// A plan with the items where `layout` puts them.
    #[inline]
    pub(crate) fn new(sizes: Sizes<'a>, layout: &Layout) -> Self {
        Self {
            form: sizes.form,
            xid: sizes.xid,
            stream: sizes.stream,
            items: sizes.items,
            placed: sizes.placed,
            direct: sizes.direct,
            exposed: sizes.exposed,
            header_len: layout.header_len,
            first_room: layout.first_room,
            cont_room: layout.cont_room,
            count: layout.count,
            gather_max: sizes.gather_max,
            next: 0,
            writes: WriteCursor::default(),
            handle: None,
            start: layout.walk,
            bulk: BulkCursor { item: 0, done: 0, first: None, k: 0, walk: layout.walk },
        }
    }

    /// The next transmission, for buffers of the peer's structure.
    pub(crate) fn next_transmission(&mut self, structure: &RecvStructure) -> Option<Transmission> {
        let index = self.next;
        if index == self.count {
            return None;
        }
        self.next += 1;
        let header_len = if index == 0 { self.header_len } else { CONT_LEN };
        let payload = self.payload_of(index);
        let bulk = self.bulk;
        let mut len = header_len + (payload.end - payload.start);
        while !self.placed.is_empty()
            && let Some(stretch) = self.stretch(structure, index)
        {
            debug_assert!(stretch.at >= len, "an item begins behind what is before it");
            len = stretch.at + stretch.len;
        }
        self.bulk.k = 0;
        Some(Transmission { index, header_len, payload, len, bulk })
    }

    /// The layout of the items, which is recomputed item by item on demand.
    fn bounds(&self) -> WalkBounds {
        WalkBounds { count_max: self.count, gather_max: self.gather_max }
    }

    /// Encodes the header of a transmission, exactly its `header_len` bytes.
    pub(crate) fn encode_header(
        &self,
        structure: &RecvStructure,
        transmission: &Transmission,
        stamp: Stamp,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let pslen = transmission.payload.end - transmission.payload.start;
        let Stamp { vers, credit } = stamp;
        let header = |body| Header { xid: self.xid, vers, credit, body };
        if transmission.index > 0 {
            let itype = match self.form.direction() {
                Direction::Call => opttype::XMTREQ,
                Direction::Reply => opttype::XMTRESP,
            };
            let cont = XmtCont { xnum: transmission.index, itype, pslen };
            return header(Body::Optional(Optional::XmtCont(cont))).encode(writer);
        }
        match self.form {
            Form::Msg(_) => header(Body::Msg(ChunkLists::EMPTY)).encode(writer),
            Form::ChunkCall(lists) => {
                writer.put(&BaseStart::new(self.xid, stamp, lists.proc()))?;
                lists.encode(self.items, self.direct, &self.exposed, writer)
            }
            Form::ChunkReply(lists) => {
                writer.put(&BaseStart::new(self.xid, stamp, lists.proc()))?;
                lists.encode(self.items, self.direct, self.stream, writer)
            }
            Form::Request { wants, offered, rsbuf } => {
                writer.put(&self.operation(opttype::XMTREQ, stamp))?;
                self.encode_request(structure, wants, offered, writer)?;
                writer.put(&ReqEnd::new(self.count, rsbuf, pslen))
            }
            Form::Response { rsd } => {
                writer.put(&self.operation(opttype::XMTRESP, stamp))?;
                self.encode_response(structure, &rsd, writer)?;
                writer.put(&RespEnd::new(self.count, pslen))
            }
        }
    }

    /// The lists of a transmit request: item by item, since a list of as many as there can be is
    /// kilobytes to be moved.
    fn encode_request(
        &self,
        structure: &RecvStructure,
        wants: &[Want],
        offered: ItemSet,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let apart = self.apart();
        writer.put_u32(apart.len())?;
        let mut walk = self.start;
        for index in apart.iter() {
            self.entry(index, &mut walk, structure).encode(writer)?;
        }
        writer.put_u32(direct::ranges(wants).count() as u32)?;
        let mut index = 0;
        for set in direct::ranges(wants) {
            let (begin, end) = set.first().map_or((0, 0), |want| (want.begin, want.end));
            for word in [begin, end, set.len() as u32] {
                writer.put_u32(word)?;
            }
            for want in set {
                let list = || self.exposed.wants.of(offered, index);
                want.direction(offered.contains(index).then(list)).encode(writer)?;
                index += 1;
            }
        }
        Ok(())
    }

    /// The list of a transmit response: its items stand where the directions were, with the lengths
    /// that are written (wire.md E25, E27).
    fn encode_response(
        &self,
        structure: &RecvStructure,
        rsd: &Array<'_, RsdSet<'_>>,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        // It matched when the plan was made; directions and items are the same now.
        let matches = direct::match_items(rsd, self.items).unwrap_or_default();
        writer.put_u32(matches.len() as u32)?;
        let mut walk = self.start;
        let directions = rsd.iter().flat_map(|set| set.items.iter());
        for (found, direction) in matches.iter().zip(directions) {
            match found.item.map(usize::from) {
                Some(index) if self.is_direct(index) => {
                    let segments = exrw::segments_of(&direction);
                    exrw::encode_written(&self.items[index], segments, writer)?;
                }
                // Directions meet the items in order, so the placed ones are walked in order.
                Some(index) => self.entry(index, &mut walk, structure).encode(writer)?,
                None => direct::NO_ITEM.encode(writer)?,
            }
        }
        Ok(())
    }

    /// What the header of an operation begins with.
    fn operation(&self, opttype: u32, stamp: Stamp) -> Operation {
        Operation::new(self.xid, stamp, opttype, self.header_len)
    }

    /// The handle that the last transmission of the message is to invalidate.
    #[must_use]
    pub fn invalidate(&self) -> Option<u32> {
        self.handle
    }

    /// Transmissions that the message takes.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The RPC's xid.
    #[must_use]
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// Bytes of the first header.
    #[must_use]
    pub fn header_len(&self) -> u32 {
        self.header_len
    }

    /// Whether it is a call or a reply.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.form.direction()
    }

    /// Whether an item is placed by Send.
    #[must_use]
    pub fn is_placed(&self, item: usize) -> bool {
        self.placed.contains(item)
    }

    /// Whether an item is moved by explicit RDMA.
    #[must_use]
    pub fn is_direct(&self, item: usize) -> bool {
        self.direct.contains(item)
    }

    /// The items that are not in the payload stream.
    pub(super) fn apart(&self) -> ItemSet {
        self.placed.union(self.direct)
    }

    /// How the first header describes an item.
    fn entry(&self, index: usize, walk: &mut Walk, structure: &RecvStructure) -> MsgItem<'a> {
        let item = &self.items[index];
        if self.is_direct(index) {
            let segments = Array::from_slice(self.exposed.items.of(self.direct, index));
            return MsgItem { disp: item.position, length: item.len, loc: Loc::Exrw(segments) };
        }
        if !self.is_placed(index) {
            return direct::too_short(item);
        }
        match walk.place(structure, self.bounds(), item) {
            Ok(Run { first, count }) => {
                let segments = Tbsns::run(first, count);
                // [RTR] 7.3: our items begin at the start of their first segment.
                let loc = Loc::Tbsn { offset: 0, segments };
                MsgItem { disp: item.position, length: item.len, loc }
            }
            Err(error) => {
                debug_assert!(false, "it was laid out before: {error:?}");
                direct::too_short(item)
            }
        }
    }

    /// The part of the stream that a transmission carries.
    fn payload_of(&self, index: u32) -> Range<u32> {
        layout::part_of(self.first_room, self.cont_room, self.stream, index)
    }

    fn stretch(&mut self, structure: &RecvStructure, index: u32) -> Option<Stretch> {
        let mut bulk = self.bulk;
        let stretch = self.next_stretch(&mut bulk, structure, index);
        self.bulk = bulk;
        stretch
    }

    /// The next part of a placed item in transmission `index`, and where the one after it begins.
    pub(super) fn next_stretch(
        &self,
        bulk: &mut BulkCursor,
        structure: &RecvStructure,
        index: u32,
    ) -> Option<Stretch> {
        if bulk.done == 0 {
            while bulk.item < self.items.len() && !self.is_placed(bulk.item) {
                bulk.item += 1;
            }
            let item = self.items.get(bulk.item)?;
            let first = match bulk.first {
                Some(first) => first,
                None => bulk.walk.place(structure, self.bounds(), item).ok()?.first,
            };
            bulk.first = Some(first);
            let k_max = structure.placement_count();
            bulk.k = first - index * k_max;
            if bulk.k >= k_max {
                return None;
            }
        }
        let (item, start) = (bulk.item, bulk.done);
        let total = self.items.get(item)?.len;
        let mut run = structure.run(bulk.k)?;
        let at = run.first.start;
        loop {
            let SegmentRun { first, count } = run;
            let room = count * first.length;
            bulk.done += room.min(total - bulk.done);
            bulk.k += count;
            if bulk.done == total {
                break;
            }
            match structure.run(bulk.k) {
                Some(next) if next.first.start == first.start + room => run = next,
                _ => break,
            }
        }
        let len = bulk.done - start;
        if bulk.done == total {
            *bulk = BulkCursor { item: item + 1, done: 0, first: None, k: 0, walk: bulk.walk };
        }
        Some(Stretch { item, start, len, at })
    }
}
