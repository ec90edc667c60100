//! The bytes that a connection is to send, until TCP has taken them.
//!
//! ```text
//!   │ own: head, short payload, CRC, head │ lent: memory of a request │ own: CRC, head, … │ kept │
//! ```
//!
//! Headers and short payloads are copied; longer ones are sent from where they are. One system call
//! takes all that there is.
#![expect(unsafe_code, reason = "posted memory is sent from where it is")]

use std::collections::VecDeque;
use std::io::IoSlice;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::calls::Calls;
use crate::socket::Socket;
use crate::wire::fpdu::{self, Crc};

/// Bytes to be sent, in order.
pub(crate) struct Output {
    chunks: VecDeque<Chunk>,
    /// The bytes of the chunks that are [`Chunk::Own`].
    own: Vec<u8>,
    /// How many of them were sent.
    own_sent: usize,
    /// Bytes since the connection began, and how many of them were sent.
    queued: u64,
    sent: u64,
    /// Where messages end, with whether they are slots.
    ends: VecDeque<(u64, bool)>,
    /// The end of the last message that was sent whole.
    last_end: u64,
    has_crc: bool,
    state: StreamState,
    /// The last message states why the stream ends.
    has_reason: bool,
}

/// Consecutive bytes that are not sent.
enum Chunk {
    /// So many of [`Output::own`].
    Own(usize),
    /// Memory of a request.
    Lent(Lent),
    /// A copy of such, and how many bytes of it were sent.
    Kept(Box<KeptBytes>),
}

/// In a box of its own: dropping another chunk then looks at nothing but which one it is.
struct KeptBytes {
    bytes: Box<[u8]>,
    sent: usize,
}

/// What is behind the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamState {
    /// More may come.
    Open,
    /// The end of the stream.
    Ending,
    /// The end was sent.
    Ended,
    /// The socket takes nothing any more. What is queued was not sent.
    Broken,
}

/// Memory that a request names, or a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lent {
    addr: usize,
    len: usize,
}

impl Lent {
    /// # Safety
    /// The bytes are readable, and not written, until they were sent, or an [`Output::keep`] of them or
    /// [`Output::cut`] has returned.
    pub(crate) unsafe fn new(addr: u64, len: u32) -> Lent {
        Lent { addr: addr as usize, len: len as usize }
    }

    fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        let from = std::ptr::with_exposed_provenance::<u8>(self.addr);
        // SAFETY: `new` was promised it, and values of this type are dropped then.
        unsafe { std::slice::from_raw_parts(from, self.len) }
    }

    /// The first `len` bytes, or all, and the rest.
    fn split(self, len: usize) -> (Lent, Lent) {
        let len = len.min(self.len);
        let rest = Lent { addr: self.addr.wrapping_add(len), len: self.len - len };
        (Lent { len, ..self }, rest)
    }
}

impl Output {
    /// Nothing to be sent, with room for `slots` short messages. `has_crc` states whether FPDUs
    /// have a CRC.
    pub(crate) fn new(slots: usize, has_crc: bool) -> Output {
        Output {
            chunks: VecDeque::with_capacity(2 * slots),
            own: Vec::with_capacity(slots * SLOT_BYTES),
            own_sent: 0,
            queued: 0,
            sent: 0,
            ends: VecDeque::with_capacity(2 * slots),
            last_end: 0,
            has_crc,
            state: StreamState::Open,
            has_reason: false,
        }
    }

    /// Adds a message in one FPDU that has no payload but `payload`.
    #[inline]
    pub(crate) fn push_short(&mut self, header: &[u8], payload: &[u8]) {
        if !self.is_open() {
            return;
        }
        let start = self.own.len();
        let ulpdu_len = header.len() + payload.len();
        self.own.extend_from_slice(&(ulpdu_len as u16).to_be_bytes());
        self.own.extend_from_slice(header);
        self.own.extend_from_slice(payload);
        let crc = self.has_crc.then(|| {
            let mut crc = Crc::new();
            crc.update(&self.own[start..]);
            crc
        });
        self.end_fpdu(ulpdu_len, crc);
        self.add_own(start);
    }

    /// Adds a message of at most `step` bytes in each FPDU. `header` makes the header of each, from
    /// its offset in the message and whether it is the last.
    pub(crate) fn push_long<H: AsRef<[u8]>>(
        &mut self,
        message: &[Lent],
        step: usize,
        mut header: impl FnMut(u32, bool) -> H,
    ) {
        if !self.is_open() {
            return;
        }
        let mut left: usize = message.iter().map(|part| part.len).sum();
        let (mut offset, mut parts) = (0_u32, message.iter().copied());
        let mut part = parts.next();
        loop {
            let len = left.min(step);
            left -= len;
            let (start, header) = (self.own.len(), header(offset, left == 0));
            let ulpdu_len = header.as_ref().len() + len;
            self.own.extend_from_slice(&(ulpdu_len as u16).to_be_bytes());
            self.own.extend_from_slice(header.as_ref());
            let mut crc = self.has_crc.then(Crc::new);
            if let Some(crc) = &mut crc {
                crc.update(&self.own[start..]);
            }
            self.add_own(start);
            let mut room = len;
            while let Some(now) = part
                && room > 0
            {
                let (first, rest) = now.split(room);
                room -= first.len;
                part = if rest.len > 0 { Some(rest) } else { parts.next() };
                self.add_lent(first, &mut crc);
            }
            let start = self.own.len();
            self.end_fpdu(ulpdu_len, crc);
            self.add_own(start);
            offset = offset.wrapping_add(len as u32);
            if left == 0 {
                return;
            }
        }
    }

