//! Messages on their way out, and the slab they live in.
//!
//! ```text
//!   begin ──▶ building ──submit──▶ pending in a lane ──posted──▶ in flight ──completed──▶ free
//!                └──── dropped ────────────────────────────────────────────────────────▶ free
//! ```
//! A short plain message does not come here at all: see `Outbox::send_plain`.
//!
//! A message is laid out when it is submitted: its headers are encoded and its gather lists are
//! made, so that posting is a walk over numbers. The hot half of a message is one cache line; the
//! other half is touched only by messages with bulk or with more payload than one slot holds.

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Loan, RegisteredSlice, SendSlot, Sge, Token};
use rpcrdma_proto::BulkItem;

/// No message.
pub(crate) const NONE: u32 = u32::MAX;
/// Payload slots of a message.
pub(crate) const SLOTS_MAX: usize = 64;
/// Contiguous pieces of bulk of one message.
pub const PIECES_MAX: usize = 24;
/// Bulk items of one message.
pub const ITEMS_MAX: usize = 8;
/// Work requests of a message: the transmissions of a group.
pub(crate) const REQUESTS_MAX: usize = 64;
/// Gather entries of a message, all work requests together.
const GATHER_MAX: usize = 320;

/// Registered memory that a message gathers bulk from, without a copy.
#[derive(Debug)]
pub enum Bulk {
    /// Memory of the program's own; it goes home to its pool when the message has left.
    Loan(Loan),
    /// Bytes of a region that was registered to be read by everybody.
    Registered(RegisteredSlice),
}

impl Bulk {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Bulk::Loan(loan) => loan.len(),
            Bulk::Registered(bytes) => bytes.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn sge(&self, start: u32, len: u32) -> Sge {
        match self {
            Bulk::Loan(loan) => loan.sge(start as usize..(start + len) as usize),
            Bulk::Registered(bytes) => {
                let whole = bytes.sge();
                debug_assert!(start + len <= whole.length, "the part lies in the slice");
                Sge { addr: whole.addr + u64::from(start), length: len, ..whole }
            }
        }
    }
}

impl From<Loan> for Bulk {
    fn from(loan: Loan) -> Bulk {
        Bulk::Loan(loan)
    }
}

impl From<RegisteredSlice> for Bulk {
    fn from(bytes: RegisteredSlice) -> Bulk {
        Bulk::Registered(bytes)
    }
}

/// The kind of the slots that continuation headers are written to.
#[derive(Debug)]
pub(crate) enum Headers {}

/// The hot half of a message.
pub(crate) struct Head {
    /// The next message of the same list.
    pub next: u32,
    /// The sequence number in its lane of its last work request, once posted.
    pub seq: u32,
    /// Work requests in the body; 0 for a message that is one gather entry of `slot`.
    pub requests: u16,
    /// How many of them were posted.
    pub posted: u16,
    /// Bytes in the headroom of `slot`, for a message of one gather entry.
    pub header_len: u32,
    /// Bytes in its payload area, likewise.
    pub payload_len: u32,
    /// The payload slot of a message of one gather entry.
    pub slot: Option<SendSlot>,
    /// Whether the body has anything to be given back.
    pub body: bool,
}

/// The other half of a message.
#[derive(Default)]
pub(crate) struct Body {
    /// The payload slots, in order.
    pub slots: ArrayVec<SendSlot, SLOTS_MAX>,
    /// Where the headers of its continuations are.
    pub headers: Option<Token<Headers>>,
    /// The bulk items, in stream order.
    pub items: ArrayVec<Item, ITEMS_MAX>,
    /// What they are gathered from.
    pub pieces: ArrayVec<Bulk, PIECES_MAX>,
    /// Where the gather list of each work request ends in `gather`.
    pub ends: ArrayVec<u16, REQUESTS_MAX>,
    /// The gather lists, one behind the other.
    pub gather: ArrayVec<Sge, GATHER_MAX>,
}

/// A bulk item of a message under construction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    /// What the protocol wants to know of it.
    pub item: BulkItem,
    /// Its first piece.
    pub first: u8,
}

