//! What a completion states of the execution of its call: every error, at every point of a call's
//! life in a session. The servers are played, so that what arrived is known.
//!
//! ```text
//!   Unconnected ─▶ Uncredited ─▶ Sent ─▶ Lost (to be sent again) ─▶ SentAgain
//!        └─────────────┴───────────┴──────────┴─────────────────────┴── each error that can come
//! ```

use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::{
    Address, Engine, Execution, Fabric, Resend, Session, SessionCallId, SessionError,
    SessionOptions, Want,
};
use rpcrdma_tests::raw_peer::{RawPeer, message, optional, properties, transmission};
use rpcrdma_tests::setup::{checked, small};
use rpcrdma_xdr::{Array, Body, Header, Optional, RdmaError, XmtResp};

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    /// No connection has been made.
    Unconnected,
    /// It waits for a credit.
    Uncredited,
    /// It is at the first server.
    Sent,
    /// It was there, the connection is lost, and there is no other.
    Lost,
    /// It was there, and is at the second server.
    SentAgain,
}

/// What ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Deadline,
    Cancelled,
    Closed,
    Stopped,
    ConnectionLost,
    /// The server states that it cannot read the call, or cannot make its reply.
    BadHeader,
    /// It does not speak the version.
    Version,
    /// It does not support the form.
    Form,
    /// Its reply is refused for its items, and says that the call was denied.
    BadReply,
}

const POINTS: [Point; 5] =
    [Point::Unconnected, Point::Uncredited, Point::Sent, Point::Lost, Point::SentAgain];
/// Those that need no server.
const OWN: [End; 4] = [End::Deadline, End::Cancelled, End::Closed, End::Stopped];
const ALL: [End; 9] = [
    End::Deadline,
    End::Cancelled,
    End::Closed,
    End::Stopped,
    End::ConnectionLost,
    End::BadHeader,
    End::Version,
    End::Form,
    End::BadReply,
];

/// The number of the call, and of one that takes the only credit.
const CALL: u32 = 0x00c0_ffee;
const FILLER: u32 = 0x0f11_1e12;
const MS: u64 = 1_000_000;

/// A session, and its servers, which are played.
struct Scene {
    now: u64,
    session: Session<Fabric>,
    calling: (Control<Fabric>, Engine<Fabric>),
    servers: Vec<RawPeer<Fabric>>,
    credits: u32,
    /// The call at each server: which one it was, and the xid.
    arrived: Vec<(usize, u32)>,
    /// The calls that were made.
    made: Vec<SessionCallId>,
    done: Vec<(u64, Result<(), SessionError>)>,
}

impl Scene {
    fn new(credits: u32) -> Scene {
        let fabric = Fabric::new();
        let mut raw = small();
        raw.connections.max = 4;
        let (engine, control) =
            Engine::without_threads(fabric.clone(), checked(&raw)).expect("an engine");
        let mut servers = Vec::new();
        let mut addresses = Vec::new();
        for at in 0..2 {
            let address: Address = format!("127.0.0.1:{}", 3000 + at).parse().expect("an address");
            let mut server = RawPeer::new(&fabric);
            addresses.push(server.listen_at(address));
            servers.push(server);
        }
        let client = engine.client().expect("a client");
        let options = SessionOptions::default();
        let session = Session::seeded(client, addresses, &options, 5).expect("a session");
        Scene {
            now: MS,
            session,
            calling: (control, engine),
            servers,
            credits,
            arrived: Vec::new(),
            made: Vec::new(),
            done: Vec::new(),
        }
    }

    fn step(&mut self) {
        self.now += 10_000;
        self.calling.0.step(Duration::ZERO);
        for at in 0..self.servers.len() {
            let _ = self.servers[at].turn();
            while let Some(bytes) = self.servers[at].recv() {
                self.receive(at, &bytes);
            }
        }
        let Scene { session, done, now, .. } = self;
        session.poll(*now, |completion| {
            done.push((completion.cookie(), completion.result().map(drop)));
        });
    }

    fn receive(&mut self, at: usize, bytes: &[u8]) {
        let (header, _) = Header::decode(bytes).expect("a header");
        // The second server comes after the first: both are there from the beginning.
        let which = 2 - self.servers.len() + at;
        match header.body {
            Body::Optional(Optional::ConnProp(_)) => {
                self.servers[at].send(&properties(header.xid, self.credits));
            }
            _ if bytes.windows(4).any(|word| word == CALL.to_be_bytes()) => {
                self.arrived.push((which, header.xid));
            }
            _ => {}
        }
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Scene) -> bool) {
        for _ in 0..20_000 {
            if is_so(self) {
                return;
            }
            self.step();
        }
        panic!("a test waits no longer: {what}; {:?} {:?}", self.arrived, self.done);
    }

    fn call(&mut self, number: u32, resend: Resend, deadline: Option<u64>) {
        let mut call = self.session.call(number.into());
        call.put_u32(number);
        call.want(Want { len_min: 0, len_max: 20_000 });
        call.resend(resend);
        if let Some(at) = deadline {
            call.deadline(at);
        }
        self.made.push(call.submit().expect("there is room"));
    }

    /// The server that has the call answers it.
    fn answer(&mut self, bytes: impl Fn(u32) -> Vec<u8>) {
        let (_, xid) = *self.arrived.last().expect("it is there");
        assert!(self.servers[0].send(&bytes(xid)));
    }

    fn lose_first(&mut self) {
        drop(self.servers.remove(0));
    }
}