    /// Adds payload: copied if it is short.
    fn add_lent(&mut self, part: Lent, crc: &mut Option<Crc>) {
        if part.len == 0 {
            return;
        }
        if let Some(crc) = crc {
            crc.update(part.bytes());
        }
        if part.len <= COPIED {
            let start = self.own.len();
            self.own.extend_from_slice(part.bytes());
            return self.add_own(start);
        }
        self.queued += part.len as u64;
        self.chunks.push_back(Chunk::Lent(part));
    }

    /// Adds padding and CRC to the own bytes.
    fn end_fpdu(&mut self, ulpdu_len: usize, crc: Option<Crc>) {
        let padding = &[0; 3][..fpdu::padding_of(ulpdu_len)];
        self.own.extend_from_slice(padding);
        let crc = crc.map_or([0; fpdu::CRC_LEN], |mut crc| {
            crc.update(padding);
            crc.to_wire()
        });
        self.own.extend_from_slice(&crc);
    }

    /// The own bytes from `start` are queued.
    fn add_own(&mut self, start: usize) {
        let len = self.own.len() - start;
        self.queued += len as u64;
        match self.chunks.back_mut() {
            Some(Chunk::Own(before)) => *before += len,
            _ => self.chunks.push_back(Chunk::Own(len)),
        }
    }

    /// A message is whole. `is_slot` states whether it is a slot of the transport.
    pub(crate) fn end_message(&mut self, is_slot: bool) {
        if self.state != StreamState::Broken {
            self.ends.push_back((self.queued, is_slot));
        }
    }

    /// The stream ends behind what was added so far.
    pub(crate) fn end(&mut self) {
        if self.state == StreamState::Open {
            self.state = StreamState::Ending;
        }
    }

    /// Adds a message that states why the stream ends, as its last one. None is added if the end
    /// was sent, or the message is there.
    #[cold]
    pub(crate) fn end_with(&mut self, header: &[u8], payload: &[u8]) {
        if self.has_reason || !matches!(self.state, StreamState::Open | StreamState::Ending) {
            return;
        }
        self.state = StreamState::Open;
        self.push_short(header, payload);
        self.end_message(false);
        (self.state, self.has_reason) = (StreamState::Ending, true);
    }

    /// Whether something can be added.
    pub(crate) fn is_open(&self) -> bool {
        self.state == StreamState::Open
    }

    /// Copies the memory that was added behind the position `from` and is not sent yet: from now on
    /// it is not read.
    #[cold]
    pub(crate) fn keep(&mut self, from: u64) {
        let mut left = self.queued - from.max(self.sent);
        for chunk in self.chunks.iter_mut().rev() {
            if left == 0 {
                return;
            }
            let len = match chunk {
                Chunk::Own(len) => *len,
                Chunk::Lent(lent) => {
                    let bytes: Box<[u8]> = lent.bytes().into();
                    let len = bytes.len();
                    *chunk = Chunk::Kept(Box::new(KeptBytes { bytes, sent: 0 }));
                    len
                }
                Chunk::Kept(kept) => kept.bytes.len() - kept.sent,
            };
            // What was added before ends in the own bytes that this begins with.
            left = left.saturating_sub(len as u64);
        }
    }

    /// Drops the requests that are not sent: from now on their memory is not read. Returns their
    /// number. If one was sent in part, it is completed from a copy if the stream states why it
    /// ends; otherwise the stream ends there.
    #[cold]
    pub(crate) fn cut(&mut self) -> u64 {
        let slots = self.ends.iter().filter(|(_, is_slot)| *is_slot).count();
        let is_whole = self.sent == self.last_end;
        if is_whole || self.has_reason {
            (self.own, self.ends) = self.kept(is_whole);
        } else {
            self.own.clear();
            self.ends.clear();
            self.end();
        }
        self.chunks.clear();
        self.own_sent = 0;
        self.queued = self.sent;
        if !self.own.is_empty() {
            self.add_own(0);
        }
        slots as u64
    }

    /// A copy of what is not dropped by a cut, and where its messages end.
    fn kept(&self, is_whole: bool) -> (Vec<u8>, VecDeque<(u64, bool)>) {
        let (mut kept, mut ends) = (Vec::new(), VecDeque::new());
        let mut unsent = Unsent { parts: self.unsent(), part: &[] };
        let mut from = self.sent;
        for &(end, is_slot) in &self.ends {
            let is_begun = from == self.sent && !is_whole;
            let does_stay = is_begun || !is_slot;
            unsent.pass((end - from) as usize, does_stay.then_some(&mut kept));
            if does_stay {
                ends.push_back((self.sent + kept.len() as u64, false));
            }
            from = end;
        }
        (kept, ends)
    }

