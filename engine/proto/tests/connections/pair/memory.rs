//! The memory of a caller, and messages with items in it.

use std::collections::BTreeMap;

use rpcrdma_proto::*;
use rpcrdma_xdr::RdmaSegment;

use super::{STALE, rpc};

/// The memory of a caller: what was exposed, by handle.
#[derive(Default)]
pub struct Memory {
    pub regions: BTreeMap<u32, (u64, Vec<u8>)>,
}

impl Memory {
    /// Exposes bytes as so many segments at most, of uneven lengths.
    pub fn expose(&mut self, bytes: &[u8], segments_max: usize) -> Vec<RdmaSegment> {
        let segments_max = segments_max.max(1);
        let share = bytes.len().div_ceil(segments_max).max(1);
        let mut rest = bytes;
        let mut segments = Vec::new();
        while !rest.is_empty() {
            // The first is shorter if there is more than one, so that boundaries are odd.
            let len = if segments.len() + 1 == segments_max {
                rest.len()
            } else {
                share.saturating_sub(usize::from(segments.is_empty())).clamp(1, rest.len())
            };
            let (these, others) = rest.split_at(len);
            rest = others;
            let handle = 0x100 + self.regions.len() as u32;
            let offset = 0x7000_0000_0001 * u64::from(handle);
            self.regions.insert(handle, (offset, these.to_vec()));
            segments.push(RdmaSegment { handle, length: len as u32, offset });
        }
        assert!(segments.len() <= segments_max);
        segments
    }

    /// The bytes that a peer reads; it must stay within one region.
    pub fn read(&self, segment: &RdmaSegment) -> Vec<u8> {
        let (base, bytes) = &self.regions[&segment.handle];
        let start = (segment.offset - base) as usize;
        bytes[start..start + segment.length as usize].to_vec()
    }

    pub fn write(&mut self, segment: &RdmaSegment, new: &[u8]) {
        assert_eq!(new.len(), segment.length as usize);
        assert!(!new.is_empty(), "no empty write");
        let (base, bytes) = self.regions.get_mut(&segment.handle).expect("it was offered");
        let start = (segment.offset - *base) as usize;
        bytes[start..start + new.len()].copy_from_slice(new);
    }

    /// The first bytes of segments, and that nothing was written behind them.
    pub fn first(&self, segments: &[RdmaSegment], len: u32) -> Vec<u8> {
        let mut bytes: Vec<u8> = segments.iter().flat_map(|segment| self.read(segment)).collect();
        let rest = bytes.split_off(len as usize);
        assert!(rest.iter().all(|byte| *byte == STALE), "nothing is written behind the end");
        bytes
    }
}

/// Lists of segments, as the engine keeps them.
#[derive(Default)]
pub struct Lists {
    pub segments: Vec<RdmaSegment>,
    pub ends: Vec<u16>,
}

impl Lists {
    pub fn push(&mut self, list: Vec<RdmaSegment>) {
        self.segments.extend(list);
        self.ends.push(self.segments.len() as u16);
    }

    pub fn lists(&self) -> SegmentLists<'_> {
        SegmentLists { segments: &self.segments, ends: &self.ends }
    }
}

/// A message as a program has it.
#[derive(Debug, Clone)]
pub struct Content {
    pub payload: Vec<u8>,
    pub items: Vec<BulkItem>,
    pub bulk: Vec<Vec<u8>>,
}

impl Content {
    /// Items lie behind the given gaps of payload; the last gap is behind the last item.
    pub fn new(xid: u32, reply: bool, shapes: &[(u32, u32, u32)], tail: u32) -> Self {
        let (mut position, mut payload_len) = (8, 8);
        let (mut items, mut bulk) = (Vec::new(), Vec::new());
        for (index, (gap, len, pieces)) in shapes.iter().enumerate() {
            position += gap * 4;
            payload_len += gap * 4;
            items.push(BulkItem { position, len: *len, origin: 0, pieces: *pieces });
            // Never zero and never stale: a hole would be seen.
            bulk.push((0..*len).map(|at| 1 + (at as u8 ^ (index as u8) << 5) % 0xed).collect());
            position += (len + 3) & !3;
        }
        Self { payload: rpc(xid, reply, (payload_len + tail * 4) as usize), items, bulk }
    }

