//! The layout of a link's memory. It is the same in every build: the version of the handshake names
//! it.
//!
//! ```text
//!   head: the two sides       4 KiB
//!   direction 0               words, slots, outcomes, withdrawals, targets      in whole pages
//!   direction 1               the same
//!   staging of direction 0
//!   staging of direction 1
//! ```
//!
//! Direction 0 runs from the connecting side (0) to the accepting side (1). All of it may be written
//! by the peer, which is not trusted: words are atomics, pieces are read as volatile, and bytes are
//! copied once, by raw pointers, into private memory, before anything depends on them. A copy during
//! which the peer writes has any bytes, which are those of the peer's own message.
//!
//! The order, on every processor:
//!
//! ```text
//!   a slot: bytes, target, staging, header │ turn: Release      ─▶ Acquire: turn │ all of them
//!   a slot is read                         │ ack_line or a turn ─▶ Acquire       │ written again
//!   outcome, bytes of a Read               │ its turn: Release  ─▶ Acquire       │ both
//!   refused                                │ ack_line or a turn ─▶ Acquire       │ refused
//!   all slots                              │ closed: Release    ─▶ Acquire       │ the front once more
//!   withdrawal or closed │ fence │ pool is written     copy of a pool │ fence │ withdrawal, closed
//!   asleep                                                                       fence.rs
//! ```
#![expect(unsafe_code, reason = "words are found in mapped memory by their offsets")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(any(test, feature = "hostile-peer"))]
use std::sync::{Mutex, PoisonError, Weak};

use rpcrdma_provider::SetupError;
use rpcrdma_transport::body::INLINE_LEN;

use crate::memory::Memory;
use crate::pools::POOLS_MAX;

/// The dimensions of a link, equal in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dimensions {
    /// Slots of a ring: a power of two.
    pub slots: u32,
    /// Bytes of a staging area: a power of two.
    pub staging: u32,
}

/// One side's words: it writes them, and the other side reads them and clears `asleep`.
#[repr(C, align(128))]
pub(crate) struct Side {
    /// How far it has got in the set-up.
    pub progress: AtomicU32,
    /// 1 while its thread sleeps; the other side clears it when it rings.
    pub asleep: Line<AtomicU32>,
    /// The number of the pool that it has exposed last.
    pub exposed: Line<AtomicU32>,
    /// By place: the number of the other side's pool that it has mapped there.
    pub mapped: [AtomicU32; POOLS_MAX],
}

/// The words of a direction.
#[repr(C)]
pub(crate) struct Words {
    /// Written by the consumer: the slots that it has taken.
    pub ack_line: Line<AtomicU64>,
    /// Written by the consumer: the number of slots that it has refused.
    pub refused: Line<AtomicU64>,
    /// Written by the producer: it publishes nothing more.
    pub closed: Line<AtomicU32>,
    /// Written by the consumer: it takes nothing more.
    pub abandoned: Line<AtomicU32>,
}

/// A value in cache lines of its own.
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub T);

/// A request, in four cache lines.
#[repr(C, align(256))]
pub(crate) struct Slot {
    /// One more than the slot's position once it is published.
    pub turn: AtomicU64,
    /// The header of the request.
    pub header: [AtomicU64; 3],
    /// The message or its pieces; accessed by raw pointers only.
    bytes: std::cell::UnsafeCell<[u8; INLINE_LEN]>,
}

/// The consumer's result for a slot.
#[repr(C)]
pub(crate) struct SlotOutcome {
    /// One more than the position of the slot that `outcome` belongs to.
    pub turn: AtomicU64,
    /// The outcome.
    pub outcome: AtomicU32,
}

/// The memory of a link, with its parts by name.
pub(crate) struct Layout {
    memory: Memory,
    dimensions: Dimensions,
}

/// One direction of a link.
#[derive(Clone)]
pub(crate) struct Direction {
    layout: Arc<Layout>,
    index: usize,
    slots: NonNull<Slot>,
    mask: u64,
}

impl Dimensions {
    /// Checks dimensions that a configuration or a peer states.
    ///
    /// # Errors
    /// [`SetupError::Invalid`], naming the value and what is allowed.
    pub(crate) fn check(self) -> Result<Dimensions, SetupError> {
        if !self.slots.is_power_of_two() || !(SLOTS_MIN..=SLOTS_MAX).contains(&self.slots) {
            return Err(SetupError::Invalid {
                what: "shm.ring_slots",
                value: self.slots.to_string(),
                allowed: format!("a power of two from {SLOTS_MIN} to {SLOTS_MAX}"),
            });
        }
        if !self.staging.is_power_of_two() || !(STAGING_MIN..=STAGING_MAX).contains(&self.staging) {
            return Err(SetupError::Invalid {
                what: "shm.staging",
                value: self.staging.to_string(),
                allowed: format!("a power of two from {STAGING_MIN} to {STAGING_MAX}"),
            });
        }
        Ok(self)
    }

    /// Bytes of the memory of a link.
    pub(crate) fn bytes(self) -> usize {
        self.staging_at(2)
    }

