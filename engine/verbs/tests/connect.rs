//! Connections on a real device, by the connection manager alone: both ends are in this process.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rpcrdma_config::{Config, Raw};
use rpcrdma_provider::SetupError;
use rpcrdma_provider::{
    Address, Attached, CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, Origin,
    Provider, QueueAttr, QueueEvent, Queues, Rejection, Waker,
};
use rpcrdma_verbs::{Verbs, VerbsCm, VerbsEndpoint, VerbsQueues, VerbsRequest};

const QUIET: ConnParam<'static> = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
const ATTR: QueueAttr = QueueAttr {
    srq_depth: 64,
    cq_depth: 512,
    qp_max: 80,
    send_depth: 16,
    send_sge: 4,
    recv_sge: 4,
};
/// Longer than anything takes that works.
const LONG: Duration = Duration::from_secs(20);

/// The address of the device under test.
fn address() -> IpAddr {
    let address = std::env::var("RPCRDMA_TEST_ADDRESS").expect("RPCRDMA_TEST_ADDRESS is set");
    address.parse().expect("RPCRDMA_TEST_ADDRESS is an address")
}

/// The device's address of the other version: the one that the emulated machine gives it.
fn addresses() -> [IpAddr; 2] {
    let v6 = std::env::var("RPCRDMA_TEST_ADDRESS6").unwrap_or_else(|_| "fd00::1".to_owned());
    [address(), v6.parse().expect("an address")]
}

fn device(change: impl FnOnce(&mut Raw)) -> Verbs {
    let mut raw = Raw::default();
    let name = std::env::var("RPCRDMA_TEST_DEVICE").expect("RPCRDMA_TEST_DEVICE is set");
    raw.verbs.device = name.into();
    change(&mut raw);
    Verbs::from_config(&Config::try_from(raw).expect("it is right")).expect("the device is there")
}

/// One end: queues and a connection manager of their own.
struct End {
    cm: VerbsCm,
    queues: VerbsQueues,
    waker: Waker,
    requests: VecDeque<(VerbsRequest, Address, Vec<u8>)>,
    outcomes: VecDeque<Outcome>,
}

/// What became of an attempt, and with it what the peer said.
type Outcome = (ConnectId, Result<(VerbsEndpoint, Vec<u8>), ConnectError>);

impl End {
    fn new(device: &Verbs) -> End {
        End {
            cm: device.open_cm().expect("a channel"),
            queues: device.open_queues(&ATTR).expect("queues"),
            waker: Waker::new().expect("a descriptor"),
            requests: VecDeque::new(),
            outcomes: VecDeque::new(),
        }
    }

    fn connect(&mut self, to: SocketAddr, private: &[u8]) -> ConnectId {
        let param = ConnParam { private, ..QUIET };
        self.cm.connect(to.into(), &self.queues.handle(), &param).expect("nothing is wrong with it")
    }

    /// Takes in what has happened.
    fn turn(&mut self) {
        match self.cm.next(&self.waker, Duration::from_millis(1)) {
            Some(CmEvent::Request { request, from, private }) => {
                self.requests.push_back((request, from, private.to_vec()));
            }
            Some(CmEvent::Connected { id, endpoint, private }) => {
                self.outcomes.push_back((id, Ok((endpoint, private.to_vec()))));
            }
            Some(CmEvent::Refused { id, reason }) => self.outcomes.push_back((id, Err(reason))),
            None => {}
        }
    }

    fn accept(&mut self, request: VerbsRequest, private: &[u8]) -> VerbsEndpoint {
        let param = ConnParam { private, ..QUIET };
        let accepted = self.cm.accept(request, &self.queues.handle(), &param);
        accepted.expect("it is accepted")
    }

    /// What has become of the only attempt.
    fn outcome(&mut self) -> Outcome {
        until("the outcome", || {
            self.turn();
            self.outcomes.pop_front()
        })
    }

    fn refused(&mut self) -> ConnectError {
        self.outcome().1.expect_err("no peer accepts")
    }

    fn attach(&mut self, endpoint: VerbsEndpoint) -> Attached<<VerbsQueues as Queues>::Qp> {
        self.queues.attach(endpoint).expect("it is there")
    }
}

