//! The gate: whether a short message may come, as one word.
//!
//! Every message needs it, and its parts are spread over a connection. Each change of a part sets
//! it; debug builds compare it with its parts at every message.

use core::ops::Range;

use crate::connection::Connection;
use crate::version::Met;

/// Whether a short message may come. A word with two values: all others, more than any other
/// member of a connection has, are free to mark that there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Gate {
    /// The peers have not met, or a group is open.
    Shut,
    Open,
}

impl Connection {
    /// Where in a connection lies what a plain message reads and writes.
    pub const SHORT_STATE: Range<usize> = 0..core::mem::offset_of!(Connection, group);

    /// Sets the gate after a change of its parts.
    #[inline]
    pub(crate) fn set_gate(&mut self) {
        self.gate = self.gate_of_parts();
    }

    /// Whether a message of this version may be a short one.
    #[inline(always)]
    pub(crate) fn admits(&self, vers: u32) -> bool {
        debug_assert_eq!(self.gate, self.gate_of_parts(), "the gate follows its parts");
        self.gate == Gate::Open && vers == self.vers
    }

    #[inline]
    fn gate_of_parts(&self) -> Gate {
        match self.met == Met::Both && self.group.open().is_none() {
            true => Gate::Open,
            false => Gate::Shut,
        }
    }
}
