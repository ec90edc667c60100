//! The offer of a call for its reply, kept until the reply is sent.

use arrayvec::ArrayVec;
use rpcrdma_proto::{KeptOffer, Offer};
use rpcrdma_xdr::array::Wire;
use rpcrdma_xdr::chunk::WriteChunk;
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::numbers::size;
use rpcrdma_xdr::one_chunk::OneWrite;
use rpcrdma_xdr::rtr::fixed::{IntoBytes, OneDirection};

use super::HEADERS_LEN;

/// The maximum length of an offer that is stored in place (wire.md W6): reply directions, 25 sets
/// of one item to be sent; or Write chunks and a Reply chunk, some thirty segments in all.
const OFFER_SHORT_MAX: usize = 512;
/// The maximum length of an offer. A reply returns all chunks, in a header that is longer by this.
const OFFER_MAX: usize = HEADERS_LEN - (size::HEADER_MIN - 4);

/// A call's offer for its reply: its lists as they were received (\[RTR\] 7.4, RFC 8166 4.3.2), and
/// where each is.
#[derive(Debug, Clone, Default)]
pub(crate) struct SavedOffer {
    bytes: ArrayVec<u8, OFFER_SHORT_MAX>,
    /// The bytes of a longer offer, instead.
    long: Vec<u8>,
    lists: KeptOffer,
}

/// Whether a reply can return an offer.
#[inline]
pub(crate) fn can_return(offer: &Offer<'_>) -> bool {
    encoded_len(offer) <= OFFER_MAX
}

impl SavedOffer {
    /// Nothing was offered.
    pub const fn none() -> SavedOffer {
        SavedOffer { bytes: ArrayVec::new_const(), long: Vec::new(), lists: KeptOffer::None }
    }

    /// Copies the offer of a call, which a reply [can return](can_return).
    pub fn set(&mut self, offer: &Offer<'_>) {
        self.clear();
        if offer.is_none() {
            return;
        }
        let mut bytes = [0; OFFER_SHORT_MAX];
        let mut writer = Writer::new(&mut bytes);
        match encode(offer, &mut writer) {
            Ok(lists) => {
                let len = writer.position();
                self.bytes.extend(bytes[..len].iter().copied());
                self.lists = lists;
            }
            Err(NoRoom { .. }) => self.set_long(offer),
        }
    }

    /// Stores an offer in allocated memory.
    #[cold]
    fn set_long(&mut self, offer: &Offer<'_>) {
        debug_assert!(can_return(offer), "checked when the call arrived");
        self.long.resize(encoded_len(offer), 0);
        self.lists = encode(offer, &mut Writer::new(&mut self.long)).unwrap_or_default();
    }

    /// Stores the directions of a call with a single item, as encoded.
    #[inline]
    pub fn set_directions(&mut self, directions: &OneDirection) {
        self.clear();
        self.bytes.extend(directions.as_bytes().iter().copied());
        self.lists = KeptOffer::Directions(OneDirection::SET);
    }

    /// Stores the Write list of a call with one short chunk, as encoded.
    #[inline]
    pub fn set_one_write(&mut self, list: &[u8]) {
        self.clear();
        let is_stored = self.bytes.try_extend_from_slice(list).is_ok();
        debug_assert!(is_stored, "a short chunk has few segments");
        let writes = OneWrite::extent_of(list.len());
        self.lists = KeptOffer::Chunks { writes, reply: None };
    }

    /// The Write list, if the offer is chunks that are stored in place.
    #[inline]
    pub fn write_list(&self) -> Option<&[u8]> {
        match self.lists {
            KeptOffer::Chunks { reply: None, .. } => Some(&self.bytes),
            _ => None,
        }
    }

    /// The offer, if it is anything.
    #[inline]
    pub fn if_any(&self) -> Option<&SavedOffer> {
        (!self.is_empty()).then_some(self)
    }

    /// The offer, if it is one direction and no memory.
    #[inline]
    pub fn direction(&self) -> Option<&OneDirection> {
        match self.lists {
            KeptOffer::Directions(_) => OneDirection::read(&self.bytes),
            KeptOffer::None | KeptOffer::Chunks { .. } => None,
        }
    }

    /// Clears it.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.long.clear();
        self.lists = KeptOffer::None;
    }

    /// Whether nothing was offered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.lists, KeptOffer::None)
    }

    /// The offer.
    #[inline]
    pub fn offer(&self) -> Offer<'_> {
        self.lists.of(if self.long.is_empty() { &self.bytes[..] } else { &self.long })
    }
}

/// The directions, or the Write list and the segments of the Reply chunk; and where they are.
fn encode(offer: &Offer<'_>, writer: &mut Writer<'_>) -> Result<KeptOffer, NoRoom> {
    match offer {
        Offer::None => Ok(KeptOffer::None),
        Offer::Directions(sets) => {
            sets.encode(writer)?;
            Ok(KeptOffer::Directions(sets.extent().copied_to(COUNT_LEN)))
        }
        Offer::Chunks { writes, reply } => {
            writes.encode(writer)?;
            let at = writer.position() as u32 + COUNT_LEN;
            if let Some(chunk) = reply {
                chunk.encode(writer)?;
            }
            let reply = reply.map(|WriteChunk(segments)| segments.extent().copied_to(at));
            Ok(KeptOffer::Chunks { writes: writes.extent().copied_to(0), reply })
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

/// Bytes of an array before its items.
const COUNT_LEN: u32 = 4;

#[cfg(test)]
mod tests {
    use rpcrdma_xdr::array::{Array, List};
    use rpcrdma_xdr::chunk::RdmaSegment;
    use rpcrdma_xdr::cursor::Reader;

    use super::*;

    /// As a call brings it.
    fn received<'a>(offer: Offer<'_>, bytes: &'a mut [u8]) -> Offer<'a> {
        let Offer::Chunks { writes, reply } = offer else { panic!("{offer:?}") };
        let mut writer = Writer::new(bytes);
        writes.encode(&mut writer).expect("enough room");
        if let Some(chunk) = reply {
            chunk.encode(&mut writer).expect("enough room");
        }
        let mut reader = Reader::new(bytes);
        let writes = List::decode(&mut reader, 1).expect("valid");
        let chunk = |_| WriteChunk::decode(&mut reader).expect("valid");
        Offer::Chunks { writes, reply: reply.map(chunk) }
    }

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
                let mut bytes = [0; 8192];
                let offer = received(offer, &mut bytes);
                assert_eq!(can_return(&offer), header_len <= HEADERS_LEN, "{count}");
                if header_len > HEADERS_LEN {
                    continue;
                }
                kept.set(&offer);
                assert!(!kept.is_empty());
                let copy = kept.clone();
                match (copy.offer(), offer) {
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
