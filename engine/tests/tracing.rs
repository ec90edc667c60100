//! What a subscriber of `tracing` receives: events of connections, versions, ends and panics, and
//! none of calls.

use std::fmt::{Debug, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::provider::{ConnectError, QueueEvent};
use rpcrdma::{
    Address, Admission, Answer, Call, Client, Clock, ConnectRequest, ConnectionId, Engine, Fabric,
    Handler, Reply, Shard,
};
use rpcrdma_config::{Config, Raw};
use rpcrdma_testing::fault::{FaultLog, FaultPlan, FaultyProvider};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Writes down every event as `LEVEL message field=value ...`.
#[derive(Default, Clone)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    /// What was recorded since the last time.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no panic under the lock"))
    }

    /// The texts of the events, without level and fields.
    fn messages(&self) -> Vec<String> {
        let message = |line: String| {
            let end = line.find(" |").unwrap_or(line.len());
            line[line.find(' ').expect("a level") + 1..end].to_owned()
        };
        self.take().into_iter().map(message).collect()
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rpcrdma"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        let mut line = Line { level, message: String::new(), fields: String::new() };
        event.record(&mut line);
        let text = format!("{} {} |{}", line.level, line.message, line.fields);
        self.0.lock().expect("no panic under the lock").push(text);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line {
    level: Level,
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => write!(self.fields, " {name}={value:?}").expect("a string"),
        }
    }
}

/// Adds one to a number; panics at 13; accepts every connection, or none.
struct Server {
    accepts: bool,
}

impl Handler for Server {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let number = call.reader().u32().expect("a number");
        assert_ne!(number, 13, "an unlucky number");
        reply.payload().put_u32(number + 1);
        reply.send()
    }

    fn admit(&mut self, _: &ConnectRequest<'_>) -> Admission {
        if self.accepts { Admission::Accept } else { Admission::RefuseWith(7) }
    }
}

/// Reports its own loss when a test injects it.
type Device = FaultyProvider<Fabric>;

/// A server and a client, on this thread.
struct Scene {
    client: Client<Device>,
    server: Shard<Device, Server>,
    control: Control<Device>,
    clients_control: Control<Device>,
    at: Address,
    clock: Clock,
    /// Of the device of the server.
    log: Arc<FaultLog>,
    _engines: [Engine<Device>; 2],
}

impl Scene {
    fn new(accepts: bool, serve: &Raw) -> Scene {
        let fabric = Fabric::new();
        let device = |fabric| FaultyProvider::new(fabric, FaultPlan::default());
        let served = device(fabric.clone());
        let log = served.hooks().log();
        let made = Engine::without_threads(served, checked(serve));
        let (engine, mut control) = made.expect("an engine");
        let server = engine.shard(Server { accepts }).expect("a server");
        let at = "127.0.0.1:0".parse::<Address>().expect("an address");
        let at = control.listen(at).expect("a port");
        let made = Engine::without_threads(device(fabric), checked(&small()));
        let (clients, clients_control) = made.expect("an engine");
        let client = clients.client().expect("a client");
        let _engines = [engine, clients];
        Scene { client, server, control, clients_control, at, clock: Clock::new(), log, _engines }
    }

    fn step(&mut self) {
        self.control.step(Duration::ZERO);
        self.clients_control.step(Duration::ZERO);
        let now = self.clock.now();
        self.server.poll_once(now);
        self.client.poll(now, |_| ());
    }

    fn connect(&mut self) -> Result<ConnectionId, ConnectError> {
        let id = self.client.begin_connect(self.at).expect("room");
        loop {
            self.step();
            if let Some(outcome) = self.client.connected(id) {
                return outcome;
            }
        }
    }

    fn call(&mut self, peer: ConnectionId, number: u32) {
        let mut call = self.client.call(peer, 0).expect("room for a call");
        call.payload().put_u32(number);
        call.submit().expect("a call");
    }
}

/// A configuration of little memory.
fn small() -> Raw {
    let mut raw = Raw::default();
    raw.engine.provider = "fabric".into();
    raw.memory.pages = "4K".into();
    raw.connections.max = 2;
    raw
}

fn checked(raw: &Raw) -> Config {
    Config::try_from(raw.clone()).expect("a configuration")
}

/// Runs with a subscriber of its own.
fn recorded(run: impl FnOnce(&Recorder)) {
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || run(&recorder));
}

