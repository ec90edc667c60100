//! One end of a connection: encodes plans to bytes, and handles received bytes.

use std::iter::repeat_n;
use std::rc::Rc;

use rpcrdma_proto::{
    Connection, Control, ControlSend, Gather, GroupPlan, Ingress, InlinePlan, Opening, Part, Piece,
    Plan, Received, Report, Role, Settings, ShardLedger, Start, Transmission,
};
use rpcrdma_xdr::numbers::VERSION_TWO;
use rpcrdma_xdr::{Body, Header, Optional, Writer};

use super::memory::Memory;

/// A connection with the ledger of its shard and the transmissions that it has received.
pub struct Side {
    /// The connection.
    pub conn: Connection,
    /// The ledger of its shard.
    pub ledger: ShardLedger,
    /// What it was opened with.
    pub settings: Settings,
    /// By the number of the buffer. Nothing lies behind what was received.
    received: Vec<Rc<[u8]>>,
}

impl Side {
    /// A connection just established.
    pub fn new(role: Role, settings: Settings) -> Self {
        Self::opened(role, settings, &Opening::of(role))
    }

    /// A connection of which something is known.
    fn opened(role: Role, settings: Settings, opening: &Opening) -> Self {
        let mut ledger = ShardLedger::new(16, 4, 256, 256);
        let conn =
            Connection::open(role, 3, &settings, opening, &mut ledger).expect("room for one");
        Self { conn, ledger, settings, received: Vec::new() }
    }

    /// A client that begins with version one, and a server.
    pub fn old_pair(client: Settings, server: Settings) -> (Self, Self) {
        let opening = Opening { private: None, version: Start::One };
        (Self::opened(Role::Client, client, &opening), Self::new(Role::Server, server))
    }

    /// A client and a server that have exchanged their properties.
    pub fn pair(client: Settings, server: Settings) -> (Self, Self) {
        let mut client = Self::new(Role::Client, client);
        let mut server = Self::new(Role::Server, server);
        let hello = client.conn.begin().expect("the first message");
        let answer = server.on_control(&client.control(hello)).expect("properties for properties");
        assert_eq!(client.on_control(&server.control(answer)), None);
        (client, server)
    }

    fn on_control(&mut self, wire: &[u8]) -> Option<ControlSend> {
        let buffer = self.keep(wire);
        let Ingress::Control(Control { became_ready: true, answer }) = self.hand_in(buffer, wire)
        else {
            panic!("properties are understood");
        };
        answer
    }

    /// The longest transmission that it can receive.
    pub fn buffer_len(&self) -> usize {
        self.settings.structure.total_len() as usize
    }

    /// Receives a transmission into a buffer, whose number is returned. It is to be handed in.
    pub fn keep(&mut self, wire: &[u8]) -> u32 {
        assert!(wire.len() <= self.buffer_len(), "{} bytes for a buffer", wire.len());
        self.received.push(wire.into());
        self.received.len() as u32 - 1
    }

    /// What was received into a buffer.
    pub fn received(&self, buffer: u32) -> Rc<[u8]> {
        Rc::clone(&self.received[buffer as usize])
    }

