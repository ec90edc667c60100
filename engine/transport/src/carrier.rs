//! The carrier: transports requests to other queues, and returns their results.
//!
//! ```text
//!   this side                                                                    the other side
//!   Outgoing ── claim, fill, publish ──▶ request, in the order of publishing ──▶ Incoming: front
//!            ── withdraw, quiesce ─────▶ its memory is not touched any more
//!            ◀── acks: slots that were taken, by slots the other way or on their own ── release
//!            ◀── outcome: why a slot was refused, or how a Read has ended ── refuse, finish
//!                data of long messages and Writes ◀─────────────────────────── pull
//!                data of Reads            ◀─────────────────────────────────── answer
//! ```
//!
//! Positions count slots and never repeat. A slot is the sender's until it is published, and again
//! after its ack is seen and it is freed; slots are the credits of a direction. The carrier does
//! not interpret or order requests: it reads only the pieces of a [`Body`].
//!
//! The other side may be another process, and hostile. What a carrier returns is checked here where
//! it can be: acks, lengths, the sum of what is pulled, the number of Reads. A carrier whose other side
//! could name queue pairs of third ones sets [`Header::dst`] itself.
#![expect(unsafe_code, reason = "a carrier promises what the compiler cannot check")]

#[cfg(doc)]
use super::body::INLINE_LEN;
use super::body::{Acks, Body, Header, Refusal};
use super::keys::KeyCache;
use super::rights::Granted;

/// Both directions of one end, and their shared state.
pub trait Carrier {
    /// Each queue pair has a carrier of its own, which ends with it.
    const IS_OF_ONE: bool = false;

    /// Its sending end.
    type Tx: Outgoing;
    /// Its receiving end.
    type Rx: Incoming;

    /// Unique to this end. All queue pairs with the same id share a path.
    fn id(&self) -> EndId;

    /// Wakes the thread at the other end if it sleeps. Called after publishing.
    fn wake_peer(&self);
}

/// The name of an end: its link, and which of the two ends it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndId {
    /// The link.
    pub link: u64,
    /// 0 or 1.
    pub side: usize,
}

/// Why bytes could not be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DmaError {
    /// The Receive's memory is gone or not writable.
    Destination,
    /// The memory of the peer that posted the request is gone.
    Source,
}

/// The sending end of a direction.
///
/// # Safety
/// The poster of a request keeps its memory valid and does not access it until its slot was acked,
/// finished if it is a Read, or withdrawn and quiesced. The carrier and the other end write to that
/// memory at no other time, and do not deliver what they read there at any other time.
pub unsafe trait Outgoing {
    /// A claimed slot.
    type Vacant<'a>: Vacant
    where
        Self: 'a;

    /// The number of slots: a power of two.
    fn slots(&self) -> u64;

    /// The next slot for a request of `byte_len` bytes. None if there is no slot, or no room for
    /// bytes that do not fit in one: there is when enough slots are freed.
    fn claim(&mut self, byte_len: u32) -> Option<Self::Vacant<'_>>;

    /// Whether there is a slot.
    fn has_room(&self) -> bool;

    /// Position of the next slot to be published.
    fn head(&self) -> u64;

    /// Position of the oldest slot not freed yet.
    fn freed(&self) -> u64;

    /// Frees the oldest slots, up to `acks` and no further than `until`.
    fn free(&mut self, acks: Acks, until: u64);

    /// The receiver's last ack outside of a slot. The caller checks it.
    fn acks(&self) -> Acks;

    /// The number of slots refused so far, including at least those among the acked ones.
    fn refused(&self) -> u64;

    /// The reported result of the slot at `position`: always of a Read, which ends after it was
    /// taken; of all others only when they were refused. Valid before it is freed.
    fn outcome(&self, position: u64) -> Option<Result<(), Refusal>>;

    /// Puts the bytes of the Read at `position` in their place if its data are not there yet. `keys`
    /// finds it. Called when the Read succeeded, before its slot is freed, unless it was withdrawn.
    ///
    /// # Errors
    /// The memory of the Read is gone: it fails.
    fn place_read(&mut self, position: u64, keys: &KeyCache) -> Result<(), Refusal>;

    /// When the slot at `position` was taken. Valid once it is acked, for a carrier with a delay.
    fn taken_at(&self, position: u64) -> u64;

    /// Withdraws a published slot. A receiver that holds the slot back gives it up; one that is
    /// touching its memory may continue until [`Outgoing::quiesce`] has returned.
    fn withdraw(&self, position: u64);

    /// From its return on, the memory of withdrawn slots is not written, and what is read there is
    /// not delivered. Waits at most for the copy of one message.
    fn quiesce(&self);

    /// Whether the receiver is gone.
    fn is_abandoned(&self) -> bool;

    /// Takes all slots back, as if acked, if the receiver is gone.
    fn reclaim(&mut self, acks: Acks) -> Acks;

    /// Reads that the receiver executes at one time; further ones wait here.
    #[inline]
    fn reads_max(&self) -> u32 {
        u32::MAX
    }

    /// Why the slot at `position` was refused. Valid once it is acked and before it is freed.
    #[cold]
    fn refusal(&self, position: u64) -> Option<Refusal> {
        self.outcome(position).and_then(Result::err)
    }
}

