//! The payload of a message under construction: XDR written directly into registered memory.

use std::sync::Arc;

use crate::handle::ticket::Dropped;
use crate::message::bulk::Bulk;
use crate::message::values::put_values;
use crate::state::parts::Parts;
use crate::state::send::outbox::Outbox;

/// Writes one RPC message and marks the data to send in place.
///
/// The transaction id and the message type are written by the engine; writing begins behind them.
/// Positions count from the start of the RPC message and include the data given to
/// [`Payload::place`]: they are those of the unreduced XDR stream.
///
/// Errors are sticky: later data is not written, and sending the message returns the error.
///
/// Cost: a bounds check and a store for each word.
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
/// let mut payload = call.payload();
/// payload.put_u32(41);
/// payload.put_opaque(b"name"); // its length, the bytes, padding to four
/// assert_eq!(payload.position(), 8 + 4 + 4 + 4);
/// call.submit()?;
/// # Ok(())
/// # }
/// ```
pub struct Payload<'a> {
    /// With the message under construction in its outbox: a handle is one reference.
    parts: &'a mut Parts,
}

impl<'a> Payload<'a> {
    /// The message that was begun in the outbox.
    #[inline(always)]
    pub(crate) fn new(parts: &'a mut Parts) -> Payload<'a> {
        Payload { parts }
    }

    put_values!();

    /// Writes fixed-length opaque data: bytes, padding.
    #[inline(always)]
    pub fn put_fixed(&mut self, bytes: &[u8]) {
        self.parts.outbox.put(bytes);
    }

    /// Writes the count of variable-length opaque data, and sends the bytes from their place.
    ///
    /// The data go to a placement segment of the peer if it requests that, and follow in line
    /// otherwise. The memory is returned when the message has left.
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
    /// # let clock = Clock::new();
    /// let mut data = client.turn(clock.now()).buffer().ok_or("all buffers are out")?;
    /// data.truncate(100_000);
    /// data.fill(0x5a);
    /// let mut call = client.call(peer, 1)?;
    /// call.payload().put_u32(41);
    /// call.payload().place(data); // sent from where it is
    /// call.submit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn place(&mut self, bulk: impl Into<Bulk>) {
        self.parts.outbox.place_one(bulk.into());
    }

    /// As [`Payload::place`], for one data item in several pieces.
    pub fn place_pieces(&mut self, pieces: impl IntoIterator<Item = Bulk>) {
        self.parts.outbox.place(pieces);
    }

    /// The current position in the unreduced XDR stream.
    pub fn position(&self) -> u32 {
        self.parts.outbox.position()
    }

    /// Where the message is written.
    #[inline]
    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        &mut self.parts.outbox
    }

    #[inline]
    pub(crate) fn parts(&mut self) -> &mut Parts {
        self.parts
    }

    /// Where a ticket for the answer records that it was dropped.
    pub(crate) fn dropped_tickets(&self) -> &Arc<Dropped> {
        self.parts.handle.dropped()
    }
}

impl Drop for Payload<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.parts.outbox.has_draft() {
            self.parts.outbox.abandon();
        }
    }
}
