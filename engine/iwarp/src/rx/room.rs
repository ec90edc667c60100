//! The buffer of a connection: bytes of the stream come to its end, and are consumed at its beginning.

use memmap2::MmapMut;
use rpcrdma_provider::SetupError;
use rpcrdma_transport::body::INLINE_LEN;

use super::Rx;
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
        let received = self.link.socket.recv(&mut self.buffer[self.end..until]);
        self.end += self.link.received(received, until - self.end);
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use rpcrdma_transport::carrier::EndId;
    use rpcrdma_transport::conn::Conn;

    use super::*;
    use crate::link::{Link, LinkSpec};
    use crate::port::Port;
    use crate::ready::ReadySet;
    use crate::socket::Socket;
    use crate::terms::{First, Terms};

    /// An end for messages of 4096 bytes, and its peer.
    fn rx() -> (Rx, UnixStream) {
        let (socket, peer) = UnixStream::pair().expect("a pair");
        let link = Link::new(LinkSpec {
            end: EndId { link: 1, side: 1 },
            socket: Socket::of(socket),
            terms: Terms { checks_crc: false, ird: 1, ord: 1, first: First::Theirs },
            port: Arc::new(Port::new(1, ReadySet::of_system().expect("a set"))),
            qp_num: 1,
            conn: Conn::new(),
            message_len: 4096,
        });
        (Rx::new(link).expect("a buffer"), peer)
    }

    /// What lies behind `start`, of which 4 bytes are looked at, with a part at its beginning.
    /// Returns what is there when room was made: start, parsed, end, and the place of the part.
    fn made(start: usize, left: usize) -> (usize, usize, usize, usize) {
        let (mut rx, _peer) = rx();
        (rx.start, rx.parsed, rx.end) = (start, start + left.min(4), start + left);
        rx.parts.push((start, left.min(4)));
        rx.buffer[start..start + left].fill(7);
        rx.make_room();
        assert!(rx.buffer[rx.start..rx.end].iter().all(|byte| *byte == 7), "its bytes");
        (rx.start, rx.parsed, rx.end, rx.parts[0].0)
    }

    #[test]
    fn what_is_left_moves_with_the_parts_of_its_message_if_the_end_is_far() {
        assert_eq!(made(FAR - 10, 10), (0, 4, 10, 0));
        let near = FAR - 11;
        assert_eq!(made(near, 10), (near, near + 4, near + 10, near), "the end is not far");
        let half = FAR / 2;
        assert_eq!(made(half, half), (0, 4, half, 0));
        assert_eq!(
            made(half, half + 1),
            (half, half + 4, 2 * half + 1, half),
            "more than consumed"
        );
    }

    #[test]
    fn what_is_left_moves_if_there_is_little_room_behind_it() {
        let room = room_for(4096);
        let start = MOVED_BELOW + 1;
        let left = |behind: usize| room - behind - start;
        assert_eq!(made(start, left(MOVED_BELOW - 1)), (0, 4, left(MOVED_BELOW - 1), 0));
        let enough = left(MOVED_BELOW);
        assert_eq!(made(start, enough), (start, start + 4, start + enough, start));
        // Where less was consumed, that is what is gained.
        assert_eq!(made(10, room - 10 - 9), (0, 4, room - 19, 0));
        assert_eq!(made(10, room - 10 - 10), (10, 14, room - 10, 10));
    }

    #[test]
    fn a_buffer_without_bytes_begins_again() {
        let (mut rx, mut peer) = rx();
        (rx.start, rx.parsed, rx.end) = (100, 100, 100);
        rx.receive();
        assert_eq!((rx.start, rx.parsed, rx.end), (0, 0, 0));
        peer.write_all(b"bytes").expect("room");
        rx.receive();
        assert_eq!((rx.start, rx.parsed, rx.end, &rx.buffer[..5]), (0, 0, 5, &b"bytes"[..]));
    }
}