    /// Bytes since the connection began: the position behind what was added.
    pub(crate) fn queued(&self) -> u64 {
        self.queued
    }

    /// Bytes that are not sent.
    #[inline]
    pub(crate) fn pending(&self) -> u64 {
        self.queued - self.sent
    }

    /// Whether the end of the stream is due: true once, when all before it was sent.
    pub(crate) fn take_end(&mut self) -> bool {
        let is_due = self.state == StreamState::Ending && self.pending() == 0;
        if is_due {
            self.state = StreamState::Ended;
        }
        is_due
    }

    /// Sends what the socket takes. Returns how many slots are sent with it. If the socket fails,
    /// nothing is sent any more; what the peer has sent before can still be received, and its end.
    pub(crate) fn flush(&mut self, socket: &Socket) -> u64 {
        while self.pending() > 0 && self.state != StreamState::Broken {
            match self.send_some(socket) {
                Ok((sent, given)) => {
                    self.advance(sent);
                    if sent < given {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.state = StreamState::Broken;
                    socket.shutdown(Shutdown::Both);
                }
            }
        }
        self.pass_ends()
    }

    /// One system call. Returns the bytes that it has taken, and those that it was given.
    fn send_some(&self, socket: &Socket) -> Result<(usize, usize), Errno> {
        let parts = self.unsent().take(PARTS_MAX);
        let parts: ArrayVec<IoSlice<'_>, PARTS_MAX> = parts.map(IoSlice::new).collect();
        let given = parts.iter().map(|part| part.len()).sum();
        let sent = match parts.as_slice() {
            [one] => socket.send(one),
            all => socket.send_parts(all),
        };
        Ok((sent?, given))
    }

    /// What is not sent, in order.
    fn unsent(&self) -> impl Iterator<Item = &[u8]> {
        let mut own = self.own_sent;
        self.chunks.iter().map(move |chunk| match chunk {
            Chunk::Own(len) => {
                let start = own;
                own += len;
                &self.own[start..own]
            }
            Chunk::Lent(lent) => lent.bytes(),
            Chunk::Kept(kept) => &kept.bytes[kept.sent..],
        })
    }

    /// So many bytes more were sent.
    fn advance(&mut self, sent: usize) {
        self.sent += sent as u64;
        let mut left = sent;
        while left > 0
            && let Some(chunk) = self.chunks.front_mut()
        {
            let (now, rest) = match chunk {
                Chunk::Own(len) => {
                    let now = left.min(*len);
                    (self.own_sent, *len) = (self.own_sent + now, *len - now);
                    (now, *len)
                }
                Chunk::Lent(lent) => {
                    let (first, rest) = lent.split(left);
                    *lent = rest;
                    (first.len, rest.len)
                }
                Chunk::Kept(kept) => {
                    let now = left.min(kept.bytes.len() - kept.sent);
                    kept.sent += now;
                    (now, kept.bytes.len() - kept.sent)
                }
            };
            left -= now;
            if rest == 0 {
                self.chunks.pop_front();
            }
        }
        if self.chunks.is_empty() {
            self.own.clear();
            self.own_sent = 0;
        } else if self.own_sent >= OWN_SENT_MAX {
            self.own.drain(..self.own_sent);
            self.own_sent = 0;
        }
    }

    /// The number of slots that end with what was sent.
    fn pass_ends(&mut self) -> u64 {
        let mut slots = 0;
        while let Some((end, is_slot)) = self.ends.front().copied()
            && end <= self.sent
        {
            self.ends.pop_front();
            self.last_end = end;
            slots += u64::from(is_slot);
        }
        slots
    }
}

/// A walk through what is not sent.
struct Unsent<'a, I> {
    parts: I,
    /// What is left of the part before.
    part: &'a [u8],
}

impl<'a, I: Iterator<Item = &'a [u8]>> Unsent<'a, I> {
    /// Passes so many bytes, and copies them.
    fn pass(&mut self, mut len: usize, mut into: Option<&mut Vec<u8>>) {
        while len > 0 {
            if self.part.is_empty() {
                let Some(part) = self.parts.next() else { return };
                self.part = part;
                continue;
            }
            let (now, rest) = self.part.split_at(len.min(self.part.len()));
            if let Some(into) = &mut into {
                into.extend_from_slice(now);
            }
            (len, self.part) = (len - now.len(), rest);
        }
    }
}

/// Own bytes of a short message: a header, what fits in a slot, padding and CRC.
const SLOT_BYTES: usize = 256;
/// The longest piece of memory that is copied: a shorter one costs less so than as a part of its own.
const COPIED: usize = 1024;
/// Parts of one system call.
const PARTS_MAX: usize = 64;
/// Own bytes that are kept though they were sent.
const OWN_SENT_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
