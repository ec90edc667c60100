//! What each feature adds is there, and works, with this feature alone.

use std::time::Duration;

use rpcrdma::{Address, Answer, Call, Config, Engine, Fabric, Handler, Provider, Raw, Reply};

/// Answers a number with the next one.
struct Increment;

impl Handler for Increment {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let Ok(number) = call.reader().u32() else { return reply.refuse() };
        reply.payload().put_u32(number + 1);
        reply.send()
    }
}

fn config(provider: &str) -> Config {
    let mut raw = Raw::default();
    raw.engine.provider = provider.into();
    raw.engine.idle.policy = "block".into();
    raw.connections.max = 4;
    Config::try_from(raw).expect("a configuration")
}

/// Calls a server over a device, and returns the engine with the server on it.
fn calls_over<P: Provider>(device: P, provider: &str, at: &str) -> (Engine<P>, Address) {
    let mut engine = Engine::new(device, config(provider)).expect("an engine");
    engine.start(|_shard| Increment).expect("a shard");
    let at = engine.listen(at.parse::<Address>().expect("an address")).expect("a free address");
    let mut client = engine.client().expect("a client");
    let peer = client.connect(at).expect("a connection");
    let mut call = client.call(peer, 1).expect("room for a call");
    call.payload().put_u32(41);
    call.submit().expect("a call");
    let mut answer = None;
    while answer.is_none() {
        client.poll_for(Duration::from_secs(1), |done| {
            answer = Some(done.result().map(|reply| reply.reader().u32()));
        });
    }
    assert_eq!(answer, Some(Ok(Ok(42))));
    (engine, at)
}

#[test]
fn the_fabric_is_there_without_any_feature() {
    calls_over(Fabric::new(), "fabric", "127.0.0.1:0");
}

#[cfg(feature = "shm")]
#[test]
fn shm_calls_over_shared_memory() {
    let device = rpcrdma::Shm::new().expect("a thread");
    calls_over(device, "shm", &format!("shm:@rpcrdma-features-{}", std::process::id()));
}

#[cfg(feature = "tcp")]
#[test]
fn tcp_calls_over_a_connection() {
    let device = rpcrdma::Tcp::new().expect("the default options are allowed");
    calls_over(device, "tcp", "127.0.0.1:0");
}

#[test]
fn an_address_chooses_a_provider_of_this_build() {
    use rpcrdma::{ProviderKind, provider_for};

    let at = |text: &str| text.parse::<Address>().ok();
    assert_eq!(provider_for(&config("auto"), None), ProviderKind::Fabric);
    assert_eq!(provider_for(&config("auto"), at("shm:@a")), ProviderKind::Shm);
    let kind = provider_for(&config("auto"), at("127.0.0.1:1"));
    match (cfg!(feature = "tcp"), cfg!(feature = "verbs")) {
        (true, true) => assert!(matches!(kind, ProviderKind::Tcp | ProviderKind::Verbs)),
        (false, true) => assert_eq!(kind, ProviderKind::Verbs),
        (_, false) => assert_eq!(kind, ProviderKind::Tcp),
    }
}

#[cfg(feature = "verbs")]
#[test]
fn verbs_opens_a_device_or_says_why_not() {
    use rpcrdma::verbs::{Verbs, VerbsOptions, missing_libraries};

    let options = VerbsOptions { device: Some("absent0".into()), ..Default::default() };
    let why = Verbs::open(&options).map(drop).expect_err("no such device").to_string();
    match missing_libraries().first() {
        Some((library, _)) => assert!(why.contains(library), "{why}"),
        None => assert!(why.contains("absent0"), "{why}"),
    }
}

