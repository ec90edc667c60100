//! The requested results of a call.

use rpcrdma_proto::{self as proto, WantKind};

use crate::message::sink::Sink;

/// Data items that a call may request by DDP.
pub const WANTS_MAX: usize = 8;

/// A data item of the reply that is requested outside of the payload stream.
///
/// ```
/// # use rpcrdma::*;
/// # use std::time::Duration;
/// # struct Increment;
/// # impl Handler for Increment {
/// #     fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
/// #         let Ok(number) = call.reader().u32() else { return reply.refuse() };
/// #         reply.payload().put_u32(number + 1);
/// #         reply.send()
/// #     }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut engine = Engine::new(Fabric::new(), Config::default())?;
/// # engine.start(|_shard| Increment)?;
/// # let address = engine.listen("127.0.0.1:0".parse::<Address>()?)?;
/// # let mut client = engine.client()?;
/// # let peer = client.connect(address)?;
/// let mut call = client.call(peer, 1)?;
/// call.payload().put_u32(41);
/// call.want(Want { len_min: 0, len_max: 64 << 10 }); // the data of a READ, of up to 64 KiB
/// call.submit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// A shorter item stays in line. 0 places it at any length.
    pub len_min: u32,
    /// Its maximum length. Receives are reserved for it.
    pub len_max: u32,
}

/// A want, and the operation that it is a result of: a range of the unreduced XDR stream. The wants
/// of the call under construction are in the outbox: in the builder, with their result buffers,
/// every call would move kilobytes.
pub(crate) struct Wanted {
    pub want: Want,
    pub kind: WantKind,
    pub sent_max: u32,
    pub sink: Option<Sink>,
    pub begin: u32,
    /// [`OPEN`] for the operation that is being written.
    pub end: u32,
}

impl Wanted {
    /// In the protocol's form, for a call of `end` bytes.
    pub fn as_demand(&self, end: u32) -> proto::Want {
        let Want { len_min: min_len, len_max: max_len } = self.want;
        let (begin, end) = (self.begin, self.end.min(end));
        let pieces = self.sink.as_ref().map_or(0, |sink| sink.pieces().len() as u32);
        proto::Want { begin, end, min_len, max_len, kind: self.kind, over: self.sent_max, pieces }
    }
}

/// The end of the operation being written, which is that of the call.
pub(crate) const OPEN: u32 = u32::MAX;
