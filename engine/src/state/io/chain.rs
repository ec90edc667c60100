//! The next work requests of a lane, made while they are posted.

use core::cell::Cell;

use crate::provider::{SendFlags, SendOp, SendWr, WrId};
use crate::state::lane::{Lane, RequestNames};
use crate::state::send::outbox::Outbox;

/// How work requests are posted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// One of this many work requests is signaled.
    pub signal_every: u32,
    /// The bytes of the longest message that is copied while it is posted.
    pub inline_len: u32,
    /// How many work requests may hold memory without a signal.
    pub hold_max: u32,
}

/// The next work requests of a lane.
#[derive(Clone)]
pub(super) struct Chain<'a> {
    outbox: &'a Outbox,
    rule: Rule,
    names: RequestNames,
    /// The message of the next work request, and the position of the request in it.
    message: Option<u32>,
    request: u16,
    /// Work requests since the last signaled one.
    unsignaled: u32,
    /// Notes those that are signaled. A clone notes the same.
    signaled: &'a Cell<Signaled>,
    at: u32,
    /// How many there are.
    len: u32,
}

/// The work requests of a chain that are signaled: a bit for each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Signaled(u64);

impl Signaled {
    /// Also the work request at this position.
    #[inline]
    pub fn with(self, at: usize) -> Signaled {
        Signaled(self.0 | 1 << at)
    }

    /// The work requests behind the last signaled one of `count` that follow so many unsignaled.
    #[inline]
    pub fn unsignaled_behind(self, count: u32, before: u32) -> u32 {
        let noted = self.0 & !u64::MAX.unbounded_shl(count);
        noted.checked_ilog2().map_or(before + count, |last| count - 1 - last)
    }

    /// Whether the work request at this position is signaled.
    pub fn contains(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }
}

impl<'a> Chain<'a> {
    /// The pending work requests of a lane, at most `max`.
    pub fn new(
        outbox: &'a Outbox,
        lane: &Lane,
        rule: Rule,
        signaled: &'a Cell<Signaled>,
        max: usize,
    ) -> Chain<'a> {
        let messages = outbox.messages();
        let message = lane.pending.front();
        let (mut next, mut len) = (message, 0);
        while let Some(message) = next.filter(|_| len < max) {
            let head = messages.head(message);
            len += usize::from(head.requests.max(1) - head.posted);
            next = messages.next(message);
        }
        Chain {
            outbox,
            rule,
            names: lane.names(),
            message,
            request: message.map_or(0, |message| messages.head(message).posted),
            unsignaled: lane.unsignaled(),
            signaled,
            at: 0,
            len: len.min(max).min(u64::BITS as usize) as u32,
        }
    }
}

impl<'a> Iterator for Chain<'a> {
    type Item = SendWr<'a>;

    #[inline]
    fn next(&mut self) -> Option<SendWr<'a>> {
        if self.at == self.len {
            return None;
        }
        let (messages, message) = (self.outbox.messages(), self.message?);
        let head = messages.head(message);
        let mut flags = SendFlags::empty();
        let (op, sgl);
        let mut is_last = true;
        if head.requests == 0 {
            (op, sgl) = (SendOp::Send, core::slice::from_ref(&head.sge));
            if messages.is_inline(message, self.rule.inline_len) {
                flags = SendFlags::INLINE;
            }
        } else {
            (op, sgl) = messages.body(message).request(self.request.into());
            self.request += 1;
            is_last = self.request == head.requests;
        }
        if is_last {
            self.message = messages.next(message);
            self.request = 0;
        }
        self.unsignaled += 1;
        let holds = flags.is_empty() && self.unsignaled >= self.rule.hold_max;
        if holds
            || self.unsignaled >= self.rule.signal_every
            || is_last && head.requests > 0 && self.outbox.is_awaited(message)
        {
            flags |= SendFlags::SIGNALED;
            self.unsignaled = 0;
            self.signaled.set(self.signaled.get().with(self.at as usize));
        }
        self.at += 1;
        Some(SendWr { wr_id: WrId(SEND | self.names.take()), op, sgl, flags })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.len - self.at) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Chain<'_> {}

/// Marks the work requests of sends; the other bits are their identifier in the lane.
pub(super) const SEND: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unsignaled_behind_a_chain_is_what_counting_gives() {
        for bits in 0..64_u64 {
            for count in 0..7 {
                let mut unsignaled = 5;
                for at in 0..count {
                    let is_signaled = Signaled(bits).contains(at);
                    unsignaled = if is_signaled { 0 } else { unsignaled + 1 };
                }
                assert_eq!(Signaled(bits).unsignaled_behind(count as u32, 5), unsignaled);
            }
        }
        let all = Signaled(u64::MAX);
        assert_eq!((all.unsignaled_behind(64, 5), all.unsignaled_behind(0, 5)), (0, 5));
    }
}
