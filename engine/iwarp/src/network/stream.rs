//! One side of a connection of a virtual network.

use std::collections::VecDeque;
use std::io::{IoSlice, Read};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::Shutdown;

use super::random::Random;

/// One side of a connection: what it has sent that has not come, and what has come to it.
#[derive(Debug)]
pub(super) struct Stream {
    /// The socket of the other side.
    pub peer: u64,
    under_way: VecDeque<u8>,
    under_way_max: usize,
    received: VecDeque<u8>,
    received_max: usize,
    /// Whether this side sends no more, and whether that has come to the peer.
    has_ended: bool,
    has_sent_end: bool,
    /// The end of the peer's stream has come, behind what has come.
    is_at_end: bool,
    /// This side receives no more.
    has_shut_read: bool,
    is_reset: bool,
    /// The peer takes nothing any more.
    is_lost: bool,
    error: Option<Errno>,
    /// A call has not taken all: there is an edge when there is room again.
    wants_room: bool,
    /// Bytes of this side that have come to the peer, and where the connection is cut behind them.
    carried: usize,
    cut: Option<Cut>,
    /// Nothing of this side comes for so many steps.
    held: usize,
}

/// Where and how a connection is cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub at: usize,
    pub how: How,
}

/// How a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Both sides get an error.
    Reset,
    /// The peer reads the end of the stream. This side is reset when it sends more.
    End,
}

/// What has become of bytes that were under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// Nothing moved.
    Nothing,
    /// The end of the stream comes.
    End,
    /// The peer takes nothing any more.
    Nowhere,
    /// So many bytes come, and the connection is cut behind them.
    Bytes(usize, Option<How>),
}

impl Stream {
    pub(super) fn new(peer: u64, random: &mut Random, cut: Option<Cut>) -> Stream {
        Stream {
            peer,
            under_way: VecDeque::new(),
            under_way_max: random.choose(&[1 << 10, 4 << 10, 64 << 10, 1 << 20]),
            received: VecDeque::new(),
            received_max: random.choose(&[256, 4 << 10, 64 << 10, 1 << 20]),
            has_ended: false,
            has_sent_end: false,
            is_at_end: false,
            has_shut_read: false,
            is_reset: false,
            is_lost: false,
            error: None,
            wants_room: false,
            carried: 0,
            cut,
            held: 0,
        }
    }

    /// From now on there is much room for what comes.
    pub(super) fn widen(&mut self) {
        self.received_max = self.received_max.max(WIDE);
    }

    pub(super) fn recv(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        if self.received.is_empty() {
            return match self.error.take().filter(|_| !self.is_at_end) {
                Some(error) => Err(error),
                None if self.is_at_end || self.has_shut_read || self.is_reset => Ok(0),
                None => Err(Errno::AGAIN),
            };
        }
        let mut taken = 0;
        // A deque gives its bytes in two runs.
        while taken < into.len() && !self.received.is_empty() {
            taken += self.received.read(&mut into[taken..]).map_err(|_| Errno::IO)?;
        }
        Ok(taken)
    }

    pub(super) fn send(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.is_reset || self.has_ended {
            return Err(Errno::PIPE);
        }
        let mut taken = 0;
        for part in from {
            let room = self.under_way_max - self.under_way.len();
            let len = part.len().min(room);
            self.under_way.extend(&part[..len]);
            taken += len;
            self.wants_room |= len < part.len();
        }
        if taken == 0 { Err(Errno::AGAIN) } else { Ok(taken) }
    }

    pub(super) fn shutdown(&mut self, how: Shutdown) {
        self.has_ended |= how != Shutdown::Read;
        self.has_shut_read |= how != Shutdown::Write;
    }

    pub(super) fn has_more(&self) -> bool {
        !self.received.is_empty()
    }

    /// Takes what of this side comes to the peer in a step, which has this much room. `is_calm`:
    /// there are no cuts.
    pub(super) fn advance(
        &mut self,
        random: &mut Random,
        room: usize,
        is_calm: bool,
        into: &mut VecDeque<u8>,
    ) -> Moved {
        if self.held > 0 {
            self.held -= 1;
            return Moved::Nothing;
        }
        if random.one_in(12) {
            self.held = random.choose(&[1, 3, 10, 40]);
            return Moved::Nothing;
        }
        if self.is_lost && !self.under_way.is_empty() {
            return Moved::Nowhere;
        }
        if self.under_way.is_empty() {
            let is_due = self.has_ended && !self.has_sent_end && !self.is_reset;
            self.has_sent_end |= is_due;
            return if is_due { Moved::End } else { Moved::Nothing };
        }
        let most = random.choose(&[1, 16, 1500, usize::MAX, usize::MAX]);
        let most = if most < usize::MAX { 1 + random.below(most) } else { most };
        let mut len = most.min(self.under_way.len()).min(room);
        let cut = self.cut.filter(|cut| !is_calm && cut.at <= self.carried + len);
        if let Some(cut) = cut {
            len = cut.at - self.carried;
            self.cut = None;
        } else if len == 0 {
            return Moved::Nothing;
        }
        into.extend(self.under_way.drain(..len));
        self.carried += len;
        Moved::Bytes(len, cut.map(|cut| cut.how))
    }

    /// Whether bytes are under way.
    pub(super) fn has_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether all that this side has sent has come, and its end.
    pub(super) fn is_done(&self) -> bool {
        self.is_reset || self.has_sent_end
    }

    /// Whether there is room again that a call has not found.
    pub(super) fn take_wanted_room(&mut self) -> bool {
        let has_room = self.under_way.len() < self.under_way_max;
        has_room && std::mem::take(&mut self.wants_room)
    }

    /// Room for what comes.
    pub(super) fn room(&self) -> usize {
        self.received_max.saturating_sub(self.received.len())
    }

    /// Bytes come.
    pub(super) fn receive(&mut self, bytes: &mut VecDeque<u8>) {
        self.received.append(bytes);
    }

    /// The end of the peer's stream comes.
    pub(super) fn end(&mut self) {
        self.is_at_end = true;
    }

    /// The peer has read an end: what is still sent resets this side.
    pub(super) fn lose_peer(&mut self) {
        self.is_lost = true;
    }

    pub(super) fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }

    /// The connection is no more. What has come can be read.
    pub(super) fn reset(&mut self) {
        if !self.is_reset {
            self.is_reset = true;
            self.error = Some(Errno::CONNRESET);
            self.under_way.clear();
        }
    }

    /// What it is ready for.
    pub(super) fn ready_for(&self) -> EventFlags {
        let is_readable =
            !self.received.is_empty() || self.is_at_end || self.has_shut_read || self.is_reset;
        let is_writable =
            self.under_way.len() < self.under_way_max || self.has_ended || self.is_reset;
        let flags = [
            (is_readable, EventFlags::IN),
            (is_writable, EventFlags::OUT),
            (self.is_at_end || self.is_reset, EventFlags::RDHUP),
            (self.is_reset || self.is_at_end && self.has_ended, EventFlags::HUP),
            (self.error.is_some(), EventFlags::ERR),
        ];
        flags.into_iter().filter_map(|(is_so, flag)| is_so.then_some(flag)).collect()
    }
}

/// Room for what comes when nothing hinders it.
const WIDE: usize = 1 << 20;
