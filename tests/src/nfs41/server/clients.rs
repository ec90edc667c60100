//! Clients, sessions and their slots: as many as there are connections in a test.

use rpcrdma::{ConnectionId, EndOfMessage, PayloadReader};

use crate::nfs41::compound::Channel;
use crate::nfs41::numbers::{direction, session_flag, status};
use crate::nfs41::results::channel;
use crate::nfs41::words::{SessionId, Take, Words};

/// All clients, and the sessions that they have made.
#[derive(Debug, Default)]
pub struct Clients {
    /// The sessions.
    pub made: Vec<Made>,
    /// Clients that another run of them has replaced: their state is void.
    pub gone: Vec<u64>,
    /// Named, and not ended.
    named: Vec<Named>,
    next: u64,
}

/// A client.
#[derive(Debug)]
struct Named {
    client: u64,
    owner: Vec<u8>,
    verifier: [u8; 8],
}

/// A session.
#[derive(Debug, Clone)]
pub struct Made {
    /// Its name.
    pub id: SessionId,
    /// Its client.
    pub client: u64,
    /// The connection of its back channel.
    pub peer: ConnectionId,
    /// Whether that connection is there.
    pub is_connected: bool,
    /// The program number of its callbacks.
    pub program: u32,
    /// The limits of its back channel, as the client has asked for them.
    pub back: Channel,
    /// The flavors that callbacks may have.
    pub flavors: Vec<u32>,
    /// The slots of the back channel.
    pub back_slots: Vec<BackSlot>,
    /// The number of the last request of each slot.
    slots: Vec<u32>,
}

/// A slot of a back channel.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackSlot {
    /// The number of the last callback that was executed.
    pub sequence: u32,
    /// Whether one is under way.
    pub is_busy: bool,
}

/// What an operation returns: the status inside.
type Outcome<T = ()> = Result<Result<T, u32>, EndOfMessage>;

impl Clients {
    /// SEQUENCE; returns the client.
    pub fn sequence(&mut self, reader: &mut PayloadReader<'_>, out: &mut Words) -> Outcome<u64> {
        let id: SessionId = reader.array()?;
        let (sequence, slot, _highest) = (reader.u32()?, reader.u32()?, reader.u32()?);
        reader.u32()?;
        let Some(made) = self.made.iter_mut().find(|made| made.id == id) else {
            return Ok(Err(status::BADSESSION));
        };
        let highest = made.slots.len() as u32 - 1;
        let Some(last) = made.slots.get_mut(slot as usize) else { return Ok(Err(status::BADSLOT)) };
        match sequence.wrapping_sub(*last) {
            1 => *last = sequence,
            0 => return Ok(Err(status::RETRY_UNCACHED_REP)),
            _ => return Ok(Err(status::SEQ_MISORDERED)),
        }
        out.fixed(&id).u32(sequence).u32(slot).u32(highest).u32(highest).u32(0);
        Ok(Ok(made.client))
    }

    /// EXCHANGE_ID.
    pub fn exchange_id(&mut self, reader: &mut PayloadReader<'_>, out: &mut Words) -> Outcome {
        let (verifier, owner) = (reader.array()?, reader.opaque()?);
        let (_flags, protection) = (reader.u32()?, reader.u32()?);
        if protection != 0 {
            return Ok(Err(status::INVAL));
        }
        for _ in 0..reader.u32()? {
            reader.opaque()?;
            reader.opaque()?;
            reader.skip(12)?;
        }
        self.replace(&owner, verifier);
        self.next += 1;
        self.named.push(Named { client: self.next, owner, verifier });
        out.u64(self.next).u32(FIRST_SEQUENCE).u32(USE_NON_PNFS).u32(0);
        // The owner and the scope of the server; it does not name its implementation.
        out.u64(0).opaque(b"tests").opaque(b"tests").u32(0);
        Ok(Ok(()))
    }

