//! The form of a call by the base protocol: what the peer reads, what it writes, and what is inline
//!
//! ```text
//!   the reply   fits in line ──▶ with Write chunks ──▶ all of it in a Reply chunk
//!   the call    fits in line ──▶ with Read chunks ───▶ all of it at position zero
//! ```
//! Takes the first form of the reply that some form of the call is compatible with, and the first
//! such form of the call (wire.md C10). The number of segments is not known yet: a memory piece, or
//! an RDMA buffer, counts as one.

use arrayvec::ArrayVec;
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::numbers::limit::{ITEM_SEGMENTS_MAX, MITEMS_MAX, READ_SEGMENTS_MAX};
use rpcrdma_xdr::numbers::size;

use crate::demand::{CallDemand, CallForm, CallRoute, Explicit, Exposed, Want, WantKind};
use crate::error::{Misuse, SendError};
use crate::item::ItemSet;
use crate::layout::Layout;
use crate::placement::lists::{CallLists, READ_LEN, chunk_len};
use crate::placement::spread::spread;
use crate::property::PeerLimits;
use crate::segments::total_len;
use crate::settings::Interop;

/// The limits of both ends of a base message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends<'s> {
    pub(crate) peer: &'s PeerLimits,
    pub(crate) interop: &'s Interop,
    /// The longest transmission that the peer sends to us.
    pub(crate) reply_size: u32,
    /// The longest header that we find in it (wire.md W1).
    pub(crate) reply_first: u32,
}

/// One form of the reply.
#[derive(Debug, Clone, Copy)]
struct ChunkReplyWay {
    writes: ItemSet,
    /// Bytes of the Reply chunk; 0 for none.
    reply: u32,
    /// Bytes that the lists add to a header.
    lists_len: u32,
}

/// One form of the call.
#[derive(Debug, Clone, Copy)]
struct CallWay {
    reads: ItemSet,
    is_fetched: bool,
}

impl CallWay {
    const IN_LINE: Self = Self { reads: ItemSet::EMPTY, is_fetched: false };
}

