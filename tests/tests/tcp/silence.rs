//! Hosts that fall silent: how long until the other side notices, in the states of a connection.
//!
//! ```text
//!   client 10.77.2.2 ──── router ──── 10.77.1.2 server
//! ```
//!
//! Each is a network namespace. A router that does not forward drops packets and reports nothing,
//! as a host that has lost its power, or a cable that is pulled.
#![expect(unsafe_code, reason = "a thread moves to a network of its own")]

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, id};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use rpcrdma::provider::ConnectError;
use rpcrdma::{
    Address, Answer, Call, CallError, Client, CloseReason, Config, ConnectionId, Engine, Execution,
    Handler, Reply, Resend, Session, SessionOptions, SetupError, Tcp, Ticket,
};
use rpcrdma_tests::setup::{checked, small};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// A host: its network namespace.
struct Host(File);

impl Host {
    fn new() -> io::Result<Host> {
        let new = || {
            // SAFETY: the thread shares nothing but memory with others, and ends.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            File::open("/proc/thread-self/ns/net").map(Host)
        };
        std::thread::scope(|scope| scope.spawn(new).join().expect("it returns"))
    }

    /// Does something on the host. The threads that it starts stay there.
    fn on<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            let kind = Some(LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(self.0.as_fd(), kind).expect("it is there");
            act()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().expect("it returns"))
    }

    /// A command of ip(8).
    fn ip(&self, command: &str) {
        let status = self.on(|| Command::new("ip").args(command.split(' ')).status());
        assert!(status.is_ok_and(|status| status.success()), "ip {command}");
    }

    fn engine(&self) -> Engine<Tcp> {
        self.on(|| {
            let config = config();
            Engine::new(Tcp::from_config(&config).expect("allowed"), config).expect("it starts")
        })
    }

    /// How often TCP was not acknowledged in time.
    fn timeouts(&self) -> u64 {
        let counters = self.on(|| fs::read_to_string("/proc/thread-self/net/netstat"));
        let counters = counters.expect("the system counts");
        let mut lines = counters.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let mut both = names.split(' ').zip(values.split(' '));
        let (_, count) = both.find(|(name, _)| *name == "TCPTimeouts").expect("it is counted");
        count.parse().expect("a number")
    }
}

/// The hosts.
struct Lab {
    server: Host,
    router: Host,
    client: Host,
}

impl Lab {
    /// None, after it has said so, if this process may not make hosts.
    fn new() -> Option<Lab> {
        let hosts = [(); 3].map(|()| Host::new());
        let has_ip = Command::new("ip").arg("-V").output().is_ok();
        let [Ok(server), Ok(router), Ok(client)] = hosts else {
            return skipped("network namespaces need root");
        };
        if !has_ip {
            return skipped("ip is missing: apt-get install iproute2");
        }
        let lab = Lab { server, router, client };
        for (host, net) in [(&lab.server, "10.77.1"), (&lab.client, "10.77.2")] {
            let (at, name) = (lab.router.0.as_raw_fd(), net.replace('.', "-"));
            let router = format!("/proc/{}/fd/{at}", id());
            host.ip(&format!("link add up0 type veth peer name {name} netns {router}"));
            host.ip(&format!("addr add {net}.2/24 dev up0"));
            host.ip("link set up0 up");
            host.ip("link set lo up");
            lab.router.ip(&format!("addr add {net}.1/24 dev {name}"));
            lab.router.ip(&format!("link set {name} up"));
            host.ip(&format!("route add default via {net}.1"));
        }
        lab.forward(true);
        Some(lab)
    }

    fn forward(&self, does: bool) {
        let set = || fs::write("/proc/sys/net/ipv4/ip_forward", if does { "1" } else { "0" });
        self.router.on(set).expect("root may do that");
    }
}

fn skipped(why: &str) -> Option<Lab> {
    // Past the test harness, which would keep it to itself.
    let _ = writeln!(io::stderr(), "SKIPPED netns ({why}): no host falls silent");
    None
}

fn config() -> Config {
    let mut raw = small();
    raw.engine.provider = "tcp".into();
    raw.engine.idle.policy = "block".into();
    raw.engine.idle.spin = "20us".into();
    raw.connections.max = 16;
    raw.connections.send_timeout = "1s".into();
    raw.connections.connect_timeout = "1s".into();
    checked(&raw)
}

/// What happens at the server.
enum Event {
    Deferred(Box<Ticket>),
    Closed(CloseReason),
}

/// Answers calls, but those of [`LATER`].
struct Server(Sender<Event>);

impl Handler for Server {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        if call.reader().u32() != Ok(LATER) {
            return reply.send();
        }
        let (answer, ticket) = reply.defer();
        self.0.send(Event::Deferred(Box::new(ticket))).expect("the test listens");
        answer
    }

    fn on_close(&mut self, _peer: ConnectionId, why: CloseReason) {
        let _ = self.0.send(Event::Closed(why));
    }
}

/// A connection of a client.
struct Line {
    client: Client<Tcp>,
    peer: ConnectionId,
    /// How the last call has ended.
    ended: Option<Result<(), CallError>>,
}

