//! Two connected ends: the plans of one are encoded, and the bytes passed to the other.

pub mod memory;

use rpcrdma_proto::*;
use rpcrdma_xdr::rtr::fixed::Msg;
use rpcrdma_xdr::{
    ConnProp, Header, Optional, PrivateData, PropSet, RecvStructure, ReqProp, RespProp,
    SegmentGroup, UpdProp, Writer,
};

/// Bytes that no message contains by intent: they stand for what a buffer held before.
pub const STALE: u8 = 0xee;

/// Bytes of the header of a plain message.
pub const PLAIN_HEADER_LEN: usize = Msg::LEN;

/// What plain messages are sent with.
const NO_MEANS: GatherMeans = GatherMeans { gather_max: 0, zeros_max: 0 };

/// One end.
pub struct Side {
    pub conn: Connection,
    pub ledger: ShardLedger,
    pub settings: Settings,
    buffers: Vec<Vec<u8>>,
}

impl Side {
    pub fn new(role: Role, settings: Settings) -> Self {
        Self::opened(role, settings, &Opening::of(role))
    }

    pub fn opened(role: Role, settings: Settings, opening: &Opening) -> Self {
        let mut ledger = ShardLedger::new(16, 4, 256, 256);
        let conn = Connection::open(role, 3, &settings, opening, &mut ledger).expect("room");
        Self { conn, ledger, settings, buffers: Vec::new() }
    }

