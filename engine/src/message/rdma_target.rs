//! The targets of explicit RDMA for one message: RDMA buffers of the shard, and result buffers of
//! the program.

use rpcrdma_mempool::Loan;

use crate::message::sink::Sink;

/// Memory filled by explicit RDMA for one message.
#[derive(Debug)]
pub(crate) struct RdmaTarget<'a> {
    /// The buffers; `None` for one that was taken.
    pub loans: &'a mut [Option<Loan>],
    /// Which of them are result buffers of the program.
    pub places: &'a [RdmaRange],
}

/// The memory of one want.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RdmaRange {
    /// The want.
    pub want: u8,
    /// Its first buffer.
    pub first: u8,
    /// Its number of buffers.
    pub count: u8,
    /// Whether they belong to the program.
    pub is_sink: bool,
}

impl RdmaTarget<'_> {
    /// Explicit RDMA moved nothing.
    #[inline]
    pub fn nothing() -> RdmaTarget<'static> {
        RdmaTarget { loans: &mut [], places: &[] }
    }

    /// Returns the result buffer of a want, without pieces that were taken.
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        let is_it = |place: &&RdmaRange| usize::from(place.want) == want && place.is_sink;
        let RdmaRange { first, count, .. } = *self.places.iter().find(is_it)?;
        let mut sink = Sink::new();
        let range = usize::from(first)..usize::from(first) + usize::from(count);
        for loan in self.loans.get_mut(range)?.iter_mut().filter_map(Option::take) {
            // It had no more pieces when it was given.
            drop(sink.push(loan).err());
        }
        (!sink.pieces().is_empty()).then_some(sink)
    }
}
