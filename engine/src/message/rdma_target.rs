//! The targets of explicit RDMA for one message: RDMA buffers of the shard, and sinks of the
//! program.

use rpcrdma_mempool::Loan;

use crate::api::sink::Sink;

/// Memory that explicit RDMA has filled for one message.
#[derive(Debug)]
pub(crate) struct RdmaTarget<'a> {
    /// The buffers; one that was taken is gone.
    pub loans: &'a mut [Option<Loan>],
    /// Which of them are sinks of the program.
    pub places: &'a [RdmaRange],
}

/// The memory of one want.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RdmaRange {
    /// The want.
    pub want: u8,
    /// Its first buffer.
    pub first: u8,
    /// How many it has.
    pub count: u8,
    /// Whether they are the program's.
    pub is_sink: bool,
}

impl RdmaTarget<'_> {
    /// Nothing was moved by explicit RDMA.
    #[inline]
    pub fn nothing() -> RdmaTarget<'static> {
        RdmaTarget { loans: &mut [], places: &[] }
    }

    /// Gives the sink of a want back, as far as its pieces were not taken.
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        let is_it = |place: &&RdmaRange| usize::from(place.want) == want && place.is_sink;
        let RdmaRange { first, count, .. } = *self.places.iter().find(is_it)?;
        let mut sink = Sink::new();
        let range = usize::from(first)..usize::from(first) + usize::from(count);
        for loan in self.loans.get_mut(range)?.iter_mut().filter_map(Option::take) {
            // It had no more pieces when it came.
            drop(sink.push(loan).err());
        }
        (!sink.pieces().is_empty()).then_some(sink)
    }
}