/// Tries until there is something.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    while begin.elapsed() < LONG {
        if let Some(found) = attempt() {
            return found;
        }
    }
    panic!("a test waits no longer: {what}");
}

/// A server that listens, and a client.
struct Pair {
    server: End,
    client: End,
    at: SocketAddr,
}

impl Pair {
    fn new(device: &Verbs, at: IpAddr) -> Pair {
        let (mut server, client) = (End::new(device), End::new(device));
        let listening = server.cm.listen(SocketAddr::new(at, 0).into()).expect("a free port");
        let listening = listening.as_ip().expect("an IP address");
        assert!(listening.port() != 0 && listening.ip() == at);
        Pair { server, client, at: listening }
    }

    fn turn(&mut self) {
        self.server.turn();
        self.client.turn();
    }

    fn request(&mut self) -> (VerbsRequest, Address, Vec<u8>) {
        until("a request", || {
            self.turn();
            self.server.requests.pop_front()
        })
    }

    /// A connection: the server's end, then the client's.
    fn connect(&mut self) -> [VerbsEndpoint; 2] {
        self.client.connect(self.at, &[]);
        let (request, ..) = self.request();
        let ours = self.server.accept(request, &[]);
        let (theirs, _) = self.client.outcome().1.expect("it was accepted");
        [ours, theirs]
    }