    /// Bytes of a direction, without its staging area.
    fn ring_bytes(self) -> usize {
        self.targets_at().saturating_add(8 * self.slots as usize).next_multiple_of(PAGE)
    }

    fn outcomes_at(self) -> usize {
        SLOTS_AT + size_of::<Slot>() * self.slots as usize
    }

    fn withdrawals_at(self) -> usize {
        self.outcomes_at() + size_of::<SlotOutcome>() * self.slots as usize
    }

    fn targets_at(self) -> usize {
        self.withdrawals_at() + 8 * self.slots as usize
    }

    fn staging_at(self, index: usize) -> usize {
        PAGE + 2 * self.ring_bytes() + index * self.staging as usize
    }
}

impl Layout {
    /// The parts of memory that has as many bytes as the dimensions need.
    pub(crate) fn new(memory: Memory, dimensions: Dimensions) -> Arc<Layout> {
        assert_eq!(memory.len(), dimensions.bytes(), "the memory was made for these dimensions");
        let layout = Arc::new(Layout { memory, dimensions });
        #[cfg(any(test, feature = "hostile-peer"))]
        Layout::note(&layout);
        layout
    }

    /// Those of all connections that this process has now.
    #[cfg(any(test, feature = "hostile-peer"))]
    pub(crate) fn all() -> Vec<Arc<Layout>> {
        let all = LAYOUTS.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    #[cfg(any(test, feature = "hostile-peer"))]
    fn note(layout: &Arc<Layout>) {
        let mut all = LAYOUTS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|layout| layout.strong_count() > 0);
        all.push(Arc::downgrade(layout));
    }

    /// One side's words.
    pub(crate) fn side(&self, side: usize) -> &Side {
        assert!(side < 2, "a link has two sides");
        let at = self.memory.base().wrapping_add(side * size_of::<Side>()).cast::<Side>();
        // SAFETY: both lie in the first page, which the memory has. Its base is aligned to pages.
        // All contents are atomics, for which any bytes are valid values.
        unsafe { &*at }
    }

    /// Touches all pages of the rings, so that no message pays for it.
    pub(crate) fn prefault(&self) {
        for at in (0..self.dimensions.staging_at(0)).step_by(PAGE) {
            let word = self.memory.base().wrapping_add(at).cast::<AtomicU32>();
            // SAFETY: the word lies in the memory, is aligned, and is only used atomically.
            let word = unsafe { &*word };
            // A compiler removes what only reads, or writes what was there (`fetch_or`).
            let _ = word.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The first byte of the memory.
    #[cfg(any(test, feature = "hostile-peer"))]
    pub(crate) fn base(&self) -> *mut u8 {
        self.memory.base()
    }

    /// Bytes of the memory.
    #[cfg(any(test, feature = "hostile-peer"))]
    pub(crate) fn memory_len(&self) -> usize {
        self.memory.len()
    }

    /// Bytes of a staging area.
    pub(crate) fn staging_len(&self) -> u32 {
        self.dimensions.staging
    }
}

impl Direction {
    /// Direction 0 or 1 of a link.
    pub(crate) fn new(layout: &Arc<Layout>, index: usize) -> Direction {
        assert!(index < 2, "a link has two directions");
        let Dimensions { slots, .. } = layout.dimensions;
        let base = layout.memory.base().wrapping_add(PAGE + index * layout.dimensions.ring_bytes());
        let first = NonNull::new(base.wrapping_add(SLOTS_AT).cast()).expect("memory is not at 0");
        Direction { layout: Arc::clone(layout), index, slots: first, mask: u64::from(slots) - 1 }
    }

    /// One less than the number of slots.
    #[inline(always)]
    pub(crate) fn mask(&self) -> u64 {
        self.mask
    }

    /// The slot of a position.
    #[inline(always)]
    pub(crate) fn slot(&self, position: u64) -> &Slot {
        let at = self.slots.as_ptr().wrapping_add((position & self.mask) as usize);
        // SAFETY: the mask keeps the index below the number of slots, which `layout` keeps mapped;
        // a slot is aligned as the memory is. All contents may be shared with the other process:
        // atomics, and bytes that are accessed by raw pointers only.
        unsafe { &*at }
    }

    /// The words of the direction.
    #[inline(always)]
    pub(crate) fn words(&self) -> &Words {
        let at = self.slots.as_ptr().cast::<u8>().wrapping_sub(SLOTS_AT).cast::<Words>();
        // SAFETY: they lie before the slots, aligned to a page; all contents are atomics.
        unsafe { &*at }
    }

    /// The outcome of the slot of a position.
    pub(crate) fn outcome(&self, position: u64) -> &SlotOutcome {
        let at = self.at(self.layout.dimensions.outcomes_at()).cast::<SlotOutcome>();
        let at = at.wrapping_add((position & self.mask) as usize);
        // SAFETY: there is an outcome for each slot, behind the slots; all contents are atomics.
        unsafe { &*at }
    }

    /// One more than the last position at which the slot was withdrawn.
    pub(crate) fn withdrawal(&self, position: u64) -> &AtomicU64 {
        self.word(self.layout.dimensions.withdrawals_at(), position)
    }

    /// The address in the consumer's memory that a slot names.
    pub(crate) fn target(&self, position: u64) -> &AtomicU64 {
        self.word(self.layout.dimensions.targets_at(), position)
    }

    /// The first byte of the staging area. [`Layout::staging_len`] bytes may be accessed, by raw
    /// pointers only, as long as the direction exists.
    pub(crate) fn staging(&self) -> *mut u8 {
        self.layout.memory.base().wrapping_add(self.layout.dimensions.staging_at(self.index))
    }

    /// Bytes of the staging area.
    #[inline]
    pub(crate) fn staging_len(&self) -> u32 {
        self.layout.staging_len()
    }

    fn word(&self, array_at: usize, position: u64) -> &AtomicU64 {
        let at = self.at(array_at).cast::<AtomicU64>();
        let at = at.wrapping_add((position & self.mask) as usize);
        // SAFETY: each array has a word for each slot, within the direction's pages.
        unsafe { &*at }
    }

    /// The byte at an offset from the beginning of the direction.
    fn at(&self, offset: usize) -> *mut u8 {
        self.slots.as_ptr().cast::<u8>().wrapping_sub(SLOTS_AT).wrapping_add(offset)
    }
}

// SAFETY: the pointer leads into memory that `layout` keeps mapped and that any thread may use.
unsafe impl Send for Direction {}

// SAFETY: as above; what is shared consists of atomics, and of bytes that are reached by raw
// pointers.
unsafe impl Sync for Direction {}

// SAFETY: the memory is accessed by atomics and raw pointers only.
unsafe impl Sync for Layout {}

// SAFETY: as above; any thread may unmap it.
unsafe impl Send for Layout {}

impl Slot {
    /// The first of the slot's [`INLINE_LEN`] bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> *mut u8 {
        self.bytes.get().cast()
    }
}

impl std::fmt::Debug for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layout").field("dimensions", &self.dimensions).finish_non_exhaustive()
    }
}

