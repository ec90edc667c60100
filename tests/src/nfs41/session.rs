//! A client with one session: its slots, and the connections that it uses.

use std::sync::atomic::{AtomicU64, Ordering};

use rpcrdma::ulb::nfs4;
use rpcrdma::{Address, Engine, Provider};

use super::compound::{Channel, CreateSession, Op, Security, Sequence};
use super::numbers::{op, session_flag, status};
use super::results::{Done, Failure};
use super::wire::Wire;
use super::words::SessionId;

/// A client of NFS version 4.1.
pub struct Session<P: Provider> {
    /// Its connection.
    pub wire: Wire<P>,
    /// The client.
    pub client: u64,
    /// The session.
    pub id: SessionId,
    /// Limits of the forward direction.
    pub fore: Channel,
    /// Limits of the backward direction.
    pub back: Channel,
    /// `sr_status_flags` of the last SEQUENCE.
    pub flags: u32,
    slots: Vec<Slot>,
}

/// A slot of the forward direction.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// The number of its last request.
    sequence: u32,
    is_busy: bool,
    /// Whether the request behind that one was executed is not known: its connection was lost.
    is_in_doubt: bool,
}

/// A request of a session that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    call: u64,
    slot: usize,
}

/// What a client asks for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name.
    pub owner: Vec<u8>,
    /// Which run of it this is.
    pub verifier: [u8; 8],
    /// The program number of its callbacks.
    pub program: u32,
    /// The credentials of its callbacks.
    pub security: Security,
    /// The limits of its back channel.
    pub back: Channel,
}

impl Options {
    /// Another run of the client of this name, with callbacks in AUTH_SYS.
    pub fn named(owner: &str) -> Options {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Options {
            owner: owner.into(),
            verifier: (u64::from(std::process::id()) << 32 | run).to_be_bytes(),
            program: nfs4::CALLBACK.program,
            security: Security::Sys { uid: 0, gid: 0 },
            back: BACK,
        }
    }
}

/// Runs of clients in this process.
static RUNS: AtomicU64 = AtomicU64::new(1);

/// The limits that a client asks for its back channel: those of Linux's client.
pub const BACK: Channel = Channel {
    request_max: 4096 - 28,
    response_max: 4096 - 28,
    cached_max: 0,
    operations_max: 2,
    slots: 16,
};

/// The limits that a client asks for the forward direction.
const FORE: Channel = Channel {
    request_max: 1 << 20,
    response_max: 1 << 20,
    cached_max: 4096,
    operations_max: 8,
    slots: 64,
};

impl<P: Provider> Session<P> {
    /// Connects, and makes a session whose back channel is this connection.
    ///
    /// # Errors
    /// The first COMPOUND that failed.
    ///
    /// # Panics
    /// If there is no connection.
    pub fn open(engine: &Engine<P>, to: Address, asked: &Options) -> Result<Session<P>, Failure> {
        let wire = Wire::connect(engine, to, asked.program).expect("a connection");
        let (client, id, slots) = (0, [0; 16], Vec::new());
        let mut session = Session { wire, client, id, fore: FORE, back: BACK, flags: 0, slots };
        session.begin(asked)?;
        session.call(&[Op::ReclaimComplete])?;
        Ok(session)
    }

    /// Names the client, and makes a session on the present connection.
    ///
    /// # Errors
    /// The COMPOUND that failed.
    ///
    /// # Panics
    /// If the server grants other than what is asked for, or more.
    pub fn begin(&mut self, asked: &Options) -> Result<(), Failure> {
        let (verifier, owner) = (asked.verifier, asked.owner.clone());
        let named = self.wire.call(&[Op::ExchangeId { verifier, owner }])?;
        let [Done::Client { client, sequence }] = named[..] else { panic!("{named:?}") };
        let arguments = CreateSession {
            client,
            sequence,
            flags: session_flag::CONN_BACK_CHAN,
            fore: FORE,
            back: asked.back,
            program: asked.program,
            security: asked.security,
        };
        let made = self.wire.call(&[Op::CreateSession(arguments)])?;
        let [Done::Session { session, flags, fore, back }] = made[..] else { panic!("{made:?}") };
        assert_eq!(flags, session_flag::CONN_BACK_CHAN, "it is the back channel, too");
        // RFC 8881 18.36.3: what the server returns is not above what was asked for.
        assert!(back.request_max <= asked.back.request_max, "{back:?}");
        assert!((1..=asked.back.slots).contains(&back.slots), "{back:?}");
        (self.client, self.id, self.fore, self.back) = (client, session, fore, back);
        self.slots = vec![Slot::default(); fore.slots.max(1) as usize];
        self.wire.callbacks().begin(session, back.slots);
        Ok(())
    }

