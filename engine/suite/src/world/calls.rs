//! The calls of a world: made from scripts, completed, and checked byte for byte.

use rpcrdma::{CallBuilder, CallRefused, ConnectionId, Loan, Provider, Sink, Want};

use super::World;
use crate::done::{Done, SINK_SLACK, is_passing};
use crate::script::{POISON, Part, Place, Script, part_bytes, write_parts};

impl<P: Provider> World<P> {
    /// Makes a call.
    ///
    /// # Errors
    /// Why it was not sent.
    pub fn call(
        &mut self,
        client: usize,
        peer: ConnectionId,
        script: &Script,
    ) -> Result<u64, CallRefused> {
        self.call_with(client, peer, script, |_| Ok(())).map(|(cookie, ())| cookie)
    }

    /// As [`World::call`], with a closure that changes the call before it is submitted.
    ///
    /// # Errors
    /// As [`World::call`].
    pub fn call_with<T>(
        &mut self,
        client: usize,
        peer: ConnectionId,
        script: &Script,
        with: impl FnOnce(&mut CallBuilder<'_>) -> Result<T, CallRefused>,
    ) -> Result<(u64, T), CallRefused> {
        self.cookies += 1;
        let cookie = self.cookies;
        let sinks: Option<Vec<_>> =
            script.wants.iter().map(|want| self.sink(client, script.place, want)).collect();
        let sinks = sinks.ok_or(CallRefused::Busy)?;
        let mut lent = self.lent(client, script).ok_or(CallRefused::Busy)?.into_iter();
        let mut call = self.clients[client].call(peer, cookie)?;
        call.payload().put_fixed(&script.head());
        let source = &self.sources[client];
        write_parts(call.payload(), script.seed, &script.call, |payload, index, len| {
            match lent.next() {
                Some(loan) => payload.place(loan),
                None => source.place(payload, script.seed, index, len),
            }
        });
        for (want, sink) in script.wants.iter().zip(sinks) {
            match script.place {
                Place::Anywhere => call.want(*want),
                Place::Into(_) => call.want_into(*want, sink),
                Place::Either(_) => call.want_either(*want, sink),
                Place::BySize(len) => call.want_by_size(*want, len, sink),
            };
        }
        call.reply_payload_max(script.reply_payload_max());
        let said = with(&mut call)?;
        call.submit()?;
        self.open.insert(cookie, (client, script.clone()));
        Ok((cookie, said))
    }

    /// Does not compare the reply to this open call: it is only read.
    pub fn distrust(&mut self, cookie: u64) {
        self.distrusted.insert(cookie);
    }

    /// The bulk data of a call in buffers, if items are placed from buffers; they may not be free
    /// now.
    fn lent(&mut self, client: usize, script: &Script) -> Option<Vec<Loan>> {
        let mut lent = Vec::new();
        for (index, part) in script.call.iter().enumerate() {
            if let Part::Bulk(len) = *part
                && self.lends
            {
                let mut loan = self.clients[client].turn(self.now).buffer()?;
                loan[..len as usize].copy_from_slice(&part_bytes(script.seed, index, len));
                loan.truncate(len as usize);
                lent.push(loan);
            }
        }
        Some(lent)
    }

    /// A poisoned sink, a little longer than its item. None if no buffer is free.
    fn sink(&mut self, client: usize, place: Place, want: &Want) -> Option<Sink> {
        let (mut sink, pieces) = (Sink::new(), place.pieces());
        let mut left = if pieces > 0 { want.len_max as usize + SINK_SLACK } else { 0 };
        for piece in 0..pieces {
            let mut loan = self.clients[client].turn(self.now).buffer()?;
            loan.truncate(left.div_ceil((pieces - piece) as usize));
            loan.fill(POISON);
            left -= loan.len();
            sink.push(loan).expect("at most sixteen pieces");
        }
        assert_eq!(left, 0, "the buffers are as long as the pieces of the sinks");
        Some(sink)
    }

    /// Makes a call as soon as it is possible.
    ///
    /// # Panics
    /// If it never becomes possible.
    pub fn call_when_possible(
        &mut self,
        client: usize,
        peer: ConnectionId,
        script: &Script,
    ) -> u64 {
        let mut made = None;
        self.until("a call can be made", |world| {
            made = match world.call(client, peer, script) {
                Ok(cookie) => Some(cookie),
                Err(why) if is_passing(why) => None,
                Err(why) => panic!("{why}: {script:?}"),
            };
            made.is_some()
        });
        made.expect("it was made")
    }

    /// Waits until no call is open, and returns the completed calls.
    pub fn finish(&mut self) -> Vec<Done> {
        self.until("all calls are over", |world| world.open.is_empty());
        std::mem::take(&mut self.done)
    }

    /// Checks the completed calls that were not checked yet. Returns their number.
    pub fn check_done(&mut self) -> usize {
        let done = std::mem::take(&mut self.done);
        for done in &done {
            done.check();
        }
        done.len()
    }

    /// Waits until no call is open, and checks those that were not checked yet.
    pub fn check_all(&mut self) -> usize {
        self.until("all calls are over", |world| world.open.is_empty());
        self.check_done()
    }

    /// Calls and checks the reply, byte for byte. Returns the number of placed items in the call
    /// and in the reply.
    ///
    /// # Panics
    /// If the call fails, or the reply is wrong.
    pub fn round(&mut self, client: usize, peer: ConnectionId, script: &Script) -> (u32, usize) {
        let cookie = self.call_when_possible(client, peer, script);
        let done = self.finish();
        let [done] = done.as_slice() else { panic!("one call, {} completions", done.len()) };
        assert_eq!((done.cookie, done.peer), (cookie, peer));
        done.check()
    }

    /// Calls that expose memory in every way: an argument and a result of `len` bytes, with the
    /// result where the engine chooses and in a sink of three pieces; a long call with a long reply.
    ///
    /// # Panics
    /// As [`World::round`].
    pub fn rounds_that_expose(&mut self, client: usize, peer: ConnectionId, len: u32) {
        let (parts, long) = ([Part::Inline(9), Part::Bulk(len)], [Part::Inline(len)]);
        self.round(client, peer, &Script::new(len, &parts, &parts));
        self.round(client, peer, &Script::new(len, &parts, &parts).place(Place::Into(3)));
        self.round(client, peer, &Script::new(len, &long, &long));
    }
}
