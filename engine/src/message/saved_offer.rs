//! The offer of a call for its reply, kept until the reply is sent.

use arrayvec::ArrayVec;
use rpcrdma_proto::Offer;
use rpcrdma_xdr::array::{Array, List, Wire};
use rpcrdma_xdr::chunk::WriteChunk;
use rpcrdma_xdr::cursor::{Reader, Writer};
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::numbers::limit::{RSD_SETS_MAX, WRITE_CHUNKS_MAX};
use rpcrdma_xdr::numbers::size;
use rpcrdma_xdr::rtr::fixed::{IntoBytes, OneDirection};

use super::HEADERS_LEN;

/// The maximum length of an offer that is stored in place (wire.md W6): reply directions, 25 sets
/// of one item to be sent; or Write chunks and a Reply chunk, some thirty segments in all.
const OFFER_SHORT_MAX: usize = 512;
/// The maximum length of an offer. A reply returns all chunks, in a header that is longer by this.
const OFFER_MAX: usize = HEADERS_LEN - (size::HEADER_MIN - 4);

/// A call's offer for its reply, in its encoding (\[RTR\] 7.4, RFC 8166 4.3.2).
#[derive(Debug, Clone, Default)]
pub(crate) struct SavedOffer {
    bytes: ArrayVec<u8, OFFER_SHORT_MAX>,
    /// The bytes of a longer offer, instead.
    long: Vec<u8>,
    is_chunks: bool,
    has_reply: bool,
}

impl SavedOffer {
    /// Nothing was offered.
    pub const fn none() -> SavedOffer {
        SavedOffer {
            bytes: ArrayVec::new_const(),
            long: Vec::new(),
            is_chunks: false,
            has_reply: false,
        }
    }

    /// Copies the offer of a call; false if it is longer than a reply can return.
    pub fn set(&mut self, offer: &Offer<'_>) -> bool {
        self.clear();
        if offer.is_none() {
            return true;
        }
        if let Offer::Chunks { reply, .. } = offer {
            (self.is_chunks, self.has_reply) = (true, reply.is_some());
        }
        let mut bytes = [0; OFFER_SHORT_MAX];
        let mut writer = Writer::new(&mut bytes);
        match encode(offer, &mut writer) {
            Ok(()) => {
                let len = writer.position();
                self.bytes.extend(bytes[..len].iter().copied());
                true
            }
            Err(NoRoom { .. }) => self.set_long(offer),
        }
    }

    /// Stores an offer in allocated memory.
    #[cold]
    fn set_long(&mut self, offer: &Offer<'_>) -> bool {
        let len = encoded_len(offer);
        if len > OFFER_MAX {
            self.clear();
            return false;
        }
        self.long.resize(len, 0);
        encode(offer, &mut Writer::new(&mut self.long)).is_ok()
    }

    /// Stores the directions of a call with a single item, as encoded.
    #[inline]
    pub fn set_directions(&mut self, directions: &OneDirection) {
        self.clear();
        self.bytes.extend(directions.as_bytes().iter().copied());
    }

    /// The offer, if it is anything.
    #[inline]
    pub fn if_any(&self) -> Option<&SavedOffer> {
        (!self.is_empty()).then_some(self)
    }

    /// The offer, if it is one direction and no memory.
    #[inline]
    pub fn direction(&self) -> Option<&OneDirection> {
        if self.is_chunks { None } else { OneDirection::read(&self.bytes) }
    }

    /// Clears it.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.long.clear();
        (self.is_chunks, self.has_reply) = (false, false);
    }

    /// Whether nothing was offered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.long.is_empty()
    }

    /// The offer, as encoded.
    pub fn offer(&self) -> Offer<'_> {
        let bytes = if self.long.is_empty() { &self.bytes[..] } else { &self.long };
        let mut reader = Reader::new(bytes);
        match (self.is_empty(), self.is_chunks) {
            (true, _) => Offer::None,
            (false, false) => {
                Array::decode(&mut reader, RSD_SETS_MAX).map_or(Offer::None, Offer::Directions)
            }
            (false, true) => {
                let writes = List::decode(&mut reader, WRITE_CHUNKS_MAX).unwrap_or(List::EMPTY);
                let reply =
                    if self.has_reply { WriteChunk::decode(&mut reader).ok() } else { None };
                Offer::Chunks { writes, reply }
            }
        }
    }
}

/// The directions, or the Write list and the segments of the Reply chunk.
fn encode(offer: &Offer<'_>, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
    match offer {
        Offer::None => Ok(()),
        Offer::Directions(sets) => sets.encode(writer),
        Offer::Chunks { writes, reply } => {
            writes.encode(writer)?;
            reply.map_or(Ok(()), |chunk| chunk.encode(writer))
        }
    }
}

fn encoded_len(offer: &Offer<'_>) -> usize {
    match offer {
        Offer::None => 0,
        Offer::Directions(sets) => sets.encoded_len(),
        Offer::Chunks { writes, reply } => {
            writes.encoded_len() + reply.map_or(0, |chunk| chunk.encoded_len())
        }
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_xdr::chunk::RdmaSegment;

    use super::*;

    #[test]
    fn offers_are_kept_up_to_the_length_a_reply_can_return() {
        let mut kept = SavedOffer::none();
        for count in [1, 31, 32, 200, 252, 253, 2] {
            let segments: Vec<_> = (0..count)
                .map(|handle| RdmaSegment { handle, length: handle + 1, offset: 7 })
                .collect();
            let chunk = WriteChunk(Array::from_slice(&segments));
            let writes = [chunk];
            let offers = [
                Offer::Chunks { writes: List::EMPTY, reply: Some(chunk) },
                Offer::Chunks { writes: List::from_slice(&writes), reply: None },
            ];
            for offer in offers {
                // RFC 8166 3.4.6: all segments are returned, behind a header without any.
                let header_len = size::HEADER_MIN + encoded_len(&offer) - 4;
                assert_eq!(kept.set(&offer), header_len <= HEADERS_LEN, "{count}");
                let is_kept = header_len <= HEADERS_LEN;
                assert_eq!(kept.is_empty(), !is_kept);
                let copy = kept.clone();
                match (copy.offer(), offer) {
                    (Offer::None, _) => assert!(!is_kept),
                    (
                        Offer::Chunks { writes, reply },
                        Offer::Chunks { writes: due, reply: also },
                    ) => {
                        let list =
                            |writes: List<'_, WriteChunk<'_>>, reply: Option<WriteChunk<'_>>| {
                                let all = writes.iter().chain(reply);
                                all.map(|WriteChunk(list)| list.iter().collect())
                                    .collect::<Vec<Vec<_>>>()
                            };
                        assert_eq!(list(writes, reply), list(due, also));
                        assert_eq!((writes.len(), reply.is_some()), (due.len(), also.is_some()));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
