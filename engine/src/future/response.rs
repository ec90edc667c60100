//! A reply that belongs to the task: copied, or kept in the memory that it has arrived in.

use std::ops::Deref;

use crate::message::payload_reader::PayloadReader;
use crate::onc::ResultsError;
use crate::{Incoming, Loan, SessionCompletion, SessionError, Sink};

/// A reply.
#[derive(Debug)]
pub struct Response {
    payload: Vec<u8>,
    items: Vec<Item>,
    sinks: Vec<Option<Sink>>,
}

/// A data item of a reply that was placed outside of its payload.
#[derive(Debug)]
pub struct Item {
    /// The want that it answers, by the order of requests.
    pub want: usize,
    /// Its position in the unreduced XDR stream; none in Write chunks of the base protocol.
    pub position: Option<u32>,
    /// Its bytes, in order.
    pub pieces: Vec<Piece>,
}

/// Some bytes of a data item.
#[derive(Debug)]
pub enum Piece {
    /// Copied.
    Copied(Vec<u8>),
    /// In the registered memory that they have arrived in. It returns to its pool when the loan is
    /// dropped, on any thread.
    Loan(Loan),
}

impl Response {
    /// Takes the reply out of a completion.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn of(
        done: &mut SessionCompletion<'_, '_>,
        wants: usize,
        keeps_loans: bool,
    ) -> Result<Response, SessionError> {
        let incoming = done.result_mut()?;
        let payload = match incoming.contiguous() {
            Some(whole) => whole.to_vec(),
            None => incoming.payload().flatten().copied().collect(),
        };
        let items = match keeps_loans {
            true => taken(incoming),
            false => copied(incoming),
        };
        let sinks = (0..wants).map(|want| done.take_sink(want)).collect();
        Ok(Response { payload, items, sinks })
    }

    /// The payload: the RPC message without its placed items, from the transaction id on.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// A reader of the payload, positioned behind transaction id and message type.
    pub fn reader(&self) -> PayloadReader<'_> {
        let mut reader = PayloadReader::of(&self.payload);
        // The engine has already read these two words.
        let _ = reader.skip(8);
        reader
    }

    /// A reader positioned at the results of a call, behind the header of RFC 5531.
    ///
    /// # Errors
    /// [`ResultsError`] if the call was not executed.
    pub fn results(&self) -> Result<PayloadReader<'_>, ResultsError> {
        self.reader().results()
    }

    /// The items that were placed outside of the payload, in stream order.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The same, to be kept.
    pub fn into_items(self) -> Vec<Item> {
        self.items
    }

    /// The result buffer of a want, by the order of requests; once. Pieces that are loans of an
    /// item are not in it.
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        self.sinks.get_mut(want)?.take()
    }
}

impl Item {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Piece::Copied(bytes) => bytes,
            Piece::Loan(loan) => loan,
        }
    }
}

/// The items, each in one piece of memory of its own.
fn copied(incoming: &Incoming<'_>) -> Vec<Item> {
    let items = incoming.placed().map(|item| {
        let mut bytes = Vec::with_capacity(item.len() as usize);
        item.segments().for_each(|segment| bytes.extend_from_slice(segment));
        let pieces = vec![Piece::Copied(bytes)];
        Item { want: item.index(), position: item.position(), pieces }
    });
    items.collect()
}

/// The items, out of the receive buffers as far as possible.
fn taken(incoming: &mut Incoming<'_>) -> Vec<Item> {
    let empty = incoming.placed().map(|item| {
        let pieces = Vec::with_capacity(item.segments().len());
        Item { want: item.index(), position: item.position(), pieces }
    });
    let mut items: Vec<Item> = empty.collect();
    for (at, item) in items.iter_mut().enumerate() {
        for piece in 0..item.pieces.capacity() {
            let segment =
                |it: &Incoming<'_>| it.placed().nth(at)?.segments().nth(piece).map(Vec::from);
            item.pieces.push(match incoming.take(at, piece) {
                Ok(loan) => Piece::Loan(loan),
                Err(_) => Piece::Copied(segment(incoming).unwrap_or_default()),
            });
        }
    }
    items
}
