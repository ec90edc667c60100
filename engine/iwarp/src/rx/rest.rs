//! A long tagged segment whose payload has not come whole.

/// A segment whose payload has not come whole.
pub(super) struct Rest {
    pub sink: Sink,
    /// Bytes of the payload that are not in their place.
    pub left: u32,
    /// Bytes behind the payload.
    pub tail: usize,
}

/// Where it belongs.
#[derive(Clone, Copy)]
pub(super) enum Sink {
    /// A key of this side, and where the next byte goes.
    Write { stag: u32, to: u64 },
    /// The sink of a Read.
    Response { stag: u32, is_last: bool },
}

impl Rest {
    /// So many bytes more are in their place.
    pub fn note(&mut self, len: u32) {
        self.left -= len;
        if let Sink::Write { to, .. } = &mut self.sink {
            *to += u64::from(len);
        }
    }
}