    /// The effect of a transmission.
    pub fn hand_in<'a>(&mut self, buffer: u32, wire: &'a [u8]) -> Ingress<'a> {
        let at = Received { buffer, byte_len: wire.len() as u32 };
        let first = self.first_segment(wire);
        self.conn.on_transmission(&mut self.ledger, at, first)
    }

    /// As much of a transmission as lies in the first segment of its buffer.
    pub fn first_segment<'a>(&self, wire: &'a [u8]) -> &'a [u8] {
        &wire[..wire.len().min(self.settings.first_segment_len() as usize)]
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
            let start = (segment.start + offset) as usize;
            bytes.extend(&self.received[part.buffer as usize][start..start + len as usize]);
        }
        bytes
    }

    /// The bytes of a plan's transmissions.
    pub fn transmit(&self, plan: &mut Plan<'_>, payload: &[u8], bulk: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        match plan {
            Plan::Inline(plan) => {
                let mut bytes = vec![0; InlinePlan::HEADER_LEN as usize];
                self.conn.encode_inline(plan, &mut Writer::new(&mut bytes)).expect("28 bytes");
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

    /// Does the RDMA Writes of a plan, into the peer's memory.
    pub fn write(
        &self,
        plan: &mut Plan<'_>,
        payload: &[u8],
        bulk: &[Vec<u8>],
        memory: &mut Memory,
    ) {
        let Plan::Group(plan) = plan else { return };
        while let Some(write) = plan.next_write() {
            let mut bytes = Vec::new();
            for piece in plan.write_pieces(&write) {
                put(&mut bytes, piece, payload, bulk);
            }
            assert_eq!(bytes.len() as u32, write.remote.length, "exactly what is written");
            memory.write(write.remote, &bytes).expect("only what was offered is written");
        }
        if let Some(handle) = plan.invalidate() {
            assert!(memory.is_exposed(handle), "only what was offered is invalidated");
        }
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
            put(&mut bytes, piece, payload, bulk);
        }
        assert_eq!(bytes.len() as u32, next.len, "the length is known beforehand");
        assert!(next.len <= self.conn.limits().recv_size, "the peer's buffer is not overrun");
        bytes
    }

    /// The bytes of a message between the transports.
    pub fn control(&self, control: ControlSend) -> Vec<u8> {
        written(1024, |writer| self.conn.encode_control(&control, writer).is_ok())
    }

    /// The bytes of a report.
    pub fn report(&self, report: Report) -> Vec<u8> {
        written(68, |writer| self.conn.encode_report(&report, writer).is_ok())
    }

    /// Ends the calls and the connection: all credits and Receives are returned.
    pub fn close(self) {
        let Self { mut conn, mut ledger, .. } = self;
        while let Some((id, _)) = ledger.calls.next_of(conn.peer(), 0) {
            // Cancelled calls were already reported to the program.
            conn.finish_call(&mut ledger, id);
        }
        conn.close(&mut ledger);
        assert!(ledger.calls.is_empty());
        assert_eq!((ledger.replies.reserved(), ledger.grants.granted()), (0, 0));
    }

    /// What must hold after every transmission and every command. `owed` are the transmissions of
    /// the calls that were delivered and not answered, or of which a part has arrived.
    pub fn check_credits(&self, owed: u32) {
        let inflow = self.conn.inflow();
        assert_eq!(inflow.outstanding(), owed, "a call holds its credits until it is answered");
        assert!(inflow.outstanding() <= inflow.granted());
        let (mut credits, mut receives) = (0, 0);
        let mut start = 0;
        while let Some((id, next)) = self.ledger.calls.next_of(self.conn.peer(), start) {
            let (_, entry) = self.ledger.calls.find(id.xid(), self.conn.peer()).expect("open");
            credits += entry.credits;
            receives += entry.receives;
            start = next;
        }
        assert!(self.conn.credits_limit() > 0, "a grant of zero is taken as one");
        let available = self.conn.credits_limit().saturating_sub(credits);
        assert_eq!(self.conn.credits_available(), available, "credits are with calls, or free");
        assert_eq!(self.ledger.replies.reserved(), receives, "receives are for replies, or free");
    }
}

fn put(bytes: &mut Vec<u8>, piece: Gather, payload: &[u8], bulk: &[Vec<u8>]) {
    match piece {
        Gather::Payload(range) => {
            bytes.extend_from_slice(&payload[range.start as usize..range.end as usize]);
        }
        Gather::Bulk { item, start, len } => {
            bytes.extend_from_slice(&bulk[item][start as usize..(start + len) as usize]);
        }
        Gather::Zero(len) => bytes.extend(repeat_n(0, len as usize)),
    }
}

fn written(max: usize, write: impl FnOnce(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut bytes = vec![0; max];
    let mut writer = Writer::new(&mut bytes);
    assert!(write(&mut writer), "at most {max} bytes");
    let len = writer.position();
    bytes.truncate(len);
    bytes
}

/// A transmission.
pub fn wire(header: &Header<'_>, behind: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.encoded_len()];
    header.encode(&mut Writer::new(&mut bytes)).expect("as long as it says");
    bytes.extend_from_slice(behind);
    bytes
}

/// A transmission of an operation of version two.
pub fn optional(xid: u32, credit: u32, optional: Optional<'_>, behind: &[u8]) -> Vec<u8> {
    wire(&Header { xid, vers: VERSION_TWO, credit, body: Body::Optional(optional) }, behind)
}

/// Payload bytes of an RPC message: xid, direction, then bytes that state their place.
pub fn rpc(xid: u32, reply: bool, len: usize) -> Vec<u8> {
    let mut bytes = [xid.to_be_bytes(), u32::from(reply).to_be_bytes()].concat();
    bytes.extend((8..len).map(|at| (at % 251) as u8));
    bytes
}
