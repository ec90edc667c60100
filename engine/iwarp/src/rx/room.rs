//! The buffer of a connection: bytes of the stream come to its end, and are consumed at its beginning.

use std::ops::Range;

use memmap2::MmapMut;
use rpcrdma_provider::SetupError;
use rpcrdma_transport::body::INLINE_LEN;

use super::{LOOKS_MAX, Rx};
use crate::calls::Calls;
use crate::wire::violation::Violation;

impl Rx {
    /// A buffer for messages of at most `message_len` bytes: a mapping of its own, whose pages are
    /// taken as they are touched, and given back with the connection.
    pub(super) fn buffer(message_len: u32) -> Result<MmapMut, SetupError> {
        let buffer = MmapMut::map_anon(room_for(message_len) + INLINE_LEN);
        buffer.map_err(|source| SetupError::System {
            call: "mmap",
            source,
            hint: "each connection has a receive buffer: lower tcp.message_len",
        })
    }

    /// Begins a poll, which receives so much and no more where it belongs, and looks at so many
    /// FPDUs.
    pub(super) fn renew_budget(&mut self) {
        self.budget = RECEIVE_MAX;
        self.looks = LOOKS_MAX;
    }

    /// One system call, if the socket may have something.
    pub(super) fn receive(&mut self) {
        self.make_room();
        let room = self.buffer.len() - INLINE_LEN;
        let until = room.min(self.end + RECEIVE_MAX);
        if until == self.end {
            // The longest message has room, unless its segments have hardly any payload, or more than
            // half a mebibyte of Read Responses lie between them.
            self.link.terminate(Violation::TooLong, None);
            return self.link.set_over();
        }
        self.end += self.receive_into(self.end..until);
    }

    /// One system call: bytes for a part of the buffer, which is not empty. Returns how many came.
    pub(super) fn receive_into(&mut self, part: Range<usize>) -> usize {
        let asked = part.len();
        let received = self.link.socket.recv(&mut self.buffer[part]);
        self.link.received(received, asked)
    }

    /// Moves what is not consumed to the beginning if that is less than what was consumed: a stream
    /// uses the same bytes again while the processor has them at hand. If there is little room behind
    /// it, it is moved in any case.
    fn make_room(&mut self) {
        let (left, room) = (self.end - self.start, self.buffer.len() - INLINE_LEN - self.end);
        let is_far = self.end >= FAR && left <= self.start;
        if left == 0 {
            (self.start, self.parsed, self.end) = (0, 0, 0);
        } else if is_far || room < MOVED_BELOW.min(self.start) {
            self.buffer.copy_within(self.start..self.end, 0);
            for (at, _) in &mut self.parts {
                *at -= self.start;
            }
            self.parsed -= self.start;
            self.end -= self.start;
            self.start = 0;
        }
    }
}

/// Bytes of a buffer in which a message has room, with the headers of its segments, and what is
/// received at one time.
fn room_for(message_len: u32) -> usize {
    let len = message_len as usize;
    len + len / 8 + 2 * RECEIVE_MAX
}

/// Bytes of one system call: a second-level cache has room for them.
const RECEIVE_MAX: usize = 1 << 18;
/// Bytes of the buffer behind which a stream goes back to the beginning.
const FAR: usize = RECEIVE_MAX;
/// Room behind the bytes below which they are moved to the beginning.
const MOVED_BELOW: usize = 1 << 17;