impl Ends<'_> {
    /// The form of a call whose items and results are checked.
    ///
    /// # Errors
    /// [`SendError::NoRoute`] if there is none.
    #[inline(never)]
    pub(crate) fn route(&self, demand: &CallDemand<'_>) -> Result<CallRoute, SendError> {
        for reply in self.reply_ways(demand) {
            if let Some(route) = self.join(demand, &reply, &CallWay::IN_LINE) {
                return Ok(route);
            }
            for call in &self.other_call_ways(demand) {
                if let Some(route) = self.join(demand, &reply, call) {
                    return Ok(route);
                }
            }
        }
        let CallDemand { payload, items, wants, reply_payload_max, .. } = demand;
        Err(SendError::NoRoute {
            payload: *payload,
            bulk: sum(items.iter().map(|item| item.len)),
            reply: sum(wants.iter().map(|want| want.max_len)).saturating_add(*reply_payload_max),
            call_max: self.peer.recv_size,
            reply_max: self.reply_size,
        })
    }

    /// The forms of the reply that fit our receive buffers, in the order of preference. Each is
    /// planned when it is tried: nearly always the first one is taken.
    fn reply_ways(&self, demand: &CallDemand<'_>) -> impl Iterator<Item = ChunkReplyWay> {
        let (mut asked, mut possible) = (ItemSet::EMPTY, ItemSet::EMPTY);
        for (index, want) in demand.wants.iter().enumerate() {
            if index >= self.interop.write_chunks_max as usize || !self.can_write(want, demand) {
                continue;
            }
            possible.insert(index);
            let is_asked = match want.kind {
                WantKind::Exrw => true,
                // wire.md E28
                WantKind::BySize => want.max_len > want.over,
                WantKind::Tbsn | WantKind::Choice => false,
            };
            if is_asked {
                asked.insert(index);
            }
        }
        let beside = if self.interop.write_with_reply { possible } else { ItemSet::EMPTY };
        let ways = [(asked, false), (possible, false), (beside, true), (ItemSet::EMPTY, true)];
        let ways = ways.into_iter();
        ways.filter_map(|(writes, is_long)| self.reply_way(demand, writes, is_long))
    }

    fn reply_way(
        &self,
        demand: &CallDemand<'_>,
        writes: ItemSet,
        is_long: bool,
    ) -> Option<ChunkReplyWay> {
        let apart = |index| writes.contains(index);
        let wants = demand.wants.iter().enumerate();
        let in_stream =
            wants.filter(|(index, _)| !apart(*index)).map(|(_, want)| padded(want.max_len));
        let stream = u64::from(demand.reply_payload_max) + in_stream.sum::<u64>();
        // Results without memory before one with memory get an empty chunk.
        let chunks = demand.wants.get(..writes.last().map_or(0, |last| last + 1))?;
        let mut lists_len = 0;
        for (index, want) in chunks.iter().enumerate() {
            let segments = if apart(index) { want.segments(demand.explicit)? } else { 0 };
            lists_len += 4 + chunk_len(segments);
        }
        if !is_long {
            let header_len = size::HEADER_MIN as u32 + lists_len;
            let fits = header_len + 8 <= self.reply_first
                && u64::from(header_len) + stream <= u64::from(self.reply_size);
            let fits = fits && (writes.is_empty() || demand.can_have_written(writes, 0));
            return fits.then_some(ChunkReplyWay { writes, reply: 0, lists_len });
        }
        let reply = u32::try_from(stream).ok()?;
        let buffers = self.rdma_buffers(reply, demand.explicit)?;
        if !demand.can_have_written(writes, buffers) {
            return None;
        }
        lists_len += chunk_len(buffers);
        let fits = size::HEADER_MIN as u32 + lists_len <= self.reply_first;
        fits.then_some(ChunkReplyWay { writes, reply, lists_len })
    }

    /// The forms of the call that the peer is known to accept where all of it in line is not
    /// possible, in the order of preference.
    fn other_call_ways(
        &self,
        demand: &CallDemand<'_>,
    ) -> ArrayVec<CallWay, { MITEMS_MAX as usize + 2 }> {
        let way = |reads, is_fetched| CallWay { reads, is_fetched };
        let mut ways = ArrayVec::new();
        if !demand.explicit.enabled {
            return ways;
        }
        let mut order: ArrayVec<usize, { MITEMS_MAX as usize }> =
            (0..demand.items.len()).filter(|index| self.can_read(*index, demand)).collect();
        // The longest first; of equal ones the first.
        order.sort_unstable_by_key(|index| {
            let len = demand.items.get(*index).map_or(0, |item| item.len);
            (core::cmp::Reverse(len), *index)
        });
        let mut reads = ItemSet::EMPTY;
        for index in order.iter().take(self.interop.read_chunks_max as usize) {
            reads.insert(*index);
            ways.push(way(reads, false));
        }
        if self.interop.long_call_with_chunks && !reads.is_empty() {
            ways.push(way(reads, true));
        }
        ways.push(way(ItemSet::EMPTY, true));
        ways
    }

    /// Combines both forms, if their headers and data fit the peer's buffers.
    fn join(
        &self,
        demand: &CallDemand<'_>,
        reply: &ChunkReplyWay,
        call: &CallWay,
    ) -> Option<CallRoute> {
        let CallDemand { payload, items, gather_max, copy_max, explicit, .. } = *demand;
        let spread = spread(payload, items, call.reads).ok()?;
        let stream = spread.stream;
        let body = if call.is_fetched { stream } else { 0 };
        let mut entries = if call.is_fetched { self.rdma_buffers(body, explicit)? } else { 0 };
        if entries > explicit.body_max {
            return None;
        }
        for index in call.reads.iter() {
            entries = entries.saturating_add(items.get(index)?.pieces.max(1));
        }
        if entries > READ_SEGMENTS_MAX {
            return None;
        }
        let header_len = size::HEADER_MIN as u32 + entries * READ_LEN + reply.lists_len;
        let fits = match call.is_fetched {
            true => self.peer.fits_header(header_len),
            false => {
                let gathered = || spread.gathered(items, call.reads, gather_max, copy_max);
                self.peer.fits_msg(header_len, stream) && gathered() <= gather_max
            }
        };
        let first_room = if call.is_fetched { 0 } else { stream };
        fits.then_some(CallRoute {
            form: if call.is_fetched { CallForm::NoMsg } else { CallForm::Msg },
            items: call.reads,
            wants: reply.writes,
            body,
            reply: reply.reply,
            count: 1,
            reply_count: 1,
            placed: ItemSet::EMPTY,
            stream,
            layout: Layout::single(header_len, first_room),
            recv_size: self.peer.recv_size,
        })
    }

    fn can_read(&self, index: usize, demand: &CallDemand<'_>) -> bool {
        let Some(item) = demand.items.get(index) else { return false };
        let is_last = || {
            let behind = demand.items.iter().map(|item| u64::from(item.padded_len())).sum::<u64>();
            let end = u64::from(item.position) + u64::from(item.padded_len());
            end == u64::from(demand.payload) + behind
        };
        let fits = self.fits_segments(item.pieces.max(1)).is_some();
        item.len > 0 && fits && (!self.interop.read_chunk_last || is_last())
    }

    fn can_write(&self, want: &Want, demand: &CallDemand<'_>) -> bool {
        let segments = want.segments(demand.explicit);
        // wire.md E29: a result whose minimum is never reached stays in the stream.
        let is_meant = want.max_len > 0 && want.max_len >= want.min_len;
        is_meant && segments.and_then(|segments| self.fits_segments(segments)).is_some()
    }

    /// The segments of so many bytes of memory that the engine provides.
    fn rdma_buffers(&self, len: u32, explicit: Explicit) -> Option<u32> {
        self.fits_segments(explicit.buffers(len)?)
    }

    fn fits_segments(&self, segments: u32) -> Option<u32> {
        let max = self.interop.segments_max.min(ITEM_SEGMENTS_MAX);
        (segments <= max).then_some(segments)
    }
}