impl Body {
    /// The gather list of work request `index`.
    pub fn request(&self, index: usize) -> &[Sge] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.gather[start..self.ends[index] as usize]
    }

    /// Appends the gather entries of `len` bytes at `start` of an item. `None` if there is no room.
    pub fn gather_item(&mut self, item: usize, start: u32, len: u32) -> Option<()> {
        let Item { item, first } = *self.items.get(item)?;
        let (mut skip, mut left) = (start, len);
        for piece in &self.pieces[first as usize..first as usize + item.pieces as usize] {
            let piece_len = piece.len() as u32;
            let part = left.min(piece_len.saturating_sub(skip));
            if part > 0 {
                self.gather.try_push(piece.sge(skip, part)).ok()?;
            }
            left -= part;
            skip = skip.saturating_sub(piece_len);
        }
        (left == 0).then_some(())
    }
}

/// The slab of messages: as many as the budget allows to be on their way at one time.
pub(crate) struct Messages {
    heads: Box<[Head]>,
    bodies: Box<[Body]>,
    free: Vec<u32>,
}

impl Messages {
    pub fn new(count: usize) -> Messages {
        let head = || Head {
            next: NONE,
            seq: 0,
            requests: 0,
            posted: 0,
            header_len: 0,
            payload_len: 0,
            slot: None,
            body: false,
        };
        Messages {
            heads: (0..count).map(|_| head()).collect(),
            bodies: (0..count).map(|_| Body::default()).collect(),
            free: (0..count as u32).rev().collect(),
        }
    }

    /// An empty message. There are as many as slots, and whoever asks holds one.
    #[inline]
    pub fn begin(&mut self) -> Option<u32> {
        let index = self.free.pop()?;
        let head = &mut self.heads[index as usize];
        head.requests = 0;
        head.posted = 0;
        Some(index)
    }

    /// Frees a message whose body has been emptied, and hands its slot out.
    #[inline]
    pub fn release(&mut self, index: u32) -> Option<SendSlot> {
        let head = &mut self.heads[index as usize];
        head.body = false;
        self.free.push(index);
        head.slot.take()
    }

    #[inline]
    pub fn head(&self, index: u32) -> &Head {
        &self.heads[index as usize]
    }

    #[inline]
    pub fn head_mut(&mut self, index: u32) -> &mut Head {
        &mut self.heads[index as usize]
    }

    /// The message behind this one in its list.
    #[inline]
    pub fn next(&self, index: u32) -> Option<u32> {
        let next = self.heads[index as usize].next;
        (next != NONE).then_some(next)
    }

    /// The other half of a message, for reading.
    pub fn body(&self, index: u32) -> &Body {
        &self.bodies[index as usize]
    }

    /// The other half of a message; it will be given back with the message.
    pub fn body_mut(&mut self, index: u32) -> &mut Body {
        self.heads[index as usize].body = true;
        &mut self.bodies[index as usize]
    }

    /// Messages in all.
    pub fn capacity(&self) -> usize {
        self.heads.len()
    }

    /// Messages that nobody has.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Leaves everything that messages hold where it is, for good: a device may still read it.
    #[cold]
    pub fn forget(&mut self) {
        core::mem::forget(core::mem::take(&mut self.heads));
        core::mem::forget(core::mem::take(&mut self.bodies));
        self.free.clear();
    }
}

/// A list of messages in order, linked through their heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Queue {
    pub const EMPTY: Queue = Queue { head: NONE, tail: NONE, len: 0 };

    #[inline]
    pub fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    #[inline]
    pub fn push(&mut self, messages: &mut Messages, index: u32) {
        messages.head_mut(index).next = NONE;
        match self.tail {
            NONE => self.head = index,
            tail => messages.head_mut(tail).next = index,
        }
        self.tail = index;
        self.len += 1;
    }

    /// How many messages there are.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Puts a message in front of all others.
    #[cold]
    pub fn push_front(&mut self, messages: &mut Messages, index: u32) {
        messages.head_mut(index).next = self.head;
        if self.head == NONE {
            self.tail = index;
        }
        self.head = index;
        self.len += 1;
    }

    /// Takes the first message out.
    #[inline]
    pub fn pop(&mut self, messages: &Messages) -> Option<u32> {
        let index = self.front()?;
        self.head = messages.head(index).next;
        self.len -= 1;
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(index)
    }
}
