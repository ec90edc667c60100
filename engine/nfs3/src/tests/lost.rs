//! Connections that end while their calls wait for a worker thread.

use std::sync::MutexGuard;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use nfs3_types::nfs3::{MKDIR3args, READ3args, WRITE3args, sattr3, stable_how};
use nfs3_types::xdr_codec::{Opaque, Pack};
use rpcrdma::onc::CallHeader;
use rpcrdma::ulb::nfs3;
use rpcrdma_tests::nfs::at;
use rpcrdma_tests::raw_peer::{RawPeer, message};

use super::{Client, Running, Scratch};
use crate::work::COPIED_MAX;

/// A server whose only worker thread has begun a MKDIR and waits until the guard is dropped.
struct Busy<'a> {
    nfs: &'a Running,
    occupant: Client,
    guard: MutexGuard<'a, ()>,
}

impl Busy<'_> {
    fn new(nfs: &Running) -> Busy<'_> {
        let export = &nfs.server.export;
        let guard = export.change(export.nodes().root());
        // A call that is not remembered.
        let occupant = connect(nfs, calls_of(nfs));
        let mut busy = Busy { nfs, occupant, guard };
        let calls = calls_of(nfs);
        make(&mut busy.occupant, "begun");
        busy.await_calls(calls + 1);
        busy.await_waiting(0);
        busy
    }

    /// Waits until the server has received `count` calls on all connections.
    fn await_calls(&self, count: u64) {
        until(count, || calls_of(self.nfs));
    }

    fn await_waiting(&self, count: usize) {
        until(count, || self.nfs.server.waiting());
    }
}

/// A client with all its credits. Clients with the same seed use the same XIDs in the same order.
fn connect(nfs: &Running, seed: u64) -> Client {
    let root = nfs.client.root.clone();
    granted(Client::seeded(nfs.device.clone(), nfs.server.address(), root, seed))
}

/// A client after its first reply.
fn granted(mut client: Client) -> Client {
    client.words(&[2, nfs3::PROGRAM, 3, nfs3::NULL, 0, 0, 0, 0]);
    client
}

fn make(client: &mut Client, called: &str) -> bool {
    let where_ = at(&client.root, called.as_bytes());
    let arguments = MKDIR3args { where_, attributes: sattr3::default() };
    client.ask(nfs3::MKDIR, &arguments)
}

/// Sends a READ of the directory, which only a worker thread answers.
fn read(client: &mut Client) -> bool {
    let arguments = READ3args { file: client.root.clone(), offset: 0, count: 8 };
    client.ask(nfs3::READ, &arguments)
}

/// Sends as many calls as there are credits.
fn fill(client: &mut Client, ask: impl Fn(&mut Client) -> bool) -> usize {
    std::iter::repeat_with(|| ask(client)).take_while(|is_asked| *is_asked).count()
}

fn until<T: PartialEq + std::fmt::Debug>(wanted: T, mut look: impl FnMut() -> T) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = look();
        if seen == wanted {
            return;
        }
        assert!(Instant::now() < end, "{seen:?} in place of {wanted:?}");
        yield_now();
    }
}

#[test]
fn waiting_calls_end_with_their_connection_however_often_the_client_reconnects() {
    let nfs = Running::working(Scratch::new(), 1);
    let busy = Busy::new(&nfs);
    for round in 0..20 {
        let mut client = connect(&nfs, 100 + round);
        let count = fill(&mut client, |client| make(client, "asked"));
        assert!(count > 1, "{count} calls");
        busy.await_waiting(count);
        drop(client);
        busy.await_waiting(0);
    }
    let Busy { mut occupant, guard, .. } = busy;
    drop(guard);
    assert_eq!(occupant.statuses(1), [0], "what was begun is done");
    assert!(!nfs.export().join("asked").exists());
}

#[test]
fn memory_returns_when_the_connection_whose_reads_use_it_or_wait_for_it_ends() {
    let nfs = Running::working(Scratch::new(), 1);
    let busy = Busy::new(&nfs);
    let buffers = crate::config().expect("it is built in").app().bulk.count.as_usize();
    let share = buffers / 2;
    let mut first = connect(&nfs, 100);
    let asked = fill(&mut first, read);
    assert!(asked > share, "{asked} calls");
    // The calls that got memory wait for the thread; the others wait for memory, for the host has
    // its share of it.
    busy.await_waiting(share);
    let mut second = connect(&nfs, 101);
    let asked = asked + fill(&mut second, read);
    busy.await_calls(4 + asked as u64);
    connect(&nfs, 102);
    assert_eq!(nfs.server.waiting(), share, "of another connection, too");
    // The one whose calls wait for memory goes before it has any.
    drop(second);
    until(2, || ended(&nfs));
    drop(first);
    busy.await_waiting(0);
    // No call waits for memory any more: a turn has ended, and the memory is free.
    let mut client = connect(&nfs, 103);
    assert_eq!(nfs.server.waiting(), 0);
    assert!(fill(&mut client, read) > share);
    busy.await_waiting(share);
}

