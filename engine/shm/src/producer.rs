//! The sending end of a direction.
//!
//! What a request refers to is copied when it is published, into its slot or the staging area: the
//! peer cannot reach any other memory of this process. With mapped pools it stays where it is, and
//! the peer copies it. Nothing that this side wrote to shared memory is read back.
#![expect(unsafe_code, reason = "bytes are copied to shared memory by raw pointers")]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::ptr::copy_nonoverlapping;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use rpcrdma_mempool::Sge;
use rpcrdma_transport::body::{Acks, Body, Header, INLINE_LEN, OP_READ, Refusal};
use rpcrdma_transport::carrier::{Outgoing, Vacant};
use rpcrdma_transport::keys::KeyCache;

use crate::layout::Direction;
use crate::link::Link;
use crate::pools::{Files, Name, POOLS_MAX};
use crate::port::EndSpec;
use crate::staged::{IN_SLOT, STAGED, UNREADABLE};
use crate::staging::Staging;

/// The sending end.
pub struct Producer {
    link: Arc<Link>,
    direction: Direction,
    /// Position of the next slot to be published.
    head: u64,
    /// Position of the oldest slot that the peer may still read.
    freed: u64,
    /// The request that is being written.
    body: Body,
    staging: Staging,
    /// This side's Reads that are not over, by position: where their bytes go.
    reads: VecDeque<(u64, Body)>,
    /// If the peer maps this side's pools.
    exposed: Option<Exposed>,
}

/// The pools that the peer can read.
pub(crate) struct Exposed {
    /// All there are.
    pub files: Arc<Files>,
    /// Those that it can read, at most as many as it keeps.
    pools: Vec<ExposedPool>,
    /// The number of the last one.
    number: u32,
    /// Deregistrations that these were compared with.
    removals: u64,
}

/// A pool that is exposed to the peer.
struct ExposedPool {
    name: Name,
    file: Weak<OwnedFd>,
    /// It is not registered any more, and that was not reported to the peer yet.
    is_gone: bool,
}

/// The next slot, to be filled and published.
pub struct Claimed<'a> {
    producer: &'a mut Producer,
    /// Where the bytes that it refers to lie in the staging area.
    staged_at: Option<u32>,
    /// The header of a message whose bytes are in the slot, and not in the body.
    put: Option<Header>,
}

impl Producer {
    /// The sending end of a new direction.
    pub(crate) fn new(
        link: Arc<Link>,
        direction: Direction,
        exposed: Option<Exposed>,
        &EndSpec { reads_max, first, .. }: &EndSpec,
    ) -> Producer {
        let slots = direction.mask() as usize + 1;
        let staging = Staging::new(direction.staging_len(), slots);
        let reads = VecDeque::with_capacity(slots.min(reads_max as usize));
        let (head, freed, body) = (first, first, Body::empty());
        Producer { link, direction, head, freed, body, staging, reads, exposed }
    }

    /// Copies the memory that the pieces of `body` name to `to`. False if a part of it is not
    /// registered any more.
    ///
    /// # Safety
    /// `to` is writable for the length of the body, and no registered memory lies there.
    unsafe fn collect(body: &Body, mut to: *mut u8, keys: &KeyCache) -> bool {
        let mut room = body.header.byte_len;
        for piece in body.pieces() {
            let (Some(from), Some(left)) =
                (keys.locate(piece.key, piece.offset, piece.len), room.checked_sub(piece.len))
            else {
                return false;
            };
            let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
            let len = piece.len as usize;
            // SAFETY: the poster keeps the source registered and readable until the request has
            // completed. The caller guarantees the destination, of which `room` bytes are left.
            unsafe { copy_nonoverlapping(from, to, len) };
            (to, room) = (to.wrapping_add(len), left);
        }
        true
    }

    /// Puts the bytes where the peer finds them, or states where it is to leave them.
    #[inline(never)]
    fn place(&mut self, staged_at: Option<u32>, keys: &KeyCache) {
        let Header { op, byte_len: length, .. } = self.body.header;
        if op != OP_READ && self.is_mapped(keys) {
            return;
        }
        if let Some(start) = staged_at {
            self.staging.take(self.head, start, length);
        }
        let key = match staged_at {
            _ if op == OP_READ => {
                self.reads.push_back((self.head, self.body));
                if staged_at.is_some() { STAGED } else { IN_SLOT }
            }
            Some(start) => {
                let to = self.direction.staging().wrapping_add(start as usize);
                // SAFETY: `claim` has found room for so many bytes of this side's staging area.
                if unsafe { Producer::collect(&self.body, to, keys) } { STAGED } else { UNREADABLE }
            }
            None => {
                let mut bytes = [0; INLINE_LEN];
                debug_assert!(length as usize <= INLINE_LEN, "room was claimed for longer ones");
                // SAFETY: what is not claimed in the staging area fits in a slot.
                let is_there = length as usize <= INLINE_LEN
                    && unsafe { Producer::collect(&self.body, bytes.as_mut_ptr(), keys) };
                if is_there {
                    (self.body.bytes, self.body.header.pieces) = (bytes, 0);
                    return;
                }
                UNREADABLE
            }
        };
        let place = Sge { addr: staged_at.unwrap_or(0).into(), length, lkey: key };
        self.body.refer(&[place], |place| place.addr);
    }