    /// The stream without the items that are apart, with zero padding.
    pub fn stream_without(&self, apart: impl Fn(usize) -> bool) -> Vec<u8> {
        let (mut stream, mut taken, mut excised) = (Vec::new(), 0, 0);
        for (index, (item, bulk)) in self.items.iter().zip(&self.bulk).enumerate() {
            let gap = item.position as usize - excised - stream.len();
            stream.extend_from_slice(&self.payload[taken..taken + gap]);
            taken += gap;
            if apart(index) {
                excised += bulk.len().next_multiple_of(4);
            } else {
                stream.extend_from_slice(bulk);
                stream.resize(stream.len().next_multiple_of(4), 0);
            }
        }
        stream.extend_from_slice(&self.payload[taken..]);
        stream
    }

    pub fn stream(&self) -> Vec<u8> {
        self.stream_without(|_| false)
    }

    pub fn gather(&self, pieces: impl Iterator<Item = Gather>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            assert!(piece.len() > 0);
            match piece {
                Gather::Payload(range) => {
                    bytes.extend(&self.payload[range.start as usize..range.end as usize]);
                }
                Gather::Bulk { item, start, len } => {
                    bytes.extend(&self.bulk[item][start as usize..(start + len) as usize]);
                }
                Gather::Zero(len) => bytes.extend(std::iter::repeat_n(0, len as usize)),
            }
        }
        bytes
    }
}

/// A stream put together from what travelled in it and the items at their positions.
pub fn assemble(stream: &[u8], items: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut whole = Vec::new();
    let mut rest = stream;
    for (position, bytes) in items {
        let (gap, behind) = rest.split_at(*position as usize - whole.len());
        rest = behind;
        whole.extend_from_slice(gap);
        whole.extend_from_slice(bytes);
        whole.resize(whole.len().next_multiple_of(4), 0);
    }
    whole.extend_from_slice(rest);
    whole
}

/// Everything that was exposed for one call.
#[derive(Default)]
pub struct Open {
    pub memory: Memory,
    pub items: Lists,
    pub wants: Lists,
    pub body: Vec<RdmaSegment>,
    pub reply: Vec<RdmaSegment>,
}

impl Open {
    /// Exposes what a route names, in as many segments as the route allows, with room to spare in
    /// the sinks.
    pub fn new(route: &CallRoute, demand: &CallDemand<'_>, content: &Content, spare: u32) -> Self {
        let mut open = Self::default();
        let buffer_len = demand.explicit.rdma_buffer_len;
        for index in route.items.iter() {
            let pieces = content.items[index].pieces as usize;
            let list = open.memory.expose(&content.bulk[index], pieces);
            open.items.push(list);
        }
        for index in route.wants.iter() {
            let want = demand.wants[index];
            let stale = vec![STALE; (want.max_len + spare) as usize];
            let segments = match want.pieces {
                0 => want.max_len.div_ceil(buffer_len),
                pieces => pieces,
            };
            let list = open.memory.expose(&stale, segments as usize);
            open.wants.push(list);
        }
        let buffers = |len: u32| len.div_ceil(buffer_len.max(1)) as usize;
        open.body = open.memory.expose(&vec![STALE; route.body as usize], buffers(route.body));
        open.reply = open.memory.expose(&vec![STALE; route.reply as usize], buffers(route.reply));
        open
    }

    pub fn exposed(&self) -> Exposed<'_> {
        Exposed {
            items: self.items.lists(),
            wants: self.wants.lists(),
            body: &self.body,
            reply: &self.reply,
        }
    }

    pub fn offered(&self, set: ItemSet) -> Offered<'_> {
        Offered { set, wants: self.wants.lists(), reply: &self.reply }
    }
}

/// Posts the RDMA Writes of a plan.
pub fn write_all(plan: &mut Plan<'_>, content: &Content, memory: &mut Memory, gather_max: u32) {
    let Plan::Group(plan) = plan else { return };
    while let Some(write) = plan.next_write() {
        let pieces: Vec<_> = plan.write_pieces(&write).collect();
        assert!(pieces.len() as u32 <= gather_max, "{} pieces", pieces.len());
        memory.write(&write.remote, &content.gather(pieces.into_iter()));
    }
}