    /// CREATE_SESSION, whose back channel is this connection.
    pub fn create_session(
        &mut self,
        peer: ConnectionId,
        reader: &mut PayloadReader<'_>,
        out: &mut Words,
    ) -> Outcome {
        let (client, sequence, flags) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let (fore, back, program) = (channel(reader)?, channel(reader)?, reader.u32()?);
        let mut flavors = Vec::new();
        for _ in 0..reader.u32()? {
            let flavor = reader.u32()?;
            flavors.push(flavor);
            match flavor {
                0 => {}
                1 => {
                    reader.u32()?;
                    reader.opaque()?;
                    reader.skip(8)?;
                    reader.list()?;
                }
                _ => return Ok(Err(status::INVAL)),
            }
        }
        if !self.named.iter().any(|named| named.client == client) {
            return Ok(Err(status::STALE_CLIENTID));
        }
        if flags & session_flag::CONN_BACK_CHAN == 0 {
            return Ok(Err(status::INVAL));
        }
        if back.request_max < CALLBACK_MAX {
            return Ok(Err(status::TOOSMALL));
        }
        let mut id = [0; 16];
        self.next += 1;
        id[..8].copy_from_slice(&client.to_be_bytes());
        id[8..].copy_from_slice(&self.next.to_be_bytes());
        let slots = fore.slots.min(SLOTS_MAX);
        let fore = Channel { slots, cached_max: 0, ..fore };
        out.fixed(&id).u32(sequence).u32(session_flag::CONN_BACK_CHAN);
        fore.put(out);
        back.put(out);
        let slots = vec![0; slots as usize];
        let back_slots = vec![BackSlot::default(); back.slots.min(SLOTS_MAX) as usize];
        let is_connected = true;
        self.made.push(Made {
            id,
            client,
            peer,
            is_connected,
            program,
            back,
            flavors,
            back_slots,
            slots,
        });
        Ok(Ok(()))
    }

    /// BIND_CONN_TO_SESSION: the connection takes over both directions.
    pub fn bind(
        &mut self,
        peer: ConnectionId,
        reader: &mut PayloadReader<'_>,
        out: &mut Words,
    ) -> Outcome {
        let id: SessionId = reader.array()?;
        let (_direction, _rdma) = (reader.u32()?, reader.u32()?);
        let Some(made) = self.made.iter_mut().find(|made| made.id == id) else {
            return Ok(Err(status::BADSESSION));
        };
        (made.peer, made.is_connected) = (peer, true);
        out.fixed(&id).u32(direction::BOTH).u32(0);
        Ok(Ok(()))
    }

    /// A connection has ended.
    pub fn lose(&mut self, peer: ConnectionId) {
        for made in self.made.iter_mut().filter(|made| made.peer == peer) {
            made.is_connected = false;
        }
    }

    /// Another run of a client begins: the earlier one is gone, with its sessions.
    fn replace(&mut self, owner: &[u8], verifier: [u8; 8]) {
        let is_earlier = |named: &Named| named.owner == owner && named.verifier != verifier;
        let earlier = self.named.extract_if(.., |named| is_earlier(named));
        for Named { client, .. } in earlier {
            self.made.retain(|made| made.client != client);
            self.gone.push(client);
        }
    }

    /// DESTROY_SESSION.
    pub fn destroy_session(&mut self, reader: &mut PayloadReader<'_>) -> Outcome {
        let id: SessionId = reader.array()?;
        let before = self.made.len();
        self.made.retain(|made| made.id != id);
        Ok(if self.made.len() < before { Ok(()) } else { Err(status::BADSESSION) })
    }

    /// DESTROY_CLIENTID.
    pub fn destroy(&mut self, reader: &mut PayloadReader<'_>) -> Outcome {
        let client = reader.u64()?;
        if self.made.iter().any(|made| made.client == client) {
            return Ok(Err(status::CLIENTID_BUSY));
        }
        let before = self.named.len();
        self.named.retain(|named| named.client != client);
        Ok(if self.named.len() < before { Ok(()) } else { Err(status::STALE_CLIENTID) })
    }
}

/// The number of the first CREATE_SESSION of a client.
const FIRST_SEQUENCE: u32 = 1;
/// `EXCHGID4_FLAG_USE_NON_PNFS`.
const USE_NON_PNFS: u32 = 0x0001_0000;
/// Slots of a direction.
const SLOTS_MAX: u32 = 16;
/// The longest callback, a CB_SEQUENCE with a CB_RECALL.
const CALLBACK_MAX: u32 = 300;