#[test]
fn a_connection_is_reported_from_the_request_to_the_close() {
    recorded(|recorder| {
        let mut scene = Scene::new(true, &small());
        let set_up = ["engine made", "shard started", "listening", "engine made", "shard started"];
        assert_eq!(recorder.messages(), set_up);

        let peer = scene.connect().expect("a connection");
        let events = recorder.take();
        let at = format!("to={} ", scene.at);
        let has = |words: &[&str]| {
            let is_it = |line: &&String| words.iter().all(|word| line.contains(word));
            assert!(events.iter().any(|line| is_it(&line)), "{words:?} in {events:#?}");
        };
        has(&["INFO connecting", at.as_str(), "again=false"]);
        has(&["DEBUG connection requested", "from="]);
        has(&["INFO connection accepted", "from="]);
        has(&["DEBUG version begun", "version=Two"]);
        has(&["INFO connected", "requested=true", "version: Some(Two)", "recv_size: "]);
        has(&["INFO connected", "requested=false", "version: Some(Two)"]);
        assert_eq!(events.len(), 6, "{events:#?}");

        let handle = scene.client.handle().clone();
        assert!(handle.close(peer));
        while handle.connections() + scene.server.handle().connections() > 0 {
            scene.step();
        }
        let events = recorder.take();
        let shard = handle.shard();
        assert_eq!(events.len(), 2, "{events:#?}");
        assert!(events[0].starts_with("INFO connection closed"), "{events:#?}");
        assert!(events[0].contains(&format!("shard={shard} ")), "{events:#?}");
        assert!(events[0].ends_with("reason=closed by this program"), "{events:#?}");
        assert!(events[1].ends_with("reason=the peer disconnected"), "{events:#?}");

        scene.server.handle().stop();
        scene.step();
        assert_eq!(recorder.messages(), ["listener closed", "shard stopping"]);
        drop(scene);
        assert_eq!(recorder.messages(), ["shard ended", "shard ended"]);
    });
}

#[test]
fn a_rejection_states_its_reason_on_both_sides() {
    recorded(|recorder| {
        let mut scene = Scene::new(false, &small());
        recorder.take();
        scene.connect().expect_err("the handler refuses");
        let events = recorder.take();
        let is_there = |words: [&str; 2]| {
            let has = |line: &String| words.iter().all(|word| line.contains(word));
            assert!(events.iter().any(has), "{words:?} in {events:#?}");
        };
        is_there(["WARN connection rejected", "code 7"]);
        is_there(["WARN connect failed", "code 7"]);
    });
}

#[test]
fn a_fallback_to_version_one_is_reported_with_its_reason() {
    recorded(|recorder| {
        let mut serve = small();
        serve.protocol.version = "one".into();
        let mut scene = Scene::new(true, &serve);
        scene.connect().expect("a connection");
        let events = recorder.take();
        let fallback = events.iter().find(|line| line.contains("fallback to version one"));
        assert!(fallback.is_some_and(|line| line.ends_with("ERR_VERS")), "{events:#?}");
        assert!(events.iter().any(|line| line.contains("version: Some(One)")), "{events:#?}");
    });
}

#[test]
fn ports_and_the_loss_of_the_device_are_reported() {
    recorded(|recorder| {
        let mut scene = Scene::new(true, &small());
        scene.connect().expect("a connection");
        recorder.take();
        for event in [QueueEvent::PortDown, QueueEvent::PortUp, QueueEvent::DeviceLost] {
            scene.log.inject_event(0, event);
        }
        while scene.client.handle().connections() > 0 {
            scene.step();
        }
        let events = recorder.take();
        let shard = scene.server.handle().shard();
        let expected = [
            format!("WARN port down | shard={shard}"),
            format!("INFO port up | shard={shard}"),
            format!(
                "ERROR device lost | shard={shard} reason=the device was removed or has failed"
            ),
        ];
        assert_eq!(events[..3], expected, "{events:#?}");
        let is_end = |line: &String| {
            line.starts_with("INFO connection closed")
                && line.ends_with("reason=the device was removed or has failed")
        };
        assert!(events.iter().any(is_end), "{events:#?}");
    });
}

#[test]
fn a_panic_of_a_handler_is_reported() {
    recorded(|recorder| {
        let mut scene = Scene::new(true, &small());
        let peer = scene.connect().expect("a connection");
        scene.call(peer, 13);
        recorder.take();
        let stepping = AssertUnwindSafe(|| (0..1000).for_each(|_| scene.step()));
        catch_unwind(stepping).expect_err("the handler panics");
        let events = recorder.take();
        assert!(events.iter().any(|line| line.starts_with("ERROR panicked")), "{events:#?}");
    });
}

#[test]
fn a_million_calls_report_nothing() {
    recorded(|recorder| {
        let mut scene = Scene::new(true, &small());
        let peer = scene.connect().expect("a connection");
        recorder.take();
        let (mut sent, mut done) = (0_u32, 0_u32);
        while done < CALLS {
            while sent < CALLS && sent - done < WINDOW {
                scene.call(peer, 1 << 20);
                sent += 1;
            }
            let now = scene.clock.now();
            scene.server.poll_once(now);
            scene.client.poll(now, |reply| {
                assert!(reply.result().is_ok());
                done += 1;
            });
        }
        assert_eq!(scene.server.handle().stats().calls_received, u64::from(CALLS));
        assert_eq!(recorder.take(), Vec::<String>::new());
    });
}

/// Calls in flight: fewer than the credits.
const WINDOW: u32 = 8;
const CALLS: u32 = 1_000_000;