/// So their answers make room for those of others.
#[test]
fn the_answers_of_a_connection_are_kept_as_those_of_one_that_has_ended() {
    let nfs = Running::working(Scratch::new(), 1);
    let mut clients = [100, 101, 102].map(|seed| connect(&nfs, seed));
    for (client, name) in clients.iter_mut().zip(["first", "second", "third"]) {
        assert!(make(client, name));
        assert_eq!(client.statuses(1), [0]);
    }
    assert_eq!(nfs.server.drc.open_connections(), 3);
    let [first, second, third] = clients;
    drop((first, third));
    until(1, || nfs.server.drc.open_connections());
    drop(second);
    until(0, || nfs.server.drc.open_connections());
    let mut again = connect(&nfs, 100);
    assert!(make(&mut again, "first"));
    assert_eq!(again.statuses(1), [0], "it is not executed again: the name would exist");
}

#[test]
fn a_call_that_was_not_begun_is_executed_when_it_is_repeated() {
    let nfs = Running::working(Scratch::new(), 1);
    let busy = Busy::new(&nfs);
    let mut first = connect(&nfs, 100);
    assert!(make(&mut first, "waiting"));
    busy.await_waiting(1);
    drop(first);
    busy.await_waiting(0);
    let mut second = connect(&nfs, 100);
    assert!(make(&mut second, "waiting"));
    busy.await_waiting(1);
    drop(busy.guard);
    assert_eq!(second.statuses(1), [0]);
    assert!(nfs.export().join("waiting").exists());
}

#[test]
fn a_call_that_was_repeated_before_its_connection_was_lost_is_executed_once() {
    let nfs = Running::working(Scratch::new(), 1);
    let busy = Busy::new(&nfs);
    let (mut first, mut second) = (connect(&nfs, 100), connect(&nfs, 100));
    let mut third = connect(&nfs, 100);
    for client in [&mut first, &mut second, &mut third] {
        assert!(make(client, "repeated"));
    }
    busy.await_calls(2 + 2 * 3);
    assert_eq!(nfs.server.waiting(), 1);
    // The connection of the second waiting call ends before that of the first.
    drop(third);
    until(1, || ended(&nfs));
    drop(first);
    until(2, || ended(&nfs));
    connect(&nfs, 101);
    assert_eq!(nfs.server.waiting(), 1, "it is for the second");
    drop(busy.guard);
    assert_eq!(second.statuses(1), [0], "it is executed once: it would exist else");
}

#[test]
fn a_call_belongs_to_the_last_connection_that_repeated_it() {
    let nfs = Running::working(Scratch::new(), 1);
    let busy = Busy::new(&nfs);
    let (mut first, mut second) = (connect(&nfs, 100), connect(&nfs, 100));
    assert!(make(&mut first, "repeated") && make(&mut second, "repeated"));
    busy.await_calls(2 + 2 * 2);
    drop(second);
    until(1, || ended(&nfs));
    assert_eq!(nfs.server.waiting(), 1);
    drop(first);
    busy.await_waiting(0);
}

/// No client of ours repeats a call over the connection that has it.
#[test]
fn a_call_and_its_repetition_end_with_a_connection_that_has_both() {
    let nfs = Running::working(Scratch::new(), 1);
    let busy = Busy::new(&nfs);
    let mut raw = RawPeer::new(&nfs.device);
    raw.connect(nfs.server.address());
    until(true, || {
        raw.turn().expect("the server takes it");
        raw.is_connected()
    });
    let header = |procedure| CallHeader::plain(nfs3::PROGRAM, 3, procedure).to_vec();
    // Its turns send what waits until the shard has attached the connection.
    let mut ask = |call: &[u8], xid, count| {
        assert!(raw.send(&message(xid, 0, 8, call)));
        until(count, || {
            raw.turn().expect("it is connected");
            calls_of(&nfs)
        });
    };
    ask(&header(nfs3::NULL), 7, 3);
    let mut call = header(nfs3::MKDIR);
    let where_ = at(&nfs.client.root, b"twice");
    let arguments = MKDIR3args { where_, attributes: sattr3::default() };
    arguments.pack(&mut call).expect("a vector takes whatever is written to it");
    for count in [4, 5] {
        ask(&call, 8, count);
    }
    assert_eq!(nfs.server.waiting(), 1);
    raw.disconnect();
    busy.await_waiting(0);
}

