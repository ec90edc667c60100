//! Reads a message through its binding: placed items are accepted only at their positions.

use super::binding::{Bound, Item, Order};
use super::data::Data;
use super::protection::Protection;
use crate::message::incoming::{Incoming, PlacedItem};
use crate::message::map::WriteChunks;
use crate::message::payload_reader::{EndOfMessage, PayloadReader};

/// Reads a call or a reply by its binding.
///
/// The program owns the reader of the stream. At a DDP-eligible item it calls [`Items::data`],
/// which returns the item inline or placed; at the end [`Items::end`] checks that every placed item
/// was read.
#[derive(Debug, Clone)]
pub struct Items<'a> {
    reader: PayloadReader<'a>,
    message: &'a Incoming<'a>,
    order: Order,
    protection: Protection,
    /// Placed items read so far.
    met: usize,
    /// Their bytes, with padding.
    met_len: u32,
    /// Write chunks matched with results, in a reply of the base protocol.
    chunk: usize,
}

impl Bound {
    /// Reads a call of this procedure: `reader` is positioned behind the header of `call`, as by
    /// [`PayloadReader::call_header`].
    pub fn arguments<'a>(&self, call: &'a Incoming<'a>, reader: PayloadReader<'a>) -> Items<'a> {
        Items::new(call, reader, self.procedure().arguments, self.protection())
    }

    /// Reads a reply to a call of this procedure, from behind transaction id and message type.
    pub fn results<'a>(&self, reply: &'a Incoming<'a>) -> Items<'a> {
        Items::new(reply, reply.reader(), self.procedure().results, self.protection())
    }
}

impl<'a> Items<'a> {
    fn new(
        message: &'a Incoming<'a>,
        reader: PayloadReader<'a>,
        items: &'static [Item],
        protection: Protection,
    ) -> Items<'a> {
        let order = Order::new(items);
        Items { reader, message, order, protection, met: 0, met_len: 0, chunk: 0 }
    }

    /// The stream.
    pub fn reader(&mut self) -> &mut PayloadReader<'a> {
        &mut self.reader
    }

    /// The position in the unreduced XDR stream, from the transaction id on.
    pub fn position(&self) -> u32 {
        // The length of a message fits 32 bits.
        self.reader.position() as u32 + self.met_len
    }

    /// Begins an operation, in a procedure that is a list of them. Returns its position: the origin
    /// of its results.
    pub fn operation(&mut self, number: u32) -> u32 {
        self.order.begin(number);
        self.position()
    }

    /// Reads the next DDP-eligible item, from its length on.
    ///
    /// # Errors
    /// [`ItemError`]: it was placed although it must not be, or not placed although it must be, or
    /// has another length than stated, or the message is cut off. A server rejects such a call (RFC
    /// 8166 6.1); a client discards such a reply.
    pub fn data(&mut self) -> Result<Data<'a>, ItemError> {
        let eligible = self.order.next();
        let len = self.reader.u32()?;
        let position = self.position();
        if let Some(item) = eligible.filter(|item| len > item.len_max) {
            return Err(ItemError::TooLong { item: item.name, len, max: item.len_max });
        }
        let may_place = eligible.is_some() && self.protection.may_place();
        let Some(placed) = self.next_placed(position, len, may_place)? else {
            let data = Data::in_line(self.reader.clone(), len);
            self.reader.skip(len as usize)?;
            self.reader.skip((len as usize).next_multiple_of(4) - len as usize)?;
            return Ok(data);
        };
        if !may_place {
            return Err(ItemError::NotEligible { position });
        }
        if placed.len() != len && !self.is_padded(&placed, len) {
            return Err(ItemError::Length { position, stated: len, placed: placed.len() });
        }
        let data = Data::placed(placed, len, self.met);
        self.met += 1;
        self.met_len += len.next_multiple_of(4);
        Ok(data)
    }

    /// Whether an item of `len` bytes was placed with padding that may be there.
    #[cold]
    fn is_padded(&self, placed: &PlacedItem<'a>, len: u32) -> bool {
        match placed.position() {
            // wire.md C3, E17: an item that the caller exposes may include its padding.
            Some(_) => placed.len() == len.next_multiple_of(4),
            // wire.md C12: a result may not, except from a peer that is known for it.
            None => {
                let is_expected = self.message.chunks().is_some_and(|it| it.may_have_padding);
                is_expected && placed.len().checked_sub(len).is_some_and(|more| more < 4)
            }
        }
    }

    /// The placed item at this point of the stream; `None` if it is inline.
    fn next_placed(
        &mut self,
        position: u32,
        len: u32,
        may_place: bool,
    ) -> Result<Option<PlacedItem<'a>>, ItemError> {
        let message = self.message;
        let next = message.placed().nth(self.met);
        let Some(WriteChunks { offered, .. }) = message.chunks() else {
            // wire.md E16: an item without bytes always stays in the stream.
            return Ok(next.filter(|next| len > 0 && next.position() == Some(position)));
        };
        // A Write chunk has no position: each eligible result takes the next one.
        if !self.protection.may_place() {
            return Ok(next);
        }
        let chunk = self.chunk;
        if !may_place || offered.last().is_none_or(|last| chunk > last) {
            return Ok(None);
        }
        let next = next.filter(|next| next.index() == chunk);
        // A result without bytes uses its chunk up, or leaves it to the next (wire.md C5).
        if len == 0 && next.is_some() {
            return Ok(None);
        }
        self.chunk += 1;
        // RFC 8166 4.3.2.3: an empty chunk asks for the result in line.
        if len > 0 && next.is_none() && offered.contains(chunk) {
            return Err(ItemError::NotReduced { position });
        }
        Ok(next)
    }

    /// Checks, at the end of a message, that every placed item was read.
    ///
    /// # Errors
    /// [`ItemError::NotEligible`]: an item was placed that may not be. A server rejects such a call
    /// (RFC 8166 6.1); a client discards such a reply.
    pub fn end(&self) -> Result<(), ItemError> {
        match self.message.placed().nth(self.met) {
            None => Ok(()),
            Some(item) => {
                let position = item.position().unwrap_or_else(|| self.position());
                Err(ItemError::NotEligible { position })
            }
        }
    }
}

/// A peer violated the binding, or its message is inconsistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ItemError {
    /// An item was placed that the binding does not name, or under protection.
    #[error("DDP is not permitted for the item at position {position}")]
    NotEligible {
        /// Its position in the unreduced XDR stream.
        position: u32,
    },
    /// A result is in the stream although there was a Write chunk for it (RFC 8166 6.1).
    #[error("the result at position {position} arrived inline, not in its Write chunk")]
    NotReduced {
        /// Its position in the unreduced XDR stream.
        position: u32,
    },
    /// A placed item has another length than the stream states.
    #[error("{placed} bytes were placed at position {position}; its stated length is {stated}")]
    Length {
        /// Its position in the unreduced XDR stream.
        position: u32,
        /// The length in the stream.
        stated: u32,
        /// The placed length.
        placed: u32,
    },
    /// An item is longer than the program allows.
    #[error("{item} has {len} bytes; at most {max} are allowed")]
    TooLong {
        /// The name of the item.
        item: &'static str,
        /// Its length.
        len: u32,
        /// The maximum.
        max: u32,
    },
    /// The message is cut off.
    #[error(transparent)]
    End(#[from] EndOfMessage),
}