    /// Connects again, and associates both directions of the new connection with the session. Slots
    /// whose requests were lost are free again.
    ///
    /// # Errors
    /// The COMPOUND that failed.
    ///
    /// # Panics
    /// If there is no connection.
    pub fn reconnect(&mut self, to: Address) -> Result<u32, Failure> {
        self.wire.reconnect(to).expect("a connection");
        let bound = self.wire.call(&[Op::BindConnToSession(self.id)])?;
        let [Done::Bound(directions)] = bound[..] else { panic!("{bound:?}") };
        for at in 0..self.slots.len() {
            if self.slots[at].is_in_doubt {
                self.use_up(at)?;
            }
        }
        Ok(directions)
    }

    /// Uses up the number of a request that may have been executed: by SEQUENCE alone if it was not.
    fn use_up(&mut self, at: usize) -> Result<(), Failure> {
        let sequence = self.slots[at].sequence.wrapping_add(1);
        let slot = at as u32;
        let alone = Sequence { session: self.id, sequence, slot, highest: slot };
        match self.wire.call(&[Op::Sequence(alone)]) {
            Ok(_) => {}
            Err(why) if why.status() == Some(status::RETRY_UNCACHED_REP) => {}
            Err(other) => return Err(other),
        }
        self.slots[at] = Slot { sequence, is_busy: false, is_in_doubt: false };
        Ok(())
    }

    /// Makes a COMPOUND of the session if a slot is free.
    ///
    /// # Errors
    /// If it cannot be sent.
    pub fn submit(&mut self, ops: &[Op]) -> Result<Option<Request>, Failure> {
        let Some(at) = self.slots.iter().position(|slot| !slot.is_busy) else { return Ok(None) };
        let sequence = self.slots[at].sequence.wrapping_add(1);
        let highest = self.slots.iter().rposition(|slot| slot.is_busy).unwrap_or(at).max(at);
        let (slot, highest) = (at as u32, highest as u32);
        let first = Sequence { session: self.id, sequence, slot, highest };
        let all: Vec<Op> = [Op::Sequence(first)].into_iter().chain(ops.iter().cloned()).collect();
        let call = self.wire.submit(&all)?;
        self.slots[at] = Slot { sequence, is_busy: true, is_in_doubt: false };
        Ok(Some(Request { call, slot: at }))
    }

    /// The results of a request behind SEQUENCE, if it is over.
    ///
    /// # Panics
    /// If the server's SEQUENCE is not the client's.
    pub fn finished(&mut self, request: Request) -> Option<Result<Vec<Done>, Failure>> {
        let results = self.wire.finished(request.call)?;
        Some(self.over(request, results))
    }

    /// Waits for the results of a request behind SEQUENCE.
    ///
    /// # Errors
    /// Why it has none.
    pub fn finish(&mut self, request: Request) -> Result<Vec<Done>, Failure> {
        let results = self.wire.finish(request.call);
        self.over(request, results)
    }

    /// Makes a COMPOUND and waits for its results behind SEQUENCE.
    ///
    /// # Errors
    /// Why it has none.
    ///
    /// # Panics
    /// If no slot is free.
    pub fn call(&mut self, ops: &[Op]) -> Result<Vec<Done>, Failure> {
        let request = self.submit(ops)?.expect("a slot is free");
        self.finish(request)
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Ends the session and the client.
    ///
    /// # Errors
    /// If the server does not agree.
    pub fn close(&mut self) -> Result<(), Failure> {
        self.wire.call(&[Op::DestroySession(self.id)])?;
        self.wire.call(&[Op::DestroyClientId(self.client)]).map(drop)
    }

    fn over(
        &mut self,
        request: Request,
        results: Result<Vec<Done>, Failure>,
    ) -> Result<Vec<Done>, Failure> {
        let slot = &mut self.slots[request.slot];
        slot.is_busy = false;
        let is_not_over = matches!(
            results,
            Err(Failure::Call(_) | Failure::Status { operation: op::SEQUENCE, .. })
        );
        if is_not_over {
            // Not executed, or it is not known whether: its number is used again.
            slot.sequence = slot.sequence.wrapping_sub(1);
            slot.is_in_doubt = matches!(results, Err(Failure::Call(_)));
        }
        let mut results = results?;
        let Done::Sequence { of, flags, .. } = results.remove(0) else {
            return Err(Failure::Unexpected("no SEQUENCE in front".into()));
        };
        let number = self.slots[request.slot].sequence;
        assert_eq!((of.session, of.sequence, of.slot as usize), (self.id, number, request.slot));
        self.flags = flags;
        Ok(results)
    }
}