#[cfg(any(test, feature = "hostile-peer"))]
static LAYOUTS: Mutex<Vec<Weak<Layout>>> = Mutex::new(Vec::new());

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Where the slots of a direction begin, behind its words.
const SLOTS_AT: usize = 512;
const SLOTS_MIN: u32 = 16;
const SLOTS_MAX: u32 = 1 << 14;
const STAGING_MIN: u32 = 64 * 1024;
const STAGING_MAX: u32 = 1 << 30;

const _: () =
    assert!(size_of::<Words>() <= SLOTS_AT && SLOTS_AT.is_multiple_of(align_of::<Slot>()));
const _: () = assert!(2 * size_of::<Side>() <= PAGE && size_of::<Slot>() == 256);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_fill_the_memory() {
        for (slots, staging) in [(16, 65536), (128, 65536), (16384, 1 << 20)] {
            let dimensions = Dimensions { slots, staging }.check().expect("allowed");
            let (memory, _file) = Memory::create(dimensions.bytes()).expect("memory");
            let base = memory.base() as usize;
            let layout = Layout::new(memory, dimensions);
            let mut parts = vec![(base, 2 * size_of::<Side>())];
            for direction in [0, 1].map(|index| Direction::new(&layout, index)) {
                let at = std::ptr::from_ref::<Words>(direction.words()) as usize;
                parts.push((at, size_of::<Words>()));
                for position in 0..u64::from(slots) {
                    let slot = std::ptr::from_ref::<Slot>(direction.slot(position)) as usize;
                    assert_eq!(
                        slot,
                        std::ptr::from_ref(direction.slot(position + u64::from(slots))) as usize
                    );
                    let outcome =
                        std::ptr::from_ref::<SlotOutcome>(direction.outcome(position)) as usize;
                    parts.extend([(slot, 256), (outcome, size_of::<SlotOutcome>())]);
                    let words = [direction.withdrawal(position), direction.target(position)];
                    parts.extend(words.map(|word| (std::ptr::from_ref(word) as usize, 8)));
                }
                parts.push((direction.staging() as usize, staging as usize));
            }
            parts.sort_unstable();
            for pair in parts.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?}");
            }
            let (last, len) = parts.last().expect("parts");
            assert_eq!(last + len, base + dimensions.bytes());
        }
    }

    #[test]
    fn dimensions_outside_of_the_limits_are_refused_by_name() {
        for (slots, staging, named) in [
            (0, 65536, "shm.ring_slots is 0"),
            (8, 65536, "shm.ring_slots is 8"),
            (24, 65536, "shm.ring_slots is 24"),
            (32768, 65536, "shm.ring_slots is 32768"),
            (16, 0, "shm.staging is 0"),
            (16, 65540, "shm.staging is 65540"),
            (16, u32::MAX, "shm.staging is 4294967295"),
        ] {
            let error = Dimensions { slots, staging }.check().expect_err("not allowed").to_string();
            assert!(error.starts_with(named), "{error}");
        }
    }
}