    /// Whether the peer has mapped all pieces of the body. Exposes to it what it has not seen.
    fn is_mapped(&mut self, keys: &KeyCache) -> bool {
        let (link, Some(exposed)) = (&self.link, &mut self.exposed) else { return false };
        self.body.pieces().fold(true, |are_all, piece| {
            let is_there = keys.locate(piece.key, piece.offset, piece.len).is_some();
            is_there && exposed.has(link, piece.key) && are_all
        })
    }

    /// Where the answer to a Read lies that this side has published.
    fn answer_at(&self, position: u64) -> *const u8 {
        let in_slot = self.direction.slot(position).bytes();
        let staged = self.staging.start_of(position);
        staged.map_or(in_slot, |at| self.direction.staging().wrapping_add(at as usize)).cast_const()
    }
}

// SAFETY: the peer reaches no memory but that of the link, and pools that it may only read. What it
// reads after a withdrawal it does not use: it looks for one when it has copied. This side's copies
// are over when `publish` and `place_read` return.
unsafe impl Outgoing for Producer {
    type Vacant<'a> = Claimed<'a>;

    #[inline]
    fn slots(&self) -> u64 {
        self.direction.mask() + 1
    }

    #[inline]
    fn claim(&mut self, byte_len: u32) -> Option<Claimed<'_>> {
        if !self.has_room() {
            return None;
        }
        let is_long = byte_len as usize > INLINE_LEN;
        let staged_at = if is_long { Some(self.staging.room(byte_len)?) } else { None };
        Some(Claimed { producer: self, staged_at, put: None })
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.head - self.freed <= self.direction.mask()
    }

    #[inline]
    fn head(&self) -> u64 {
        self.head
    }

    #[inline]
    fn freed(&self) -> u64 {
        self.freed
    }

    #[inline]
    fn free(&mut self, acks: Acks, until: u64) {
        debug_assert!(until >= self.freed, "no slot is freed twice");
        debug_assert!(until <= acks.taken() && acks.taken() <= self.head, "checked by the path");
        self.freed = until.min(acks.taken());
        self.staging.free_before(self.freed);
        while self.reads.front().is_some_and(|(position, _)| *position < self.freed) {
            self.reads.pop_front();
        }
    }

    /// Whatever the peer writes, it has taken no slot that was not published, and gives none back.
    #[inline]
    fn acks(&self) -> Acks {
        let taken = self.direction.words().ack_line.0.load(Ordering::Acquire);
        Acks::up_to(taken.clamp(self.freed, self.head))
    }

    #[inline]
    fn refused(&self) -> u64 {
        self.direction.words().refused.0.load(Ordering::Relaxed)
    }

    fn outcome(&self, position: u64) -> Option<Result<(), Refusal>> {
        let result = self.direction.outcome(position);
        if result.turn.load(Ordering::Acquire) != position + 1 {
            return None;
        }
        Refusal::outcome_of(result.outcome.load(Ordering::Relaxed))
    }

    /// A link has no delay.
    #[cold]
    fn taken_at(&self, _position: u64) -> u64 {
        0
    }

    #[cold]
    fn withdraw(&self, position: u64) {
        self.direction.withdrawal(position).store(position + 1, Ordering::Relaxed);
    }

    /// There is nothing to wait for: the peer changes no memory of this side, and does not use what
    /// it has read if it sees the withdrawal, which is visible before anything that is written next.
    #[cold]
    fn quiesce(&self) {
        fence(Ordering::SeqCst);
    }

    #[cold]
    fn place_read(&mut self, position: u64, keys: &KeyCache) -> Result<(), Refusal> {
        let found = self.reads.iter().find(|(read, _)| *read == position);
        let Some((_, body)) = found else { return Err(Refusal::Unreadable) };
        let mut from = self.answer_at(position);
        for piece in body.pieces() {
            let to = keys.locate(piece.key, piece.offset, piece.len).ok_or(Refusal::Unreadable)?;
            let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
            let len = piece.len as usize;
            // SAFETY: the destination is registered for writing, which posting the Read checked,
            // and is untouched by others until the Read has completed. The source is the span that
            // was claimed for as many bytes, or the slot, if they fit there.
            unsafe { copy_nonoverlapping(from, to, len) };
            from = from.wrapping_add(len);
        }
        Ok(())
    }

    #[cold]
    fn is_abandoned(&self) -> bool {
        self.link.is_cut() || self.direction.words().abandoned.0.load(Ordering::Acquire) != 0
    }

    #[cold]
    fn reclaim(&mut self, acks: Acks) -> Acks {
        if !self.is_abandoned() {
            return acks;
        }
        let all = Acks::up_to(self.head);
        self.free(all, self.head);
        all
    }
}

