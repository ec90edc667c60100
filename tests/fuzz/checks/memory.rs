//! Memory that one side exposes and the other reads or writes, by handle.

use std::collections::BTreeMap;

use rpcrdma_proto::{CallRoute, Exposed, ItemSet, Offered, SegmentLists, Want};
use rpcrdma_xdr::RdmaSegment;

use super::content::Content;

/// The exposed memory of one side.
#[derive(Debug, Default)]
pub struct Memory {
    regions: BTreeMap<u32, Vec<u8>>,
    last: u32,
}

/// The memory exposed for one call.
#[derive(Debug, Default)]
pub struct Laid {
    items: Lists,
    wants: Lists,
    set: ItemSet,
    body: Vec<RdmaSegment>,
    reply: Vec<RdmaSegment>,
}

#[derive(Debug, Default)]
struct Lists {
    segments: Vec<RdmaSegment>,
    ends: Vec<u16>,
}

impl Memory {
    /// Exposes bytes in some pieces, each with a handle and an address of its own.
    fn expose(&mut self, bytes: &[u8], pieces: u32) -> Vec<RdmaSegment> {
        let len = bytes.len().div_ceil(pieces.max(1) as usize).max(1);
        bytes.chunks(len).map(|piece| self.expose_piece(piece)).collect()
    }

    fn expose_piece(&mut self, piece: &[u8]) -> RdmaSegment {
        self.last += 1;
        let handle = self.last;
        self.regions.insert(handle, piece.to_vec());
        RdmaSegment { handle, length: piece.len() as u32, offset: address(handle) }
    }

    /// Ends the exposure of a call's memory.
    pub fn conceal(&mut self, laid: &Laid) {
        for segment in laid.all() {
            self.regions.remove(&segment.handle);
        }
    }

    /// Whether a handle names exposed memory.
    pub fn is_exposed(&self, handle: u32) -> bool {
        self.regions.contains_key(&handle)
    }

    /// RDMA Read. `None` if the memory is not exposed.
    pub fn read(&self, segment: RdmaSegment) -> Option<&[u8]> {
        let region = self.regions.get(&segment.handle)?;
        let start = usize::try_from(segment.offset.checked_sub(address(segment.handle))?).ok()?;
        region.get(start..start.checked_add(segment.length as usize)?)
    }

    /// RDMA Write. `None` if the memory is not exposed.
    pub fn write(&mut self, segment: RdmaSegment, bytes: &[u8]) -> Option<()> {
        let region = self.regions.get_mut(&segment.handle)?;
        let start = usize::try_from(segment.offset.checked_sub(address(segment.handle))?).ok()?;
        region.get_mut(start..start.checked_add(bytes.len())?)?.copy_from_slice(bytes);
        Some(())
    }

    /// The first `len` bytes of some segments.
    pub fn gather(&self, segments: &[RdmaSegment], len: u32) -> Vec<u8> {
        let bytes = segments.iter().flat_map(|segment| self.read(*segment).expect("exposed"));
        let bytes: Vec<u8> = bytes.copied().take(len as usize).collect();
        assert_eq!(bytes.len(), len as usize, "no more than was offered is there");
        bytes
    }

    /// Whether nothing is exposed.
    pub fn is_concealed(&self) -> bool {
        self.regions.is_empty()
    }
}

/// The start address of a handle's memory.
fn address(handle: u32) -> u64 {
    u64::from(handle) * 0x0001_0001_0000_1004
}

impl Laid {
    /// Exposes what the route of a call names.
    pub fn new(memory: &mut Memory, route: &CallRoute, content: &Content, wants: &[Want]) -> Self {
        let mut laid = Self { set: route.wants, ..Self::default() };
        for (index, item) in content.items.iter().enumerate() {
            if route.items.contains(index) {
                laid.items.push(memory.expose(&content.bulk[index], item.pieces));
            }
        }
        for (index, want) in wants.iter().enumerate() {
            if route.wants.contains(index) {
                laid.wants
                    .push(memory.expose(&vec![UNWRITTEN; want.max_len as usize], want.pieces));
            }
        }
        if route.body > 0 {
            let body = content.stream_without(|index| route.items.contains(index));
            assert_eq!(body.len() as u32, route.body, "all that is not read apart");
            laid.body = memory.expose(&body, 1);
        }
        laid.reply = memory.expose(&vec![UNWRITTEN; route.reply as usize], 1);
        laid
    }

    /// For the plan of the call.
    pub fn exposed(&self) -> Exposed<'_> {
        let (items, wants) = (self.items.lists(), self.wants.lists());
        Exposed { items, wants, body: &self.body, reply: &self.reply }
    }

    /// For the reply.
    pub fn offered(&self) -> Offered<'_> {
        Offered { set: self.set, wants: self.wants.lists(), reply: &self.reply }
    }

    /// All segments.
    pub fn all(&self) -> impl Iterator<Item = RdmaSegment> + '_ {
        let lists = [&self.items.segments, &self.wants.segments, &self.body, &self.reply];
        lists.into_iter().flatten().copied()
    }
}

impl Lists {
    fn push(&mut self, list: Vec<RdmaSegment>) {
        self.segments.extend(list);
        self.ends.push(self.segments.len() as u16);
    }

    fn lists(&self) -> SegmentLists<'_> {
        SegmentLists { segments: &self.segments, ends: &self.ends }
    }
}

/// The byte of memory that was never written.
const UNWRITTEN: u8 = 0xee;
