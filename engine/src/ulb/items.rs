//! Reads a message through its binding: placed items are accepted only at their positions.

use super::binding::{Bound, Item, Order};
use super::data::Data;
use super::protection::Protection;
use crate::message::incoming::{EndOfMessage, Incoming, PayloadReader, PlacedItem};

/// Reads a call or a reply by its binding.
///
/// The reader of the stream is the program's. Where it comes to an item that may be placed it asks
/// for [`Items::data`], and gets the item from wherever it is; at the end [`Items::end`] says whether
/// everything that was placed was met.
#[derive(Debug, Clone)]
pub struct Items<'a> {
    reader: PayloadReader<'a>,
    message: &'a Incoming<'a>,
    order: Order,
    protection: Protection,
    /// Placed items that were met.
    met: usize,
    /// Their bytes, with padding.
    met_len: u32,
    /// Write chunks that results were met for, in a reply of the base protocol.
    chunk: usize,
}

impl Bound {
    /// Reads a call of this procedure: `reader` stands behind the header of `call`, where
    /// [`PayloadReader::call_header`] left it.
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
        // A message is not longer than 32 bits can say.
        self.reader.position() as u32 + self.met_len
    }

    /// An operation begins here, in a procedure that is a list of them. Returns where: it is the
    /// origin of its results.
    pub fn operation(&mut self, number: u32) -> u32 {
        self.order.begin(number);
        self.position()
    }

    /// Reads the next item that may be placed, from its length on.
    ///
    /// # Errors
    /// [`ItemError`]: it was placed without right, or was not although it had to be, or is not as long
    /// as it says, or the message is cut off. A server refuses such a call (RFC 8166 6.1), a client takes such a reply for none.
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
        // wire.md C3, E17: of what a caller lets be read the padding may be a part.
        let is_padded = placed.position().is_some() && placed.len() == len.next_multiple_of(4);
        if placed.len() != len && !is_padded {
            return Err(ItemError::Length { position, stated: len, placed: placed.len() });
        }
        let data = Data::placed(placed, len, self.met);
        self.met += 1;
        self.met_len += len.next_multiple_of(4);
        Ok(data)
    }

    /// The placed item that the next item of the stream is; `None` if it is in line.
    fn next_placed(
        &mut self,
        position: u32,
        len: u32,
        may_place: bool,
    ) -> Result<Option<PlacedItem<'a>>, ItemError> {
        let message = self.message;
        let next = message.placed().nth(self.met);
        let Some(offered) = message.chunks() else {
            // wire.md E16: an item without bytes is never taken out of the stream.
            return Ok(next.filter(|next| len > 0 && next.position() == Some(position)));
        };
        // A Write chunk does not say where it belongs: each eligible result takes the next one.
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

    /// Whether all that was placed was met, in a message that has been read.
    ///
    /// # Errors
    /// [`ItemError::NotEligible`]: something was placed that may not be. A server refuses such a
    /// call (RFC 8166 6.1), a client takes such a reply for none.
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

/// A peer did not keep to the binding, or to its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// Something was placed that the binding does not name, or under protection.
    #[error("what belongs at {position} was placed without right")]
    NotEligible {
        /// Where it belongs in the unreduced XDR stream.
        position: u32,
    },
    /// A result is in the stream although there was a Write chunk for it (RFC 8166 6.1).
    #[error("what belongs at {position} came in the stream, and not in its Write chunk")]
    NotReduced {
        /// Where it is in the unreduced XDR stream.
        position: u32,
    },
    /// As many bytes were placed as the stream does not say.
    #[error("{placed} bytes were placed at {position}, and {stated} belong there")]
    Length {
        /// Where they belong in the unreduced XDR stream.
        position: u32,
        /// What the stream says.
        stated: u32,
        /// What was placed.
        placed: u32,
    },
    /// An item is longer than the program allows.
    #[error("{item} has {len} bytes, and {max} at most")]
    TooLong {
        /// The name of the item.
        item: &'static str,
        /// Its length.
        len: u32,
        /// What is allowed.
        max: u32,
    },
    /// The message is cut off.
    #[error(transparent)]
    End(#[from] EndOfMessage),
}
