//! A client with 32 calls under way through a session, which outlives its server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rpcrdma::{
    Address, Clock, Engine, Incoming, Provider, Resend, Session, SessionEvent, SessionOptions, Want,
};

use crate::protocol::{GET, PUT, VALUE_MAX, begin, read_value, value};
use crate::{CALL_TIME, Outcome, say};

/// Calls under way: each key has one at most.
const SLOTS: u64 = 32;

/// PUTs values, GETs each of them and compares, until `calls` are done or it shall stop.
pub fn run<P: Provider>(
    engine: &Engine<P>,
    at: Address,
    calls: u64,
    stopped: &AtomicBool,
) -> Outcome<()> {
    let options = SessionOptions {
        connections: 2,
        backoff_max: Duration::from_millis(200),
        ..SessionOptions::default()
    };
    let session = Session::new(engine.client()?, [at], &options)?;
    let slots = (0..SLOTS).map(|key| Slot { key, ..Slot::default() }).collect();
    let mut client = Client { session, clock: Clock::new(), slots, counts: Counts::default() };
    let mut printed = Instant::now();
    while client.counts.calls < calls && !stopped.load(Ordering::Relaxed) {
        client.submit()?;
        client.poll()?;
        if printed.elapsed() >= Duration::from_secs(1) {
            printed = Instant::now();
            say(format_args!("client: {:?}", client.counts));
        }
    }
    say(format_args!("client: stops with {} calls under way", client.session.open_calls()));
    client.session.close();
    while !client.session.is_closed() {
        client.poll()?;
    }
    say(format_args!("client: stopped: {:?}", client.counts));
    Ok(())
}

struct Client<P: Provider> {
    session: Session<P>,
    clock: Clock,
    slots: Vec<Slot>,
    counts: Counts,
}

/// A key, and what happens to it.
#[derive(Default)]
struct Slot {
    key: u64,
    version: u64,
    /// The server that has the value; without it the next call is a PUT.
    server: Option<u64>,
    busy: bool,
}

#[derive(Debug, Default)]
struct Counts {
    calls: u64,
    /// GETs whose value was as it had been PUT.
    verified: u64,
    /// Values that a server lost when it died.
    lost: u64,
    /// Calls without a reply, for example at their deadline.
    failed: u64,
}

impl<P: Provider> Client<P> {
    /// Submits the next call of every key that has none.
    fn submit(&mut self) -> Outcome<()> {
        let now = self.clock.now();
        for (cookie, slot) in (0..).zip(&mut self.slots).filter(|(_, slot)| !slot.busy) {
            let data = if slot.server.is_none() {
                // Without a buffer this key has its turn later.
                let Some(mut data) = self.session.turn(now).buffer() else { continue };
                let value = value(slot.key, slot.version);
                data[..value.len()].copy_from_slice(&value);
                data.truncate(value.len());
                Some(data)
            } else {
                None
            };
            let mut call = self.session.call(cookie);
            begin(&mut call, if data.is_some() { PUT } else { GET }, slot.key);
            match data {
                Some(data) => call.place(data),
                None => call.want(Want { len_min: 0, len_max: VALUE_MAX as u32 }),
            }
            call.deadline(now + CALL_TIME.as_nanos() as u64);
            // Both may be executed twice: no other client writes these keys.
            call.resend(Resend::SameXid);
            call.submit()?;
            slot.busy = true;
        }
        Ok(())
    }

    fn poll(&mut self) -> Outcome<()> {
        let (slots, counts, mut outcome) = (&mut self.slots, &mut self.counts, Ok(()));
        self.session.poll_for(Duration::from_millis(100), |done| {
            let slot = &mut slots[done.cookie() as usize];
            (slot.busy, counts.calls) = (false, counts.calls + 1);
            let completed = match done.result() {
                Ok(reply) => slot.replied(reply, counts),
                Err(failed) => {
                    say(format_args!("client: {failed}"));
                    counts.failed += 1;
                    // The server may still execute it: this key is not used again.
                    *slot = Slot { key: slot.key + SLOTS, ..Slot::default() };
                    Ok(())
                }
            };
            if completed.is_err() {
                outcome = completed;
            }
        });
        while let Some(event) = self.session.next_event() {
            say(format_args!("client: {event}"));
            if let SessionEvent::GivenUp { why, .. } = event {
                return Err(format!("the server does not accept this client: {why}").into());
            }
        }
        outcome
    }
}

impl Slot {
    fn replied(&mut self, reply: &Incoming<'_>, counts: &mut Counts) -> Outcome<()> {
        let mut results = reply.results()?;
        let server = results.u64()?;
        let Some(stored_by) = self.server.take() else {
            self.server = Some(server); // it was a PUT
            return Ok(());
        };
        let placed = reply.placed().flat_map(|item| item.segments());
        match read_value(&mut results, placed)? {
            Some(got) if got == value(self.key, self.version) => {
                counts.verified += 1;
                self.version += 1;
            }
            None if stored_by != server => counts.lost += 1, // it is stored again
            _ => return Err(format!("key {} has another value", self.key).into()),
        }
        Ok(())
    }
}