impl Want {
    /// The segments that its memory has at most; `None` if there is none.
    pub(crate) fn segments(&self, explicit: Explicit) -> Option<u32> {
        match self.pieces {
            _ if !explicit.enabled => None,
            0 => explicit.buffers(self.max_len),
            pieces => Some(pieces),
        }
    }
}

impl Explicit {
    /// RDMA buffers for so many bytes.
    fn buffers(self, len: u32) -> Option<u32> {
        let is_possible = self.enabled && self.rdma_buffer_len > 0;
        is_possible.then(|| len.div_ceil(self.rdma_buffer_len))
    }
}

impl PeerLimits {
    /// Whether the peer accepts a header of this length (wire.md W1).
    pub(crate) fn fits_header(&self, header_len: u32) -> bool {
        header_len <= self.structure.first_len().min(self.recv_size)
    }

    /// Whether header and payload fit a buffer of the peer, with the first words of the payload
    /// where it expects them.
    pub(crate) fn fits_msg(&self, header_len: u32, stream: u32) -> bool {
        self.fits_header(header_len.saturating_add(8))
            && u64::from(header_len) + u64::from(stream) <= u64::from(self.recv_size)
    }
}

/// The header length of a routed base call with the memory that was exposed for it.
///
/// # Errors
/// [`Misuse`] if the memory differs from the route's.
pub(crate) fn check_exposed(
    route: &CallRoute,
    demand: &CallDemand<'_>,
    exposed: &Exposed<'_>,
) -> Result<u32, Misuse> {
    const WRONG: Misuse = Misuse("what is exposed is not what the route names");
    let lists = CallLists { is_fetched: route.form == CallForm::NoMsg, wants: route.wants };
    let header_len = lists.header_len(exposed);
    // The route has checked that a header of its length fits.
    let fits = header_len <= route.layout.header_len;
    if is_as_routed(route, demand, exposed) && fits { Ok(header_len) } else { Err(WRONG) }
}

/// Whether exactly the route's memory was exposed.
pub(crate) fn is_as_routed(
    route: &CallRoute,
    demand: &CallDemand<'_>,
    exposed: &Exposed<'_>,
) -> bool {
    let total = |segments: &[RdmaSegment]| total_len(segments.iter().copied());
    // There is a list for each member, in the same order.
    let items = route.items.iter().enumerate().all(|(rank, index)| {
        let len = demand.items.get(index).map_or(0, |item| item.len);
        total(exposed.items.list(rank)) == u64::from(len)
    });
    let wants = route.wants.iter().enumerate().all(|(rank, index)| {
        let len = demand.wants.get(index).map_or(0, |want| want.max_len);
        total(exposed.wants.list(rank)) >= u64::from(len)
    });
    let counts = exposed.items.len() == route.items.len() as usize
        && exposed.wants.len() == route.wants.len() as usize;
    let body = total(exposed.body) == u64::from(route.body);
    let reply = match route.reply {
        0 => exposed.reply.is_empty(),
        len => total(exposed.reply) >= u64::from(len),
    };
    items && wants && counts && body && reply
}

fn sum(lens: impl Iterator<Item = u32>) -> u32 {
    lens.fold(0, u32::saturating_add)
}

fn padded(len: u32) -> u64 {
    (u64::from(len) + 3) & !3
}