    /// Receives a transmission into a fresh buffer, and says what it means.
    pub fn receive(&mut self, wire: &[u8]) -> Ingress<'static> {
        let total = self.settings.structure.total_len() as usize;
        assert!(wire.len() <= total, "{} bytes for a buffer of {total}", wire.len());
        let buffer = self.buffers.len() as u32;
        let mut bytes = vec![STALE; total];
        bytes[..wire.len()].copy_from_slice(wire);
        self.buffers.push(bytes);
        self.hand_in(buffer, wire.len())
    }

    /// Keeps a transmission that was taken as this buffer, which is the next.
    pub fn keep(&mut self, buffer: u32, wire: &[u8]) {
        assert_eq!(buffer as usize, self.buffers.len());
        let mut bytes = wire.to_vec();
        bytes.resize(self.settings.structure.total_len() as usize, STALE);
        self.buffers.push(bytes);
    }

    /// What was received into the first segment of a buffer.
    pub fn first_segment(&self, buffer: u32, byte_len: u32) -> Vec<u8> {
        let len = self.settings.first_segment_len().min(byte_len) as usize;
        self.buffers[buffer as usize][..len].to_vec()
    }

    /// What the short way takes of a transmission that lies in the first segment.
    pub fn take_short<'a>(&mut self, bytes: &'a [u8]) -> Option<Short<'a>> {
        self.conn.on_short(&mut self.ledger, bytes.len() as u32, bytes)
    }

    /// Hands a buffer in that was received before.
    pub fn hand_in(&mut self, buffer: u32, len: usize) -> Ingress<'static> {
        let at = Received { buffer, byte_len: len as u32 };
        let first = len.min(self.settings.first_segment_len() as usize);
        // A test's buffers live as long as the test; leaking them keeps the tests simple.
        let bytes: &'static [u8] = self.buffers[buffer as usize][..first].to_vec().leak();
        self.conn.on_transmission(&mut self.ledger, at, bytes)
    }

    /// The buffer received last.
    pub fn last_buffer(&self) -> u32 {
        self.buffers.len() as u32 - 1
    }

    /// The message of a group that was just completed, with its parts.
    pub fn completed(&self) -> (Message<'static>, Vec<Part>) {
        let parts = self.conn.group().to_vec();
        let len = self.settings.first_segment_len().min(parts[0].byte_len) as usize;
        let bytes = self.buffers[parts[0].buffer as usize][..len].to_vec().leak();
        (self.conn.message(bytes).expect("a group begins with its header"), parts)
    }

    /// The bytes of some pieces, each of which must lie within the bytes received.
    pub fn gather(&self, parts: &[Part], pieces: impl Iterator<Item = Piece>) -> Vec<u8> {
        let segments: Vec<_> = self.settings.structure.segments().collect();
        let mut bytes = Vec::new();
        for Piece { part, segment, offset, len } in pieces {
            let part = parts[part as usize];
            let segment = segments[segment as usize];
            assert!(len > 0, "a piece has bytes");
            assert!(offset + len <= segment.length, "a piece stays in its segment");
            let (start, end) = (segment.start + offset, segment.start + offset + len);
            assert!(end <= part.byte_len, "a piece names received bytes only");
            let buffer = &self.buffers[part.buffer as usize];
            bytes.extend_from_slice(&buffer[start as usize..end as usize]);
        }
        bytes
    }

    /// The bytes of a plan's transmissions.
    pub fn transmit(&self, plan: &mut Plan<'_>, payload: &[u8], bulk: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        match plan {
            Plan::Inline(plan) => {
                let mut bytes = vec![0; InlinePlan::HEADER_LEN as usize];
                let mut writer = Writer::new(&mut bytes);
                self.conn.encode_inline(plan, &mut writer).expect("28 bytes");
                assert_eq!(writer.position(), InlinePlan::HEADER_LEN as usize);
                bytes.extend_from_slice(payload);
                out.push(bytes);
            }
            Plan::Group(plan) => {
                while let Some(next) = self.conn.next_transmission(plan) {
                    out.push(self.bytes_of(plan, &next, payload, bulk));
                }
                assert_eq!(out.len() as u32, plan.count());
            }
        }
        out
    }

    fn bytes_of(
        &self,
        plan: &GroupPlan<'_>,
        next: &Transmission,
        payload: &[u8],
        bulk: &[Vec<u8>],
    ) -> Vec<u8> {
        let mut bytes = vec![0; next.header_len as usize];
        let mut writer = Writer::new(&mut bytes);
        self.conn.encode_header(plan, next, &mut writer).expect("as planned");
        assert_eq!(writer.position(), next.header_len as usize, "exactly the planned header");
        for piece in self.conn.pieces(plan, next) {
            assert!(piece.len() > 0, "no empty piece");
            match piece {
                Gather::Payload(range) => {
                    bytes.extend_from_slice(&payload[range.start as usize..range.end as usize]);
                }
                Gather::Bulk { item, start, len } => {
                    bytes.extend_from_slice(&bulk[item][start as usize..(start + len) as usize]);
                }
                Gather::Zero(len) => bytes.extend(std::iter::repeat_n(0, len as usize)),
            }
        }
        assert_eq!(bytes.len() as u32, next.len, "the length is known beforehand");
        assert!(next.len <= self.conn.limits().recv_size, "the peer's buffer is not overrun");
        bytes
    }

    pub fn control(&self, control: ControlSend) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        let mut writer = Writer::new(&mut bytes);
        self.conn.encode_control(&control, &mut writer).expect("at most 1024 bytes");
        let len = writer.position();
        bytes.truncate(len);
        bytes
    }

    pub fn report(&self, report: Report) -> Vec<u8> {
        let mut bytes = vec![0; 68];
        let mut writer = Writer::new(&mut bytes);
        self.conn.encode_report(&report, &mut writer).expect("at most 68 bytes");
        let len = writer.position();
        bytes.truncate(len);
        bytes
    }
}

/// A client and a server that have exchanged their properties.
pub fn connected(client: Settings, server: Settings) -> (Side, Side) {
    let mut client = Side::new(Role::Client, client);
    let mut server = Side::new(Role::Server, server);
    let hello = client.conn.begin().expect("the first message");
    let hello = client.control(hello);
    let Ingress::Control(Control { became_ready: true, answer: Some(answer) }) =
        server.receive(&hello)
    else {
        panic!("the server answers properties by its own");
    };
    let answer = server.control(answer);
    let Ingress::Control(Control { became_ready: true, answer: None }) = client.receive(&answer)
    else {
        panic!("the client is ready with the answer");
    };
    (client, server)
}

