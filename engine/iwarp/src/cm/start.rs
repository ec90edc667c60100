//! The frames that start a connection.

use arrayvec::ArrayVec;
use rpcrdma_provider::PrivateBytes;
use rustix::io::Errno;

use crate::calls::Calls;
use crate::socket::Socket;
use crate::wire::start::{FRAME_MAX, Frame, Kind, Malformed, Start};

/// Sends a start frame.
///
/// # Errors
/// [`Errno::PIPE`] also if there is no room for it, which a new connection has.
pub(super) fn send(socket: &Socket, start: &Start, private: &[u8]) -> Result<(), Errno> {
    let frame = start.encode(private);
    let sent = rustix::io::retry_on_intr(|| socket.send(&frame))?;
    if sent == frame.len() { Ok(()) } else { Err(Errno::PIPE) }
}

/// Takes a start frame from a stream, and nothing behind it.
#[derive(Debug)]
pub(super) struct Reader {
    kind: Kind,
    bytes: ArrayVec<u8, FRAME_MAX>,
}

/// What a look for a start frame has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// The whole frame.
    Start(Start, PrivateBytes),
    /// Something else.
    Malformed(Malformed),
    /// The stream has ended; or why it has failed.
    End(Option<Errno>),
}

impl Reader {
    pub(super) fn new(kind: Kind) -> Reader {
        Reader { kind, bytes: ArrayVec::new() }
    }

    /// Takes what is there. None if the end of the frame has not come yet.
    pub(super) fn read(&mut self, socket: &Socket) -> Option<Received> {
        loop {
            match Frame::decode(self.kind, &self.bytes) {
                Ok(Some(Frame { start, private, .. })) => {
                    return Some(Received::Start(start, kept(private)));
                }
                Ok(None) => {}
                Err(why) => return Some(Received::Malformed(why)),
            }
            let mut bytes = [0; FRAME_MAX];
            let missing = Frame::len_known(&self.bytes).min(FRAME_MAX) - self.bytes.len();
            match socket.recv(&mut bytes[..missing]) {
                Ok(0) => return Some(Received::End(None)),
                Ok(len) => self.bytes.extend(bytes[..len].iter().copied()),
                Err(Errno::AGAIN) => return None,
                Err(Errno::INTR) => {}
                Err(error) => return Some(Received::End(Some(error))),
            }
        }
    }
}

/// The private data that a program gets. What does not fit is padding, as that of other devices.
fn kept(private: &[u8]) -> PrivateBytes {
    let mut kept = PrivateBytes::new();
    kept.extend(private.iter().copied().take(kept.capacity()));
    kept
}
