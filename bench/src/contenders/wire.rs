//! How many bytes a message has on the wire, headers and padding included: what the floor and the
//! raw ping-pong carry in the place of the RPC.

use rpcrdma_xdr::{
    Array, Body, Header, Optional, RecvStructure, RsdItem, RsdLoc, RsdSet, XmtCont, XmtReq, XmtResp,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Bytes of the payload stream: the RPC message without what is placed.
    pub payload: usize,
    /// Bytes that are placed; 0 if nothing is.
    pub placed: usize,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Call {
        /// Whether it directs an item of its reply to be placed.
        directs: bool,
    },
    Reply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnWire {
    /// Sends.
    pub transmissions: usize,
    pub len: usize,
}

impl Message {
    /// How it goes to a peer with such receive buffers.
    pub fn on_wire(&self, to: &RecvStructure) -> OnWire {
        if self.placed > 0 && to.placement_count() > 0 {
            return self.placed_on_wire(to);
        }
        let first = self.header_len();
        let total = to.total_len() as usize;
        let plain = if self.kind == (Kind::Call { directs: true }) { first } else { PLAIN_LEN };
        let payload = self.payload + self.placed;
        if plain + payload <= total {
            return OnWire { transmissions: 1, len: plain + payload };
        }
        // The payload runs on through transmissions that are full to the end.
        let more = payload.saturating_sub(total - first).div_ceil(total - continuation_len());
        OnWire { transmissions: 1 + more, len: first + more * continuation_len() + payload }
    }

    /// Every transmission is padded to its first placement segment.
    fn placed_on_wire(&self, to: &RecvStructure) -> OnWire {
        let segments = to.segments().filter(|segment| segment.placement);
        let room: usize = segments.map(|segment| segment.length as usize).sum();
        let transmissions = self.placed.div_ceil(room);
        let leading = to.leading_len() as usize;
        OnWire { transmissions, len: transmissions * leading + self.placed }
    }

    /// Bytes of the header of a message that directs, or that is continued.
    fn header_len(&self) -> usize {
        let direction = [RsdItem { min_len: 0, loc: RsdLoc::Tbsn }];
        let set = [RsdSet { begin: 0, end: 0, items: Array::from_slice(&direction) }];
        optional_len(match self.kind {
            Kind::Call { directs } => {
                let rsd = Array::from_slice(&set[..usize::from(directs)]);
                Optional::XmtReq(XmtReq { dp: Array::EMPTY, rsd, count: 1, rsbuf: 0, pslen: 0 })
            }
            Kind::Reply => Optional::XmtResp(XmtResp { dp: Array::EMPTY, count: 1, pslen: 0 }),
        })
    }
}

fn continuation_len() -> usize {
    optional_len(Optional::XmtCont(XmtCont { xnum: 1, itype: 0, pslen: 0 }))
}

fn optional_len(optional: Optional<'_>) -> usize {
    header(Body::Optional(optional)).encoded_len()
}

fn header(body: Body<'_>) -> Header<'_> {
    Header { xid: 0, vers: 2, credit: 0, body }
}

/// Bytes of an RPC-over-RDMA header with three empty chunk lists.
pub const PLAIN_LEN: usize = 28;

#[cfg(test)]
mod tests {
    use rpcrdma_xdr::{ChunkLists, SegmentGroup};

    use super::*;

    /// 1 KiB for headers and payload, then four segments of 4 KiB.
    fn structure() -> RecvStructure {
        let group = |count, length, placement| SegmentGroup { count, length, align: 0, placement };
        RecvStructure::new(&[group(1, 1024, false), group(4, 4096, true)]).expect("a usual shape")
    }

    fn reply(payload: usize, placed: usize) -> OnWire {
        Message { payload, placed, kind: Kind::Reply }.on_wire(&structure())
    }

    #[test]
    fn the_plain_header_is_as_long_as_the_codec_says() {
        assert_eq!(header(Body::Msg(ChunkLists::EMPTY)).encoded_len(), PLAIN_LEN);
    }

    #[test]
    fn a_short_message_is_its_header_and_its_payload() {
        assert_eq!(reply(92, 0), OnWire { transmissions: 1, len: 120 });
        assert_eq!(reply(17_380, 0), OnWire { transmissions: 1, len: 17_408 });
    }

    #[test]
    fn a_message_longer_than_a_buffer_is_continued() {
        let first = 16 + 8 + 12;
        let continued = reply(17_381, 0);
        assert_eq!(continued.transmissions, 2);
        assert_eq!(continued.len, first + continuation_len() + 17_381);
    }

    #[test]
    fn placed_data_begin_behind_the_leading_segment_of_every_transmission() {
        assert_eq!(reply(28, 4096), OnWire { transmissions: 1, len: 1024 + 4096 });
        assert_eq!(reply(28, 16_384), OnWire { transmissions: 1, len: 1024 + 16_384 });
        assert_eq!(reply(28, 16_385), OnWire { transmissions: 2, len: 2048 + 16_385 });
    }

    #[test]
    fn a_call_that_directs_its_reply_has_a_longer_header() {
        let call = |directs| Message { payload: 52, placed: 0, kind: Kind::Call { directs } };
        assert_eq!(call(false).on_wire(&structure()).len, 28 + 52);
        assert!(call(true).on_wire(&structure()).len > 28 + 52 + 16);
    }

    #[test]
    fn without_placement_segments_everything_is_in_line() {
        let placed = Message { payload: 28, placed: 1000, kind: Kind::Reply };
        let wire = placed.on_wire(&RecvStructure::single(4096));
        assert_eq!(wire, OnWire { transmissions: 1, len: 28 + 1028 });
    }
}