/// A slot that the receiver does not read until it is published.
pub trait Vacant {
    /// The slot's content. Initially stale, from an earlier request.
    fn body(&mut self) -> &mut Body;

    /// Makes a message its content, which has no pieces: a carrier may write the bytes where the
    /// receiver finds them. Nothing is done with [`Vacant::body`] afterwards.
    ///
    /// # Safety
    /// `from` is readable for the length that the header says, at most [`INLINE_LEN`].
    #[inline(always)]
    unsafe fn put(&mut self, header: Header, from: *const u8) {
        let body = self.body();
        body.header = header;
        let len = header.byte_len as usize;
        // SAFETY: the caller guarantees the source. They fit in the slot, which no program can name
        // in an `Sge`, so source and destination do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, body.bytes.as_mut_ptr(), len) };
    }

    /// Sets the time of publishing, in ns, for a carrier with a delay.
    fn stamp(&mut self, now_ns: u64);

    /// Sets the address in the receiver's memory.
    fn set_target(&mut self, addr: u64);

    /// Passes the slot to the receiver, with an ack for the other direction. `keys` finds the memory
    /// of this side that its pieces name, for a carrier that copies it now.
    fn publish(self, acks: Acks, keys: &KeyCache);
}

/// The receiving end of a direction.
///
/// # Safety
/// `pull` passes on memory that is readable until `put` returns. It does not succeed with the bytes
/// of a slot that was withdrawn and quiesced, and `answer` does not write there. `bytes` and `front_and_bytes` return readable memory.
pub unsafe trait Incoming {
    /// Whether [`Incoming::take_in`] brings messages. Without it they come by themselves, one by one.
    const TAKES_IN: bool = false;

    /// Whether [`Incoming::take_in`] may have something to do.
    #[inline]
    fn has_news(&self) -> bool {
        false
    }

    /// Takes in what has come, for a carrier that has to fetch it. Called in each poll before the front
    /// is looked at, if there are news. `keys` finds the memory of this side's Reads.
    #[inline]
    fn take_in(&mut self, _keys: &KeyCache) {}

    /// A copy of the header of the oldest slot that was published and not yet taken.
    fn front(&self) -> Option<Header>;

    /// The first of the [`INLINE_LEN`] bytes of the front, which is there. They are readable until
    /// it is returned, and may change meanwhile.
    ///
    /// [`INLINE_LEN`]: super::body::INLINE_LEN
    fn bytes(&self) -> *const u8;

    /// [`Incoming::front`] and [`Incoming::bytes`] at once, for a carrier that finds them together.
    #[inline(always)]
    fn front_and_bytes(&self) -> Option<(Header, *const u8)> {
        self.front().map(|front| (front, self.bytes()))
    }

    /// A copy of the header of the slot at `position`, if it is published. `position` is not before
    /// the front, and less than a full lap behind it.
    fn peek(&self, position: u64) -> Option<Header>;

    /// Prefetches the front. Called before the check whether it is published.
    fn prefetch_front(&self);

    /// Whether the sender withdrew the slot at the front.
    fn is_cancelled(&self) -> bool;

    /// For a Read or Write: the address in this side's memory that the front names.
    fn target(&self) -> u64;

    /// When the front was published, in ns; 0 without a delay.
    fn published_at(&self) -> u64;

    /// Position of the next slot to be taken.
    fn next(&self) -> u64;

    /// Passes the bytes that the front refers to to `put`, one run after the other, until it fails.
    /// None if the sender has withdrawn the slot or is gone: what was put is not delivered then.
    fn pull(
        &self,
        front: &Header,
        keys: &KeyCache,
        put: impl FnMut(*const u8, usize) -> Result<(), DmaError>,
    ) -> Option<Result<(), DmaError>>;

    /// Copies bytes of this side to the sender's memory that the Read at `position` refers to, or to
    /// where the sender's [`Outgoing::place_read`] finds them. None, without any access, if the sender
    /// has withdrawn it or is gone.
    fn answer(
        &self,
        position: u64,
        read: &Header,
        keys: &KeyCache,
        from: Granted,
    ) -> Option<Result<(), DmaError>>;

    /// Whether there is room for an answer. Until there is, the peer's Reads wait.
    #[inline]
    fn can_answer(&self) -> bool {
        true
    }

    /// Reports the result of a Read. Its sender keeps the slot until then, taken or not.
    fn finish(&mut self, position: u64, outcome: Result<(), Refusal>);

    /// Returns the front to the sender, which learns of it by [`Incoming::acks`].
    fn release(&mut self);

    /// Returns the front without executing it.
    fn refuse(&mut self, why: Refusal);

    /// Records when the front is taken, with a delay. Called before it is released.
    fn stamp_taken(&self, now_ns: u64);

    /// The slots taken so far, to be sent in a slot of the other direction.
    fn acks(&self) -> Acks;

    /// Publishes the slots taken so far outside of a slot; the sender reads it when needed.
    fn announce(&self);

    /// Whether the sender is gone. Slots published before must be taken first.
    fn is_closed(&self) -> bool;

    /// Whether the sender is gone and slots may still be published: another process can close its
    /// socket and go on writing. Looked at while there are slots to take. No sender of this process
    /// does that.
    fn is_cut(&self) -> bool {
        false
    }
}