impl Line {
    fn new(engine: &Engine<Tcp>, at: Address) -> Line {
        let mut client = engine.client().expect("a client");
        let peer = client.connect(at).expect("it connects");
        let mut line = Line { client, peer, ended: None };
        line.call(NOW).expect("it is answered");
        line
    }

    fn begin(&mut self, when: u32) {
        let mut call = self.client.call(self.peer, 0).expect("a free slot");
        call.payload().put_u32(when);
        call.submit().expect("room");
        self.poll();
    }

    fn poll(&mut self) {
        let Line { client, ended, .. } = self;
        client.poll_for(STEP, |done| *ended = Some(done.result().map(|_| ())));
    }

    /// How the open call ends.
    fn end(&mut self) -> Result<(), CallError> {
        in_time("the end of a call", || {
            self.poll();
            self.ended.take()
        })
    }

    fn call(&mut self, when: u32) -> Result<(), CallError> {
        self.begin(when);
        self.end()
    }

    /// Returns when an idle connection is not there any more.
    fn is_lost(&mut self) {
        in_time("the end of an idle connection", || {
            self.poll();
            self.client.call(self.peer, 0).is_err().then_some(())
        });
    }
}

/// A session with one connection, to the first of these addresses.
fn session(engine: &Engine<Tcp>, addresses: [Address; 2]) -> Session<Tcp> {
    let client = engine.client().expect("a client");
    let options = SessionOptions::default();
    Session::new(client, addresses, &options).expect("as many as allowed")
}

/// Makes a call and returns when it is answered, over whichever connection.
fn is_answered(session: &mut Session<Tcp>) {
    let mut call = session.call(0);
    call.put_u32(NOW);
    call.resend(Resend::SameXid);
    assert!(call.submit().is_ok(), "it waits in the session");
    let result = in_time("the end of a call", || {
        let mut ended = None;
        session.poll_for(STEP, |done| ended = Some(done.result().map(|_| ())));
        ended
    });
    assert_eq!(result, Ok(()));
}

/// What `look` finds, soon: the system's own limits are a quarter of an hour.
fn in_time<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "{what} has not come in {LIMIT:?}");
    }
}

fn is_late<T: Debug>(outcome: Result<T, SetupError>) -> bool {
    let is_late = |why: &ConnectError| matches!(why, ConnectError::TimedOut);
    matches!(&outcome, Err(SetupError::Connect { reason, .. }) if is_late(reason))
}

#[test]
fn a_silent_host_is_noticed_in_every_state_of_a_connection() {
    let Some(lab) = Lab::new() else { return };
    let (say, events) = mpsc::channel();
    let mut serving = lab.server.engine();
    serving.start(move |_| Server(say.clone())).expect("it starts");
    let at = serving.listen("10.77.1.2:0".parse::<Address>().expect("an address"));
    let at = at.expect("it listens");
    // Its system takes connections, and nothing is answered.
    let hung = lab.server.on(|| TcpListener::bind("10.77.1.2:0").expect("a port"));
    let hung = Address::from(hung.local_addr().expect("an address"));
    let engine = lab.client.engine();
    let mut beside = lab.client.engine();
    beside.start(|_| Server(mpsc::channel().0)).expect("it starts");
    let near = beside.listen("10.77.2.2:0".parse::<Address>().expect("an address"));
    let mut session = session(&engine, [at, near.expect("it listens")]);
    is_answered(&mut session);
    let [mut idle, mut waiting, mut busy] = [(); 3].map(|()| Line::new(&engine, at));
    waiting.begin(LATER);
    let Ok(Event::Deferred(ticket)) = events.recv_timeout(LIMIT) else { panic!("a call comes") };

    // The cable is pulled, and back in time: nothing is lost.
    let before = lab.client.timeouts();
    lab.forward(false);
    busy.begin(NOW);
    in_time("a packet that is sent again", || (lab.client.timeouts() > before).then_some(()));
    lab.forward(true);
    busy.end().expect("it is answered");
    idle.call(NOW).expect("it is answered");

    // It is not plugged in again.
    lab.forward(false);
    drop(ticket);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(busy.call(NOW), LOST));
        scope.spawn(|| assert_eq!(waiting.end(), LOST));
        scope.spawn(|| idle.is_lost());
        // It goes on with the other address.
        scope.spawn(|| (0..3).for_each(|_| is_answered(&mut session)));
        for to in [at, hung] {
            let mut client = engine.client().expect("a client");
            scope.spawn(move || assert!(is_late(client.connect(to)), "{to}"));
        }
    });
    for _ in 0..4 {
        let Ok(Event::Closed(why)) = events.recv_timeout(LIMIT) else { panic!("it is noticed") };
        assert_eq!(why, CloseReason::PeerGone);
    }
}

const LOST: Result<(), CallError> =
    Err(CallError::ConnectionLost(CloseReason::PeerGone, Execution::Unknown));
/// Calls of the server: the second is answered when the test wants it.
const NOW: u32 = 1;
const LATER: u32 = 2;
/// How long a client waits for one thing.
const STEP: Duration = Duration::from_millis(20);
/// The bound is three seconds at most, and the machine may be slow.
const LIMIT: Duration = Duration::from_secs(20);
