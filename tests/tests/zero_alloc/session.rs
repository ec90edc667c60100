//! No allocation for a call of a session, once as many were open as are: sent at once or after
//! waiting, to be sent again or not.

use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::{
    Address, Engine, Fabric, Loan, OwnedCall, Resend, Session, SessionCompletion, SessionOptions,
    Shard, Sink, Want,
};
use rpcrdma_mempool::RegisteredBytes;
use rpcrdma_tests::alloc::count;
use rpcrdma_tests::setup::checked;
use rpcrdma_tests::suite::explicit::only_base;
use rpcrdma_tests::world::small;

use super::{ECHO, READ, Server, WRITE, placed_len};

/// A session and its server.
struct Town {
    session: Session<Fabric>,
    server: Shard<Fabric, Server>,
    control: Control<Fabric>,
    source: RegisteredBytes,
    /// Memory for results, as long as no call has it.
    sinks: Vec<Loan>,
    now: u64,
    _engine: Engine<Fabric>,
}

impl Town {
    fn new(is_explicit: bool) -> Town {
        let mut raw = small();
        raw.connections.credits = 64;
        raw.connections.credits_requested = 64;
        raw.connections.calls_max = 32;
        raw.send.slots = 512;
        raw.receive.spares = 64;
        raw.app.bulk.count = 60;
        if is_explicit {
            only_base(&mut raw);
        }
        let (engine, mut control) =
            Engine::without_threads(Fabric::new(), checked(&raw)).expect("an engine");
        let any: Address = "127.0.0.1:0".parse().expect("an address");
        let at = control.listen(any).expect("a port");
        let server = engine.shard(Server::default()).expect("a server");
        let client = engine.client().expect("a client");
        let session = Session::new(client, [at], &SessionOptions::default());
        let mut session = session.expect("a session");
        let source = RegisteredBytes::new(session.turn(1).buffer().expect("a buffer"));
        let sinks = std::iter::from_fn(|| session.turn(1).buffer()).take(50).collect();
        let mut town = Town { session, server, control, source, sinks, now: 1, _engine: engine };
        while town.session.connections() == 0 {
            town.now += 1_000;
            assert!(town.now < 1 << 40, "they connect");
            town.control.step(Duration::ZERO);
            town.server.poll_once(town.now);
            town.session.poll(town.now, |_| panic!("no call was made"));
        }
        town
    }

    /// Makes calls, as many at a time as the window says, and counts what the session allocates.
    fn run(
        &mut self,
        (calls, window, resend): (usize, usize, Resend),
        make: &impl Fn(&mut OwnedCall, &RegisteredBytes, &mut Vec<Loan>),
        check: &impl Fn(&mut SessionCompletion<'_, '_>, &mut Vec<Loan>),
    ) -> u64 {
        let (mut allocations, mut made, mut done) = (0, 0, 0);
        while done < calls {
            self.now += 1_000;
            assert!(self.now < 1 << 40, "calls are answered");
            let Town { session, source, sinks, now, .. } = self;
            allocations += count(|| {
                while made < calls && made - done < window {
                    let mut call = session.call(made as u64);
                    make(&mut call, source, sinks);
                    call.resend(resend);
                    if made % 2 == 0 {
                        call.deadline(u64::MAX - 1);
                    }
                    call.submit().expect("there is room");
                    made += 1;
                }
                session.poll(*now, |mut completion| {
                    check(&mut completion, sinks);
                    done += 1;
                });
            });
            self.server.poll_once(self.now);
        }
        allocations
    }

    fn measure(
        &mut self,
        make: impl Fn(&mut OwnedCall, &RegisteredBytes, &mut Vec<Loan>),
        check: impl Fn(&mut SessionCompletion<'_, '_>, &mut Vec<Loan>),
    ) {
        // Some windows are longer than there are call slots: calls wait.
        for window in [1, 16, 48] {
            // Each place gets its memory once, when it first keeps a call: the calls of the first
            // run are all kept, of the second those that wait.
            for resend in [Resend::SameXid, Resend::Never] {
                self.run((400, window, resend), &make, &check);
                let cost = self.run((1_000, window, resend), &make, &check);
                assert_eq!(cost, 0, "allocations in a thousand calls: {window}, {resend:?}");
            }
        }
    }
}

fn head(call: &mut OwnedCall, what: u32, len: u32) {
    call.put_u32(what);
    call.put_u32(len);
}

#[test]
fn a_plain_call_of_a_session_allocates_nothing() {
    let mut town = Town::new(false);
    town.measure(
        |call, _, _| {
            head(call, ECHO, 64);
            call.put_fixed(&[5; 64]);
        },
        |done, _| assert!(done.result().is_ok()),
    );
}

#[test]
fn data_placed_in_a_call_of_a_session_allocate_nothing() {
    let mut town = Town::new(false);
    town.measure(
        |call, source, _| {
            head(call, WRITE, 5_000);
            call.place(source.slice(0..5_000).expect("within the buffer"));
        },
        |done, _| assert!(done.result().is_ok()),
    );
}

#[test]
fn a_result_buffer_of_a_call_of_a_session_allocates_nothing() {
    let mut town = Town::new(true);
    town.measure(
        |call, _, sinks| {
            head(call, READ, 5_000);
            let sink = Sink::from(sinks.pop().expect("one for each call"));
            call.want_into(Want { len_min: 0, len_max: 5_000 }, sink);
        },
        |done, sinks| {
            assert_eq!(placed_len(done.result().expect("a reply")), 5_000);
            sinks.extend(done.take_sink(0).expect("it comes back").into_pieces());
        },
    );
}