fn refused(xid: u32, error: RdmaError) -> Vec<u8> {
    transmission(&Header { xid, vers: 2, credit: 16, body: Body::Error(error) }, &[])
}

/// Brings a call to a point of its life.
fn bring(point: Point, resend: Resend, deadline: Option<u64>) -> Scene {
    let mut scene = Scene::new(if point == Point::Uncredited { 1 } else { 16 });
    if point == Point::Uncredited {
        scene.until("there is a connection", |scene| scene.session.connections() == 1);
        scene.call(FILLER, Resend::Never, None);
        (0..50).for_each(|_| scene.step());
    }
    scene.call(CALL, resend, deadline);
    match point {
        Point::Unconnected => {}
        Point::Uncredited => (0..50).for_each(|_| scene.step()),
        Point::Sent => scene.until("it is there", |scene| scene.arrived.len() == 1),
        Point::Lost => {
            scene.until("it is there", |scene| scene.arrived.len() == 1);
            scene.lose_first();
            scene.lose_first();
            scene.until("it is lost", |scene| scene.session.connections() == 0);
        }
        Point::SentAgain => {
            scene.until("it is there", |scene| scene.arrived.len() == 1);
            scene.lose_first();
            scene.until("it is there again", |scene| scene.arrived.len() == 2);
        }
    }
    scene
}

/// Ends the call, and returns its error.
fn end(scene: &mut Scene, end: End) -> SessionError {
    let call = *scene.made.last().expect("it was made");
    match end {
        End::Deadline => scene.now += 1_000 * MS,
        End::Cancelled => assert!(scene.session.cancel(call)),
        End::Closed => scene.session.close(),
        End::Stopped => scene.session.handle().stop(),
        End::ConnectionLost => scene.lose_first(),
        End::BadHeader => scene.answer(|xid| refused(xid, RdmaError::BadHeader)),
        End::Version => scene.answer(|xid| refused(xid, RdmaError::Vers { low: 1, high: 1 })),
        End::Form => scene.answer(|xid| refused(xid, RdmaError::InvalOption)),
        End::BadReply => scene.answer(|xid| {
            // MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK.
            let denied: Vec<u8> =
                [xid, 1, 1, 1, 5, 0].into_iter().flat_map(u32::to_be_bytes).collect();
            let reply = XmtResp { dp: Array::EMPTY, count: 1, pslen: 24 };
            optional(xid, Optional::XmtResp(reply), &denied)
        }),
    }
    let is_over = |scene: &Scene| scene.done.iter().any(|(cookie, _)| *cookie == u64::from(CALL));
    // A session that is closed waits for calls under way.
    for _ in 0..200_000 {
        if is_over(scene) {
            break;
        }
        scene.now += MS / 10;
        scene.step();
    }
    let ends: Vec<_> = scene.done.iter().filter(|(at, _)| *at == u64::from(CALL)).collect();
    let [(_, Err(error))] = ends[..] else { panic!("one error, not {ends:?}") };
    *error
}

#[test]
fn an_error_states_of_execution_what_follows_from_what_was_sent() {
    for point in POINTS {
        let is_there = matches!(point, Point::Sent | Point::SentAgain);
        for ending in if is_there { &ALL[..] } else { &OWN[..] } {
            for resend in [Resend::Never, Resend::SameXid] {
                let is_again = matches!(point, Point::Lost | Point::SentAgain);
                let returns = matches!(ending, End::ConnectionLost)
                    || (*ending == End::Form && point == Point::Sent);
                if (is_again && resend == Resend::Never) || (returns && resend == Resend::SameXid) {
                    continue;
                }
                let deadline = (*ending == End::Deadline).then_some(900 * MS);
                let mut scene = bring(point, resend, deadline);
                let error = end(&mut scene, *ending);
                let is_refused = matches!(ending, End::Version | End::Form);
                let expected = match scene.arrived.len() {
                    0 => Execution::NotExecuted,
                    1 if is_refused => Execution::NotExecuted,
                    _ => Execution::Unknown,
                };
                let which = format!("{point:?}, {ending:?}, {resend:?}: {error}");
                assert_eq!(error.execution(), expected, "{which}");
                assert!(error.to_string().ends_with(&expected.to_string()), "{which}");
            }
        }
    }
}

#[test]
fn a_call_whose_form_is_refused_is_sent_again_with_another_xid() {
    // Each transmission of the first attempt may be answered by an error of its own.
    for is_late in [false, true] {
        let mut scene = bring(Point::Sent, Resend::SameXid, None);
        let (first, old) = scene.arrived[0];
        scene.answer(|xid| refused(xid, RdmaError::InvalOption));
        if !is_late {
            scene.answer(|xid| refused(xid, RdmaError::InvalOption));
        }
        scene.until("it is there again", |scene| scene.arrived.len() == 2);
        let (second, new) = scene.arrived[1];
        assert_eq!((first, second), (0, 0), "the connection stays");
        assert_ne!(old, new);
        if is_late {
            assert!(scene.servers[0].send(&refused(old, RdmaError::InvalOption)));
            (0..50).for_each(|_| scene.step());
        }
        assert_eq!(scene.done, [], "the error is of the first attempt");
        scene.answer(|xid| message(xid, 1, 16, &[0; 16]));
        scene.until("it is answered", |scene| !scene.done.is_empty());
        assert_eq!(scene.done, [(CALL.into(), Ok(()))]);
    }
}