#[cfg(feature = "async")]
#[test]
fn async_awaits_a_call() {
    use rpcrdma::future::{AsyncClient, AsyncOptions};
    use rpcrdma::{OwnedCall, Session};

    let (engine, at) = calls_over(Fabric::new(), "fabric", "127.0.0.1:0");
    let session = Session::new(engine.client().expect("a client"), [at], &Default::default());
    let client = AsyncClient::spawn(session.expect("a session"), &AsyncOptions::default());
    let mut call = OwnedCall::new();
    call.put_u32(1);
    let answer = futures::executor::block_on(client.expect("a thread").call(call));
    assert_eq!(answer.expect("an answer").reader().u32(), Ok(2));
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_count_the_call() {
    let (engine, _) = calls_over(Fabric::new(), "fabric", "127.0.0.1:0");
    let text = engine.metrics().scrape();
    let counts = text.lines().filter(|line| line.starts_with("rpcrdma_calls_received_total{"));
    assert!(counts.filter(|line| line.ends_with(" 1")).count() == 1, "{text}");
}

#[cfg(feature = "tracing")]
#[test]
fn tracing_reports_the_connection() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    static EVENTS: AtomicUsize = AtomicUsize::new(0);
    struct Count;

    impl Subscriber for Count {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "rpcrdma"
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn event(&self, _: &Event<'_>) {
            EVENTS.fetch_add(1, Ordering::Relaxed);
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    tracing::subscriber::with_default(Count, || {
        calls_over(Fabric::new(), "fabric", "127.0.0.1:0");
    });
    assert!(EVENTS.load(Ordering::Relaxed) > 0, "the client of this thread has connected");
}

#[cfg(feature = "storage")]
mod storage {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::{AsFd, AsRawFd};

    use rpcrdma::provider::readable;
    use rpcrdma::storage::{
        Caching, FileId, Operation, Pieces, Storage, StorageOptions, SyncLevel,
    };
    use rpcrdma::{Armed, RefuseCalls, Shard, Turn};

    use super::*;

    /// Does one operation, and keeps what it has read.
    struct One {
        storage: Storage<()>,
        next: Option<Operation>,
        done: Option<Vec<u8>>,
    }

    impl Handler for One {
        fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
            RefuseCalls.on_call(call, reply)
        }

        fn on_turn(&mut self, turn: &mut Turn<'_>) {
            while let Some(done) = self.storage.completed() {
                let bytes = done.result.expect("it succeeds").bytes() as usize;
                let pieces = done.operation.into_pieces();
                self.done = Some(pieces.first().map_or(Vec::new(), |it| it[..bytes].to_vec()));
            }
            if let Some(operation) = self.next.take() {
                self.storage.submit(operation, ()).expect("room");
            }
            turn.drive(&mut self.storage);
        }
    }

    /// The time of each turn: nothing is due in it.
    const NOW: u64 = 1;

    fn shard(
        engine: &Engine<Fabric>,
        ring: bool,
        file: impl Into<std::os::fd::OwnedFd>,
    ) -> (Shard<Fabric, One>, FileId) {
        let options = StorageOptions { ring, threads: 1, ..Default::default() };
        let mut storage = Storage::new(&options).expect("a ring or a thread");
        assert_eq!(storage.has_ring(), ring);
        let file = storage.add(file, Caching::Buffered).expect("room");
        (engine.shard(One { storage, next: None, done: None }).expect("a shard"), file)
    }

    /// Polls until the shard may sleep.
    fn run_idle(shard: &mut Shard<Fabric, One>) {
        while !matches!(shard.arm(NOW), Armed::AtMost(_)) {
            shard.poll_once(NOW);
        }
    }

    fn is_awake(shard: &Shard<Fabric, One>, most: Duration) -> bool {
        readable([shard.as_fd().as_raw_fd()], most).expect("it waits") == [true]
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn storage_ends_the_sleep_of_its_shard() {
        let engine = Engine::new(Fabric::new(), config("fabric")).expect("an engine");
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let (mut shard, file) = shard(&engine, true, reader);
        let mut into = shard.turn(NOW).buffer().expect("a buffer is free");
        into.truncate(4);
        shard.handler().next =
            Some(Operation::Read { file, offset: 0, into: Pieces::from_iter([into]) });
        assert!(shard.poll_once(NOW), "what was begun is work");
        assert!(shard.handler().storage.notes().is_empty(), "it is joined, with the memory");
        run_idle(&mut shard);
        assert!(!is_awake(&shard, Duration::ZERO), "the pipe is empty");
        writer.write_all(b"here").expect("the pipe is open");
        assert!(is_awake(&shard, LONG));
        while shard.handler().done.is_none() {
            shard.poll_once(NOW);
        }
        assert_eq!(shard.handler().done.as_deref(), Some(&b"here"[..]));
        run_idle(&mut shard);
        assert!(!is_awake(&shard, Duration::ZERO), "nothing is left");
    }

    #[test]
    fn storage_by_threads_ends_the_sleep_of_its_shard() {
        let engine = Engine::new(Fabric::new(), config("fabric")).expect("an engine");
        let (mut shard, file) = shard(&engine, false, File::open(".").expect("a folder"));
        run_idle(&mut shard);
        shard.handler().next = Some(Operation::Sync { file, level: SyncLevel::All });
        while shard.handler().done.is_none() {
            shard.poll_once(NOW);
            if shard.handler().done.is_none() && shard.arm(NOW) != Armed::Ready {
                assert!(is_awake(&shard, LONG));
            }
        }
    }
}
