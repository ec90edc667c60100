//! Result buffers: memory of the program that a peer may write to.

use arrayvec::ArrayVec;
use rpcrdma_mempool::Loan;

/// Pieces of a result buffer.
pub const SINK_PIECES_MAX: usize = 16;

/// Registered memory that one result of a call may be written to by RDMA Write.
///
/// It moves into the call and comes back with its completion, when the peer's right to it has
/// ended: invalidated, or its queue pair destroyed. So no writer exists while a `&[u8]` does. A
/// buffer that the device may still write to never comes back. Only `explicit.exposure =
/// "static-insecure"` breaks this: its rights never end.
///
/// Each piece is one segment on the wire; a result fills them in order.
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
/// let memory = client.turn(clock.now()).buffer().ok_or("all buffers are out")?;
/// let mut call = client.call(peer, 1)?;
/// call.payload().put_u32(41);
/// call.want_into(Want { len_min: 0, len_max: 64 << 10 }, Sink::from(memory));
/// call.submit()?;
///
/// let mut sink = None;
/// while sink.is_none() {
///     // Only now may the peer write to it no more.
///     client.poll_for(Duration::from_secs(1), |mut done| sink = done.take_sink(0));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Sink {
    pub(crate) pieces: ArrayVec<Loan, SINK_PIECES_MAX>,
}

impl Sink {
    /// No memory yet.
    pub fn new() -> Sink {
        Sink::default()
    }

    /// Appends a piece.
    ///
    /// # Errors
    /// The loan, if there are [`SINK_PIECES_MAX`] already.
    pub fn push(&mut self, piece: Loan) -> Result<(), Loan> {
        self.pieces.try_push(piece).map_err(|full| full.element())
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Loan] {
        &self.pieces
    }

    /// Splits it into its pieces.
    pub fn into_pieces(self) -> impl ExactSizeIterator<Item = Loan> {
        self.pieces.into_iter()
    }
}

impl From<Loan> for Sink {
    fn from(loan: Loan) -> Sink {
        let mut sink = Sink::new();
        sink.pieces.push(loan);
        sink
    }
}