#[test]
fn waiting_calls_stay_when_a_connection_of_another_shard_is_lost() {
    let nfs = Running::on_shards(Scratch::new(), 1, 2);
    let busy = Busy::new(&nfs);
    // On one shard after the other, and named there as the other is here.
    let (mut first, mut second) = (connect(&nfs, 100), connect(&nfs, 101));
    assert!(make(&mut first, "first") && make(&mut second, "second"));
    busy.await_waiting(2);
    let shards = nfs.server.shards().iter().map(|shard| shard.stats().connections_established);
    assert_eq!(
        shards.collect::<Vec<_>>(),
        [2, 1],
        "the first is alone, but for who has not called"
    );
    drop(first);
    until(1, || ended(&nfs));
    busy.await_waiting(1);
    drop(busy.guard);
    assert_eq!(second.statuses(1), [0]);
    assert!(!nfs.export().join("first").exists());
}

/// As [`connect`], that writes long data in messages that are copied.
fn wordy(nfs: &Running, seed: u64) -> Client {
    let root = nfs.client.root.clone();
    granted(Client::wordy(nfs.device.clone(), nfs.server.address(), root, seed))
}

fn write(client: &mut Client) -> bool {
    let (file, data) = (client.root.clone(), vec![1; DATA_LEN]);
    let (count, stable) = (DATA_LEN as u32, stable_how::UNSTABLE);
    let data = Opaque::owned(data);
    client.ask(nfs3::WRITE, &WRITE3args { file, offset: 0, count, stable, data })
}

/// So many of them, and all wait.
fn write_until(nfs: &Running, client: &mut Client, count: usize) {
    for waiting in 1..=count {
        assert!(write(client));
        await_waiting_of(nfs, client, waiting);
    }
}

/// Waits until so many calls wait; the data of this client are fetched meanwhile.
fn await_waiting_of(nfs: &Running, client: &mut Client, count: usize) {
    until(count, || {
        client.rpc.poll();
        nfs.server.waiting()
    });
}

#[test]
fn the_copied_bytes_of_waiting_calls_are_limited() {
    let nfs = Running::working(Scratch::new(), 1);
    let busy = Busy::new(&nfs);
    let mut client = wordy(&nfs, 100);
    write_until(&nfs, &mut client, HALF);
    assert!(write(&mut client));
    assert_eq!(client.statuses(1), [10_008], "NFS3ERR_JUKEBOX: the rest is for others");
    assert_eq!(nfs.server.waiting(), HALF);
    // Those that wait are known when they are repeated. The one that does not is not known, and the
    // host has no more room on another connection.
    let mut again = wordy(&nfs, 100);
    for _ in 0..=HALF {
        assert!(write(&mut again));
    }
    assert_eq!(again.statuses(1), [10_008]);
    assert_eq!(nfs.server.waiting(), HALF);
    assert!(make(&mut again, "small"), "a call without data needs none");
    busy.await_waiting(HALF + 1);
    drop(busy.guard);
    assert_eq!(client.statuses(HALF), vec![22; HALF], "NFS3ERR_INVAL: they are executed");
    let mut statuses = again.statuses(HALF + 1);
    statuses.sort_unstable();
    assert_eq!(statuses.split_first(), Some((&0, &vec![22; HALF][..])), "for both");
    let busy = Busy::new(&nfs);
    write_until(&nfs, &mut client, 2);
    drop(busy.guard);
    assert_eq!(client.statuses(2), [22; 2], "there is room again");
}

#[test]
fn copies_of_ended_calls_free_their_room() {
    let nfs = Running::working(Scratch::new(), 1);
    let busy = Busy::new(&nfs);
    let mut client = wordy(&nfs, 100);
    write_until(&nfs, &mut client, HALF);
    drop(client);
    busy.await_waiting(0);
    write_until(&nfs, &mut wordy(&nfs, 101), 2);
}

fn calls_of(nfs: &Running) -> u64 {
    nfs.server.shards().iter().map(|shard| shard.stats().calls_received).sum()
}

/// The number of connections that have ended.
fn ended(nfs: &Running) -> u64 {
    nfs.server.shards().iter().map(|shard| shard.stats().connections_closed).sum()
}

/// Bytes of a call that is copied.
const DATA_LEN: usize = 1000 << 10;
/// So many of them may wait of one host.
const HALF: usize = COPIED_MAX / 2 / DATA_LEN;