/// A client and a server that speak this version and know each other's sizes, which are those of
/// their settings.
pub fn connected_in(version: Version, client: Settings, server: Settings) -> (Side, Side) {
    if version == Version::Two {
        return connected(client, server);
    }
    // As it is on the wire, where sizes are whole KiB.
    let said = |by: Settings| PrivateData::decode(&by.private_data().encode());
    let opening = Opening { private: said(server), version: Start::One };
    let mut client = Side::opened(Role::Client, client, &opening);
    let opening = Opening { private: said(client.settings), version: Start::Either };
    let mut server = Side::opened(Role::Server, server, &opening);
    let call = first_call(&mut client);
    let Ingress::Call(message) = server.receive(&call) else { panic!("a call") };
    let (ledger, to) = (&mut server.ledger, message.reply_to());
    let header = plain_reply(&mut server.conn, ledger, &to, 40).expect("it fits");
    let reply = [&header[..], &rpc(to.xid, true, 40)].concat();
    let Ingress::Reply(id, _) = client.receive(&reply) else { panic!("a reply") };
    client.conn.finish_call(&mut client.ledger, id).expect("it was open");
    (client, server)
}

/// The header of a plain call, if the short way plans one.
pub fn plain_call(
    conn: &mut Connection,
    ledger: &mut ShardLedger,
    id: CallId,
    payload: u32,
    reply_payload_max: u32,
) -> Option<[u8; PLAIN_HEADER_LEN]> {
    let call = ShortSend::Call { id, reply_payload_max, with: CallWith::Nothing };
    header_of(conn.begin_short(ledger, payload, call, NO_MEANS))
}

/// The header of a plain reply, if the short way plans one.
pub fn plain_reply(
    conn: &mut Connection,
    ledger: &mut ShardLedger,
    to: &ReplyTo,
    payload: u32,
) -> Option<[u8; PLAIN_HEADER_LEN]> {
    header_of(conn.begin_short(ledger, payload, ShortSend::Reply { to, item: None }, NO_MEANS))
}

fn header_of(plan: Option<ShortPlan>) -> Option<[u8; PLAIN_HEADER_LEN]> {
    plan.map(|plan| plan.header().try_into().expect("the header of a plain message"))
}

/// What the short way takes of a transmission, if that has the header of a plain message.
pub fn take_plain<'a>(side: &mut Side, bytes: &'a [u8]) -> Option<(ShortKind, &'a [u8])> {
    let is_plain = Msg::split(bytes).is_some_and(|(header, _)| header.is_plain());
    let taken = if is_plain { side.take_short(bytes)? } else { return None };
    let Short::Plain { kind, payload } = taken else { panic!("{taken:?} is not plain") };
    Some((kind, payload))
}

/// A call of 40 bytes, as it is sent.
pub fn first_call(side: &mut Side) -> Vec<u8> {
    let id = side.conn.open_call(&mut side.ledger, 1).expect("ready");
    let header = plain_call(&mut side.conn, &mut side.ledger, id, 40, 40).expect("a credit");
    [&header[..], &rpc(id.xid(), false, 40)].concat()
}

/// A header, and what stands behind it, as bytes.
pub fn transmission(header: &Header<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.encoded_len()];
    header.encode(&mut Writer::new(&mut bytes)).expect("as long as it says");
    bytes.extend_from_slice(payload);
    bytes
}

/// The operations of [XCHAR].
pub fn property_operations() -> [Optional<'static>; 4] {
    [
        Optional::ConnProp(ConnProp::default()),
        Optional::ReqProp(ReqProp { want: PropSet::EMPTY }),
        Optional::RespProp(RespProp::default()),
        Optional::UpdProp(UpdProp { now: PropSet::EMPTY }),
    ]
}

/// A first segment, and placement segments behind it.
pub fn structure(first: u32, count: u32, length: u32) -> RecvStructure {
    let inline = SegmentGroup { count: 1, length: first, align: 64, placement: false };
    let target = SegmentGroup { count, length, align: 4096, placement: true };
    match count {
        0 => RecvStructure::new(&[inline]).expect("valid"),
        _ => RecvStructure::new(&[inline, target]).expect("valid"),
    }
}

/// Payload bytes of an RPC message: xid, direction, then bytes that state their position.
pub fn rpc(xid: u32, reply: bool, len: usize) -> Vec<u8> {
    assert!(len >= 8 && len.is_multiple_of(4));
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(&xid.to_be_bytes());
    bytes.extend_from_slice(&u32::from(reply).to_be_bytes());
    bytes.extend((8..len).map(|at| (at % 251) as u8));
    bytes
}