    /// The next event of the queues of the server, or of the client.
    fn event(&mut self, of_server: bool) -> QueueEvent {
        until("an event of the queues", || {
            self.turn();
            let end = if of_server { &mut self.server } else { &mut self.client };
            end.queues.next_event()
        })
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn both_sides_receive_the_private_data_of_the_other() {
    let device = device(|_| {});
    for at in addresses() {
        let mut pair = Pair::new(&device, at);
        let longest = [7; 56];
        let asked = pair.client.connect(pair.at, &longest);
        let (request, from, said) = pair.request();
        assert_eq!((from.origin(), &said[..]), (Origin::Host(at), &longest[..]));
        let _ours = pair.server.accept(request, &[1, 2, 3]);
        let (id, outcome) = pair.client.outcome();
        let (_theirs, answered) = outcome.expect("it was accepted");
        assert_eq!(id, asked);
        // Devices fill up with zeros.
        assert_eq!(answered[..3], [1, 2, 3]);
        assert!(answered[3..].iter().all(|byte| *byte == 0));
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_rejected_request_differs_from_one_without_a_listener() {
    let device = device(|_| {});
    let mut pair = Pair::new(&device, address());
    let refused = Rejection::Refused { code: 7 }.encode();
    for (private, why) in [
        (None, Rejection::Unstated),
        (Some(&b"no"[..]), Rejection::Unstated),
        (Some(&[0xff; 148]), Rejection::Unstated),
        // The device adds padding, or cuts off what is too long.
        (Some(&refused), Rejection::Refused { code: 7 }),
        (Some(&[0; 255]), Rejection::Unstated),
    ] {
        pair.client.connect(pair.at, &[]);
        let (request, ..) = pair.request();
        match private {
            None => drop(request),
            Some(private) => pair.server.cm.reject(request, private),
        }
        assert_eq!(pair.client.refused(), ConnectError::Rejected(why));
    }
    let Pair { server, mut client, at } = pair;
    drop(server);
    client.connect(at, &[]);
    assert_eq!(client.refused(), ConnectError::NoListener);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn addresses_that_cannot_be_listened_on_are_named_with_the_reason() {
    let device = device(|_| {});
    let mut pair = Pair::new(&device, address());
    let message = |cm: &mut VerbsCm, at: SocketAddr| match cm.listen(at.into()) {
        Err(error @ SetupError::Listen { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(message(&mut pair.client.cm, pair.at).contains("in use"));
    for elsewhere in ["192.0.2.1:0", "[2001:db8::1]:0"] {
        let said = message(&mut pair.server.cm, elsewhere.parse().expect("an address"));
        assert!(said.contains("no RDMA device has this address"), "{said}");
    }
    for here in ["127.0.0.1:0", "[::1]:0"] {
        let said = message(&mut pair.server.cm, here.parse().expect("an address"));
        assert!(said.contains("loopback"), "{said}");
    }
    // No address in particular is fine.
    let any = pair.server.cm.listen("0.0.0.0:0".parse().expect("an address")).expect("a free port");
    pair.at = SocketAddr::new(address(), any.as_ip().expect("an IP address").port());
    pair.connect();
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn an_attempt_without_an_answer_ends_in_time() {
    let device = device(|raw| {
        raw.verbs.resolve_timeout = "50ms".into();
        raw.verbs.answer_timeout = "100ms".into();
        raw.verbs.attempts = 3;
        raw.verbs.pause = "10ms".into();
    });
    let mut client = End::new(&device);
    // Of the same network, but no host has it.
    for silent in ["10.0.0.77:7", "[fd00::77]:7"] {
        client.connect(silent.parse().expect("an address"), &[]);
        let reason = client.refused();
        let is_right = matches!(reason, ConnectError::TimedOut | ConnectError::NoRoute);
        assert!(is_right, "{silent}: {reason}");
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn an_address_of_another_interface_has_no_route_from_the_device() {
    let device = device(|_| {});
    let mut client = End::new(&device);
    client.connect("192.0.2.1:7".parse().expect("an address"), &[]);
    assert_eq!(client.refused(), ConnectError::NoRoute);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn an_abandoned_attempt_has_no_events() {
    let device = device(|_| {});
    let mut pair = Pair::new(&device, address());
    let given_up = pair.client.connect(pair.at, &[1]);
    pair.client.cm.cancel(given_up);
    let kept = pair.client.connect(pair.at, &[2]);
    // The server may have received the first request.
    let _ours = loop {
        let (request, _, said) = pair.request();
        if said[0] == 2 {
            break pair.server.accept(request, &[]);
        }
    };
    let (id, outcome) = pair.client.outcome();
    assert_eq!(id, kept);
    assert!(outcome.is_ok());
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn an_attempt_whose_queues_are_gone_ends() {
    let device = device(|_| {});
    let mut pair = Pair::new(&device, address());
    pair.client.connect(pair.at, &[]);
    let queues = device.open_queues(&ATTR).expect("queues");
    drop(std::mem::replace(&mut pair.client.queues, queues));
    let reason = until("the outcome", || {
        pair.turn();
        if let Some((request, ..)) = pair.server.requests.pop_front() {
            drop(pair.server.accept(request, &[]));
        }
        pair.client.outcomes.pop_front()
    });
    assert_eq!(reason.1.err(), Some(ConnectError::Lost));
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn many_connections_are_made_at_one_time() {
    const COUNT: u8 = 64;
    // None is to be asked for twice, however slow the machine is.
    let device = device(|raw| raw.verbs.answer_timeout = "60s".into());
    let mut pair = Pair::new(&device, address());
    let mut asked: Vec<_> =
        (0..COUNT).map(|which| pair.client.connect(pair.at, &[which])).collect();
    let (mut accepted, mut connected) = (Vec::new(), Vec::new());
    while !asked.is_empty() {
        pair.turn();
        if let Some((request, _, said)) = pair.server.requests.pop_front() {
            accepted.push((said[0], pair.server.accept(request, &[])));
        }
        if let Some((id, outcome)) = pair.client.outcomes.pop_front() {
            let at = asked.iter().position(|asked| *asked == id).expect("each has one outcome");
            asked.swap_remove(at);
            connected.push(outcome.expect("there is room for all").0);
        }
    }
    let mut said: Vec<u8> = accepted.iter().map(|(said, _)| *said).collect();
    said.sort_unstable();
    assert_eq!(said, (0..COUNT).collect::<Vec<_>>(), "each once");
    for ((_, ours), theirs) in accepted.into_iter().zip(connected) {
        pair.server.attach(ours);
        pair.client.attach(theirs);
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn one_connection_more_than_the_queues_have_is_rejected() {
    let device = device(|_| {});
    let mut pair = Pair::new(&device, address());
    pair.server.queues = device.open_queues(&QueueAttr { qp_max: 1, ..ATTR }).expect("queues");
    let _first = pair.connect();
    pair.client.connect(pair.at, &[]);
    let (request, ..) = pair.request();
    let handle = pair.server.queues.handle();
    let refused = pair.server.cm.accept(request, &handle, &QUIET).expect_err("it is full");
    assert!(matches!(refused, SetupError::Limit { .. }), "{refused}");
    assert_eq!(pair.client.refused(), ConnectError::Rejected(Rejection::Busy));
    let events = device.events();
    assert_eq!((events.failures, events.last_failure), (1, Some(refused.to_string())));
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn each_end_learns_that_the_other_has_left() {
    let device = device(|_| {});
    for server_leaves in [true, false] {
        let mut pair = Pair::new(&device, address());
        let [ours, theirs] = pair.connect();
        let (ours, theirs) = (pair.server.attach(ours), pair.client.attach(theirs));
        let qp_num = if server_leaves {
            pair.server.queues.disconnect(ours.qp);
            theirs.qp_num
        } else {
            pair.client.queues.disconnect(theirs.qp);
            ours.qp_num
        };
        assert_eq!(pair.event(!server_leaves), QueueEvent::Disconnected { qp_num });
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_dropped_endpoint_ends_the_connection_at_the_other_end() {
    let device = device(|_| {});
    let mut pair = Pair::new(&device, address());
    let [ours, theirs] = pair.connect();
    let qp_num = pair.client.attach(theirs).qp_num;
    drop(ours);
    assert_eq!(pair.event(false), QueueEvent::Disconnected { qp_num });
}

/// The network interface of the device under test, if tests may switch it off and remove the
/// device.
fn expendable() -> String {
    let interface = std::env::var("RPCRDMA_TEST_EXPENDABLE");
    interface
        .expect("RPCRDMA_TEST_EXPENDABLE is the interface of a device that no other program needs")
}

/// Runs a command of iproute2.
fn run(program: &str, arguments: &[&str]) -> std::process::Child {
    std::process::Command::new(program).args(arguments).spawn().expect("iproute2 is there")
}

#[test]
#[ignore = "switches an RDMA device off: tests/run vm"]
fn trouble_a_port_that_goes_down_and_up_is_reported_and_ends_no_connection() {
    let interface = expendable();
    let device = device(|_| {});
    let mut pair = Pair::new(&device, address());
    let [ours, theirs] = pair.connect();
    let (ours, theirs) = (pair.server.attach(ours), pair.client.attach(theirs));
    for (state, event) in [("down", QueueEvent::PortDown), ("up", QueueEvent::PortUp)] {
        let ended = run("ip", &["link", "set", &interface, state]).wait().expect("it ends");
        assert!(ended.success(), "the interface goes {state}");
        // It is reported to all queues, and nothing else is.
        assert_eq!(pair.event(true), event);
        assert_eq!(pair.event(false), event);
    }
    let events = device.events();
    assert_eq!((events.ports_down, events.ports_up, events.devices_lost), (1, 1, 0));
    pair.server.queues.disconnect(ours.qp);
    assert_eq!(pair.event(false), QueueEvent::Disconnected { qp_num: theirs.qp_num });
}

#[test]
#[ignore = "removes an RDMA device: tests/run vm"]
fn trouble_a_device_that_is_removed_is_lost_for_all() {
    let _ = expendable();
    let device = device(|_| {});
    let name = device.caps().name.clone();
    let mut pair = Pair::new(&device, address());
    let [ours, theirs] = pair.connect();
    pair.server.attach(ours);
    pair.client.attach(theirs);
    // It may wait until this process has closed the device.
    let mut removal = run("rdma", &["link", "delete", &name]);
    for of_server in [true, false] {
        // The kernel takes one end after the other away, and each takes leave of its peer.
        let mut event = pair.event(of_server);
        if matches!(event, QueueEvent::Disconnected { .. }) {
            event = pair.event(of_server);
        }
        assert_eq!(event, QueueEvent::DeviceLost);
    }
    assert_eq!(device.events().devices_lost, 1, "reported once, however many ends there were");
    let handle = pair.client.queues.handle();
    let refused = pair.client.cm.connect(pair.at.into(), &handle, &QUIET).expect_err("it is gone");
    let lost = matches!(refused, SetupError::Connect { reason: ConnectError::Lost, .. });
    assert!(lost, "{refused}");
    drop((pair, handle));
    let _ = removal.try_wait();
}
