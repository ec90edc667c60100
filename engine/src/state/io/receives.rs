//! The outstanding Receives, by their identifiers.
//!
//! An identifier is the number of a buffer with a mark. The numbers of refused Receives are used
//! again. A device that still completes a refused Receive must not complete the next one of that
//! number: so the mark changes after every refusal.

use crate::provider::WrId;
use crate::provider::shortly_before_end;

/// The Receives that the device owns.
pub(super) struct Receives {
    held: Box<[HeldReceive]>,
    /// The next mark.
    mark: u32,
}

/// The state of one buffer.
#[derive(Debug, Clone, Copy)]
struct HeldReceive {
    /// The number of its token.
    raw: u32,
    /// The mark of its Receive; [`NONE`] if the device does not own it.
    mark: u32,
}

/// The identifiers of the Receives of one post.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceiveNames {
    /// The mark, in its place.
    mark: u64,
}

impl ReceiveNames {
    /// That of a buffer's Receive.
    #[inline]
    pub fn of(self, buffer: u32) -> WrId {
        WrId(self.mark | u64::from(buffer))
    }
}

impl Receives {
    /// Empty, for this number of buffers.
    pub fn new(buffers: usize) -> Receives {
        Receives { held: vec![HeldReceive { raw: 0, mark: NONE }; buffers].into(), mark: FIRST }
    }

    /// The identifiers of Receives that are posted now.
    #[inline]
    pub fn names(&self) -> ReceiveNames {
        ReceiveNames { mark: u64::from(self.mark) << 32 }
    }

    /// Records that the device took the Receives of these buffers; the number beside each comes
    /// back with its completion.
    #[inline]
    pub fn on_taken(&mut self, taken: impl Iterator<Item = (u32, u32)>) {
        let Receives { held, mark } = self;
        let (held, mark) = (&mut held[..], *mark);
        for (buffer, raw) in taken {
            held[buffer as usize] = HeldReceive { raw, mark };
        }
    }

    /// Records that the device refused the next Receive.
    #[cold]
    pub fn on_refused(&mut self) {
        self.mark = self.mark.wrapping_add(1) & MARK_MAX;
    }

    /// Processes a completion: returns the value given to [`Receives::on_taken`], once. `None` if
    /// the device does not own a Receive with this identifier: it refused it, or completed it
    /// before.
    #[inline]
    pub fn take(&mut self, WrId(name): WrId) -> Option<u32> {
        let held = self.held.get_mut(name as u32 as usize)?;
        // The device can return any number. The two bits above the mark are used elsewhere.
        if held.mark != (name >> 32) as u32 & MARK_MAX {
            return None;
        }
        held.mark = NONE;
        Some(held.raw)
    }

    /// Records that the device owns none any more.
    pub fn clear(&mut self) {
        self.held.fill(HeldReceive { raw: 0, mark: NONE });
    }

    /// The number that the device owns.
    pub fn count(&self) -> usize {
        self.held.iter().filter(|held| held.mark != NONE).count()
    }
}

/// The largest mark: the two bits above it in an identifier are used elsewhere.
const MARK_MAX: u32 = 0x3fff_ffff;
/// The first mark.
const FIRST: u32 = shortly_before_end(30, 2);
/// Not a mark, nor a part of an identifier.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_returns_once() {
        let mut receives = Receives::new(4);
        let name = receives.names().of(3);
        assert_eq!(receives.take(name), None, "it was not posted");
        receives.on_taken([(3, 77)].into_iter());
        assert_eq!(receives.count(), 1);
        assert_eq!(receives.take(name), Some(77));
        assert_eq!((receives.take(name), receives.count()), (None, 0), "twice");
    }

    #[test]
    fn a_completion_of_a_refused_receive_is_not_taken_for_a_later_one() {
        let mut receives = Receives::new(2);
        let refused = receives.names().of(0);
        receives.on_refused();
        let taken = receives.names().of(0);
        receives.on_taken([(0, 5)].into_iter());
        receives.on_refused();
        assert_eq!(receives.take(refused), None);
        assert_eq!(receives.take(taken), Some(5), "however often it refuses");
    }

    #[test]
    fn unknown_receive_numbers_return_nothing() {
        let mut receives = Receives { mark: MARK_MAX, ..Receives::new(2) };
        receives.on_taken([(0, 5)].into_iter());
        let name = receives.names().of(0).0;
        for invented in [1, 2, u64::from(u32::MAX), u64::MAX, u64::MAX << 32 | 1] {
            assert_eq!(receives.take(WrId(invented)), None, "{invented:x}");
        }
        for bit in 0..62 {
            assert_eq!(receives.take(WrId(name ^ 1 << bit)), None, "bit {bit}");
        }
        receives.on_refused();
        assert_eq!(receives.names().of(1), WrId(1), "marks wrap");
        assert_eq!(receives.take(WrId(name)), Some(5));
    }
}
