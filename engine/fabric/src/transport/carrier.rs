//! The carrier: transports requests to other queues, and returns their results.
//!
//! ```text
//!   this side                                                                    the other side
//!   Outgoing ── claim, fill, publish ──▶ request, in the order of publishing ──▶ Incoming: front
//!            ── withdraw, settle ──────▶ its memory is not touched any more
//!            ◀── acks: slots that were taken, by slots the other way or on their own ── release
//!            ◀── verdict: why a slot was refused, or how a Read has ended ── refuse, finish
//!                data of long messages and Writes ◀─────────────────────────── pull
//!                data of Reads            ◀─────────────────────────────────── answer
//! ```
//!
//! Positions count slots and never repeat. A slot is the sender's until it is published, and again
//! when an ack for it was seen and it was freed; slots are the credits of a direction. What they
//! mean, and in which order what is done about them, is not the carrier's affair: it does not look
//! into a [`Body`] beyond its pieces.

use super::body::{Acks, Body, Refusal};
use super::keys::KeyCache;
use super::rights::Granted;

/// Both directions of one end, and what belongs to them.
pub(crate) trait Carrier {
    type Tx: Outgoing;
    type Rx: Incoming;

    /// Unlike that of every other end. All queue pairs with the same one share a path.
    fn id(&self) -> EndId;

    /// Wakes the thread at the other end if it sleeps. To be called after publishing.
    fn wake_peer(&self);
}

/// The name of an end: that of its link, and which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndId {
    pub link: u64,
    pub side: usize,
}

/// Why bytes could not be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DmaError {
    /// The Receive's own memory is not there or not writable.
    Destination,
    /// The memory of the peer that posted the request is not there.
    Source,
}

/// The sending end of a direction.
///
/// # Safety
/// Whoever posts a request keeps its memory valid and leaves it alone until its slot was acked,
/// finished if it is a Read, or withdrawn and settled. The carrier, with the other end, touches that
/// memory at no other time.
pub(crate) unsafe trait Outgoing {
    type Vacant<'a>: Vacant
    where
        Self: 'a;

    /// How many slots it has: a power of two.
    fn slots(&self) -> u64;

    /// The next slot, if there is one.
    fn claim(&mut self) -> Option<Self::Vacant<'_>>;

    /// Whether a slot can be claimed.
    fn has_room(&self) -> bool;

    /// Position of the next slot to be published.
    fn head(&self) -> u64;

    /// Position of the oldest slot not given back yet.
    fn freed(&self) -> u64;

    /// Takes the oldest slots back, up to what `acks` says and no further than `until`.
    fn free(&mut self, acks: Acks, until: u64);

    /// What the receiver said last on its own, and not in a slot.
    fn acks(&self) -> Acks;

    /// How many slots were refused since the beginning. Counts at least those among what was acked.
    fn refused(&self) -> u64;

    /// How the slot at `position` ended, if that was said: always of a Read, which ends after it
    /// was taken, of all others when they were refused. Valid before it is freed.
    fn verdict(&self, position: u64) -> Option<Result<(), Refusal>>;

    /// When the slot at `position` was taken. Valid once it is acked, of a carrier with a delay.
    fn taken_at(&self, position: u64) -> u64;

    /// Withdraws a published slot. A receiver that waits with it gives up; one that touches the
    /// memory that it refers to may be at it until [`Outgoing::settle`] has returned.
    fn withdraw(&self, position: u64);

    /// Waits until nobody touches the memory that withdrawn slots refer to: not longer than one
    /// message is being copied.
    fn settle(&self);

    /// Whether the receiver is gone.
    fn is_abandoned(&self) -> bool;

    /// Takes all slots back, as if they had been acked, if the receiver is gone.
    fn reclaim(&mut self, acks: Acks) -> Acks;

    /// Why the slot at `position` was refused. Valid once it is acked and before it is freed.
    #[cold]
    fn refusal(&self, position: u64) -> Option<Refusal> {
        self.verdict(position).and_then(Result::err)
    }
}

/// A slot that nobody else looks at until it is published.
pub(crate) trait Vacant {
    /// What the slot will carry. Holds whatever an earlier lap left there.
    fn body(&mut self) -> &mut Body;

    /// When it was published, in ns, of a carrier with a delay.
    fn stamp(&mut self, now_ns: u64);

    /// Which memory of the receiver it is about.
    fn aim(&mut self, addr: u64);

    /// Hands the slot to the receiver, with an ack for the other direction.
    fn publish(self, acks: Acks);
}

/// The receiving end of a direction.
///
/// # Safety
/// `pull` hands out memory that is readable, and that nobody writes, until `put` returns. Neither it
/// nor `answer` touches the memory of a slot that was withdrawn and settled.
pub(crate) unsafe trait Incoming {
    /// The oldest slot that was published and not yet taken.
    fn front(&self) -> Option<&Body>;

    /// The slot at `position`, if it is published. `position` is not before the front, and less
    /// than all slots behind it.
    fn peek(&self, position: u64) -> Option<&Body>;

    /// Asks for what is in the front, to be called before looking whether it is published.
    fn prefetch_front(&self);

    /// Whether the sender withdrew the slot at the front.
    fn is_cancelled(&self) -> bool;

    /// Which of our memory the front is about; of a Read or Write.
    fn target(&self) -> u64;

    /// When the front was published, in ns; 0 without a delay.
    fn published_at(&self) -> u64;

    /// Position of the next slot to be taken.
    fn next(&self) -> u64;

    /// Hands the bytes that the front refers to to `put`, one run after the other, until it fails.
    /// None, and nothing is touched, if the sender has withdrawn the slot or is gone.
    fn pull(
        &self,
        front: &Body,
        keys: &KeyCache,
        put: impl FnMut(*const u8, usize) -> Result<(), DmaError>,
    ) -> Option<Result<(), DmaError>>;

    /// Takes bytes of ours to the memory of the sender that the Read at `position` refers to, of
    /// which `body` is a copy. None, and nothing is touched, if the sender has withdrawn it or is
    /// gone.
    fn answer(
        &self,
        position: u64,
        body: &Body,
        keys: &KeyCache,
        from: Granted,
    ) -> Option<Result<(), DmaError>>;

    /// Says how a Read has ended. Its sender keeps the slot until then, taken or not.
    fn finish(&self, position: u64, outcome: Result<(), Refusal>);

    /// Gives the front back to the sender; it learns of it by [`Incoming::acks`].
    fn release(&mut self);

    /// Gives the front back without having done what it asks.
    fn refuse(&mut self, why: Refusal);

    /// Says when the front is taken, with a delay. To be called before it is released.
    fn stamp_taken(&self, now_ns: u64);

    /// What was taken up to now; to be sent along with a slot of the other direction.
    fn acks(&self) -> Acks;

    /// Says on its own what was taken, for the sender to look at when it needs to.
    fn announce(&self);

    /// Whether the sender is gone. Slots published before are to be taken first.
    fn is_closed(&self) -> bool;
}