impl Drop for Producer {
    /// Shows the peer that nothing more comes.
    fn drop(&mut self) {
        // A peer that sees it sees all that was published before.
        self.direction.words().closed.0.store(1, Ordering::Release);
        // A peer that has copied from a pool what this program writes there next sees it
        // afterwards.
        fence(Ordering::Release);
    }
}

impl Vacant for Claimed<'_> {
    #[inline]
    fn body(&mut self) -> &mut Body {
        &mut self.producer.body
    }

    #[inline(always)]
    unsafe fn put(&mut self, header: Header, from: *const u8) {
        let Producer { direction, head, .. } = &*self.producer;
        self.put = Some(header);
        let len = header.byte_len as usize;
        // SAFETY: the caller guarantees the source and the length. The slot is this side's: the peer
        // has returned it, or harms itself.
        unsafe { copy_nonoverlapping(from, direction.slot(*head).bytes(), len) };
    }

    /// A link has no delay.
    #[inline]
    fn stamp(&mut self, _now_ns: u64) {}

    #[inline]
    fn set_target(&mut self, addr: u64) {
        let Producer { direction, head, .. } = &self.producer;
        direction.target(*head).store(addr, Ordering::Relaxed);
    }

    #[inline]
    fn publish(self, acks: Acks, keys: &KeyCache) {
        let Claimed { producer, staged_at, put } = self;
        // A Read of nothing has no pieces, and an answer.
        let Header { pieces, op, .. } = producer.body.header;
        if put.is_none() && (pieces != 0 || op == OP_READ) {
            producer.place(staged_at, keys);
        }
        let Producer { direction, body, head, .. } = producer;
        let slot = direction.slot(*head);
        let header = put.unwrap_or_else(|| {
            let Body { header, bytes } = &*body;
            // SAFETY: so many bytes are in the body, and as many in the slot, which is this side's,
            // as above.
            unsafe { copy_nonoverlapping(bytes.as_ptr(), slot.bytes(), header.slot_len()) };
            *header
        });
        let header = Header { acks, ..header };
        for (word, value) in slot.header.iter().zip(words(&header)) {
            word.store(value, Ordering::Relaxed);
        }
        slot.turn.store(*head + 1, Ordering::Release);
        *head += 1;
    }
}

impl Exposed {
    /// None yet.
    pub(crate) fn new(files: Arc<Files>) -> Exposed {
        let removals = files.removals();
        Exposed { files, pools: Vec::new(), number: 0, removals }
    }

    /// Whether the peer has mapped the pool with this key.
    #[inline]
    fn has(&mut self, link: &Link, key: u32) -> bool {
        if self.removals != self.files.removals() {
            self.forget(link);
        }
        match self.pools.iter().find(|one| one.name.key == key && !one.is_gone) {
            Some(one) => link.is_mapped(one.name),
            None => {
                self.expose(link, key);
                false
            }
        }
    }

    /// Forgets what is not registered any more, and reports that to the peer: its key may name
    /// other memory.
    #[cold]
    fn forget(&mut self, link: &Link) {
        self.removals = self.files.removals();
        self.pools.retain_mut(|one| {
            one.is_gone |= !self.files.is_there(one.name.key, &one.file);
            !one.is_gone || !link.withdraw_pool(one.name)
        });
    }

    /// What there is no place or no room for is staged.
    #[cold]
    fn expose(&mut self, link: &Link, key: u32) {
        if self.pools.len() == POOLS_MAX {
            return;
        }
        let is_free = |place: &u32| self.pools.iter().all(|one| one.name.place != *place);
        let Some(place) = (0..POOLS_MAX as u32).find(is_free) else { return };
        let Some(file) = self.files.find(key) else { return };
        let name = Name { key, place, number: self.number.wrapping_add(1).max(1) };
        if link.expose(name, &file) {
            self.number = name.number;
            let file = Arc::downgrade(&file.0);
            self.pools.push(ExposedPool { name, file, is_gone: false });
        }
    }
}

/// A header as it is stored: the destination is the link's.
#[inline(always)]
fn words(header: &Header) -> [u64; 3] {
    let Header { acks, op, pieces, byte_len, rkey, .. } = *header;
    let second = u64::from_le_bytes([0, 0, 0, 0, op, pieces, 0, 0]);
    [acks.taken(), second, u64::from(byte_len) | u64::from(rkey) << 32]
}
