//! The engine does what is configured, or its start fails with an error that names the key; the
//! choices of the system can be read after the start.

use rpcrdma::fabric::FabricOptions;
use rpcrdma::{CallRefused, Engine, Fabric, Provider, SetupError, ShardResources, Shm};
use rpcrdma_config::{Config, Exposure, ProviderKind, Raw};
use rpcrdma_mempool::PageSize;
use rpcrdma_proto::SendError;
use rpcrdma_suite::scenarios::explicit::plan;
use rpcrdma_suite::script::{Part, Script};
use rpcrdma_suite::setup::{checked, small};
use rpcrdma_suite::world::World;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// The key that a start fails with, and the whole message.
fn unmet<P: Provider>(provider: P, raw: &Raw) -> (&'static str, String) {
    let begun = Engine::without_threads(provider, checked(raw));
    let begun = begun.and_then(|(engine, control)| engine.client().map(|_| drop(control)));
    match begun.expect_err("starting fails") {
        error @ SetupError::Unmet { key, .. } => (key, error.to_string()),
        other => panic!("{other}"),
    }
}

fn with(change: impl FnOnce(&mut Raw)) -> Raw {
    let mut raw = small();
    change(&mut raw);
    raw
}

#[test]
fn an_engine_starts_only_with_the_configured_provider() {
    let raw = with(|raw| raw.engine.provider = "verbs".into());
    let (key, message) = unmet(Fabric::new(), &raw);
    assert_eq!(key, "engine.provider");
    assert!(message.starts_with("engine.provider = \"verbs\": "), "{message}");
    let (key, _) = unmet(Shm::new().expect("shared memory"), &raw);
    assert_eq!(key, "engine.provider");
}

#[test]
fn an_engine_starts_with_any_provider_if_none_is_configured() {
    let open = checked(&small());
    assert_eq!(open.engine().provider, ProviderKind::Auto);
    let shm = Shm::from_config(&open).expect("shared memory");
    let (engine, _control) = Engine::without_threads(shm, open.clone()).expect("as it is");
    engine.client().expect("a client");
    let (engine, _control) = Engine::without_threads(Fabric::new(), open).expect("as it is");
    engine.client().expect("a client");
}

#[test]
fn a_fabric_must_match_the_configuration() {
    let options = FabricOptions { delay_ns: 2_000, slots: 64, ..FabricOptions::default() };
    let own = Fabric::with_options(options).expect("a fabric");
    let delay = with(|raw| raw.fabric.delay = "5us".into());
    for (fabric, raw, expected) in [
        (Fabric::new(), &delay, "fabric.delay = \"5us\": the fabric was made with 0"),
        (own.clone(), &delay, "fabric.delay = \"5us\": the fabric was made with 2000"),
        (own.clone(), &small(), "fabric.delay = \"0us\": the fabric was made with 2000"),
        (
            own.clone(),
            &with(|raw| raw.fabric.delay = "2us".into()),
            "fabric.ring_slots = 256: the fabric was made with 64",
        ),
    ] {
        let (_, message) = unmet(fabric, raw);
        assert!(message.starts_with(expected), "{message}");
        assert!(message.contains("Fabric::from_config"), "{message}");
    }
    let same = with(|raw| (raw.fabric.delay, raw.fabric.ring_slots) = ("2us".into(), 64));
    let (engine, _control) = Engine::without_threads(own, checked(&same)).expect("as it is");
    drop(engine);
    for raw in [same, delay] {
        let config = checked(&raw);
        let fabric = Fabric::from_config(&config).expect("a fabric");
        Engine::without_threads(fabric, config).map(drop).expect("as it is configured");
    }
}

/// What starting with this in `memory.lock` comes to.
fn started_with(lock: &str) -> Result<ShardResources, String> {
    let mut raw = small();
    raw.memory.lock = lock.into();
    let fabric = Fabric::new();
    let (engine, _control) =
        Engine::without_threads(fabric.clone(), checked(&raw)).expect("an engine");
    let resources = engine.client().map(|client| client.handle().resources().clone());
    assert_eq!(fabric.in_use().regions, 0, "nothing stays");
    resources.map_err(|error| error.to_string())
}

/// Run in a process of its own: the limit is of a process.
#[test]
#[ignore = "run by the test below"]
fn report_the_result_of_starting_where_little_can_be_locked() {
    let mut ours = capabilities(None).expect("Linux has them");
    for set in [&mut ours.effective, &mut ours.permitted] {
        set.remove(CapabilitySet::IPC_LOCK);
    }
    set_capabilities(None, ours).expect("less is always allowed");
    let limit = Rlimit { current: Some(512 << 10), maximum: getrlimit(Resource::Memlock).maximum };
    setrlimit(Resource::Memlock, limit).expect("less is always allowed");
    for lock in ["false", "try", "true"] {
        match started_with(lock) {
            Ok(resources) => {
                println!("{lock}: locked {}, said {resources}", resources.locked());
            }
            Err(error) => println!("{lock}: {error}"),
        }
    }
}

#[test]
fn memory_is_locked_or_the_start_fails_or_the_amount_is_reported() {
    let own = std::env::current_exe().expect("the name of this program");
    let child = "configured::report_the_result_of_starting_where_little_can_be_locked";
    let output = std::process::Command::new(own)
        .args(["--exact", child, "--ignored", "--nocapture"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let said = |lock: &str| {
        let line = text.lines().find_map(|line| line.split_once(&format!("{lock}: ")));
        line.unwrap_or_else(|| panic!("{text}")).1.to_owned()
    };
    assert!(said("false").starts_with("locked 0, said ") && said("false").contains("none of it"));
    let tried = said("try");
    let locked = tried.strip_prefix("locked ").and_then(|rest| rest.split_once(", said "));
    let (locked, line) = locked.unwrap_or_else(|| panic!("{tried}"));
    let locked: usize = locked.parse().expect("a number");
    assert!((1..=512 << 10).contains(&locked), "the small regions fit the limit: {tried}");
    assert!(line.contains(&format!("{} KiB of it locked", locked >> 10)), "{line}");
    let refused = said("true");
    assert!(refused.starts_with("memory.lock = true: "), "{refused}");
    assert!(refused.contains("memlock") && refused.contains("\"try\""), "{refused}");
}

#[test]
fn memory_is_not_locked_unless_configured() {
    assert_eq!(started_with("false").expect("nothing is asked for").locked(), 0);
}

#[test]
fn pages_are_as_configured_or_the_start_fails_or_smaller_ones_are_permitted() {
    let with_pages = |pages: &str| {
        let mut raw = small();
        raw.memory.pages = pages.into();
        raw.app.bulk.count = 64;
        checked(&raw)
    };
    for (pages, least, strict) in [
        ("1G", PageSize::Huge1G, true),
        ("2M", PageSize::Huge2M, true),
        ("try-1G", PageSize::Huge1G, false),
        ("try-2M", PageSize::Huge2M, false),
        ("transparent", PageSize::Transparent, false),
        ("4K", PageSize::Base4K, false),
    ] {
        let (engine, _control) =
            Engine::without_threads(Fabric::new(), with_pages(pages)).expect("an engine");
        match engine.client() {
            Ok(client) => {
                let resources = client.handle().resources();
                for memory in &resources.memory {
                    assert!(memory.pages >= least, "{pages}: {memory:?}");
                    let is_refused = memory
                        .refused
                        .iter()
                        .any(|why| why.starts_with(&format!("{least} pages refused")));
                    assert!(!(strict && is_refused), "{pages}: {memory:?}");
                }
                let sizes = PageSize::LADDER.map(|pages| resources.bytes_in(pages));
                assert_eq!(sizes.iter().sum::<usize>(), resources.bytes());
            }
            Err(error) => {
                assert!(strict, "{pages}: {error}");
                let error = error.to_string();
                assert!(error.starts_with(&format!("memory.pages = \"{pages}\": ")), "{error}");
                assert!(error.contains("try-"), "{error}");
            }
        }
    }
}

#[test]
fn the_nominal_start_of_each_profile_needs_no_privilege() {
    for (name, _) in rpcrdma_config::PROFILES {
        let mut raw = Config::profile(name).expect("it comes with the engine").raw().clone();
        // Less of it, for the machines that tests run on.
        raw.memory.prefault = false;
        raw.connections.max = raw.connections.max.min(2);
        raw.receive.buffers = "auto".into();
        let config = checked(&raw);
        let fabric = Fabric::from_config(&config).expect("a fabric");
        let (engine, _control) = Engine::without_threads(fabric, config).expect("an engine");
        engine.client().map(drop).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

fn fabric(windows: u32) -> Fabric {
    let options = FabricOptions { windows, ..FabricOptions::default() };
    Fabric::with_options(options).expect("a fabric")
}

#[test]
fn registrations_expose_memory_only_if_configured() {
    for (windows, named, expected) in [
        (64, "auto", Some(Exposure::Windows)),
        (0, "auto", None),
        (0, "registration", Some(Exposure::Registration)),
        (0, "static-insecure", Some(Exposure::StaticInsecure)),
    ] {
        let device = fabric(windows);
        let mut plan = plan("two");
        plan.call.explicit.exposure = named.into();
        plan.is_exact = true;
        // All windows are for the client.
        plan.serve.connections.calls_max = 0;
        let mut world = World::new(&|| device.clone(), &plan);
        let resources = world.clients[0].handle().resources().clone();
        assert_eq!(resources.exposure, expected, "{named}");
        let said = resources.to_string();
        let expected_words = match expected {
            None => "no memory is exposed to peers",
            Some(Exposure::Registration) => "every connection of the device can use",
            Some(Exposure::StaticInsecure) => "EXPOSED FOR GOOD",
            Some(_) => "by 64 windows",
        };
        assert!(said.contains(expected_words), "{said}");
        // What needs no memory of the caller's goes all the same.
        let peer = world.connect(0);
        let small = [Part::Inline(100)];
        world.round(0, peer, &Script::new(1, &small, &small));
        let large = [Part::Inline(9), Part::Bulk(50_000)];
        if expected.is_some() {
            world.round(0, peer, &Script::new(2, &large, &large));
        } else {
            let refused = world.call(0, peer, &Script::new(2, &large, &[])).err();
            let needs_it = |why: CallRefused| match why {
                CallRefused::Protocol(SendError::NeedsExplicitRdma { .. }) => true,
                _ => panic!("{why}"),
            };
            assert!(refused.is_some_and(needs_it), "it was sent");
        }
        world.check_all_returned();
    }
}

#[test]
fn memory_is_not_registered_for_peers_if_nothing_is_exposed() {
    let device = fabric(0);
    for change in [
        |raw: &mut Raw| raw.explicit.enabled = false,
        |raw: &mut Raw| raw.connections.calls_max = 0,
    ] {
        let mut raw = with(change);
        raw.explicit.exposure = "static-insecure".into();
        let (engine, _control) =
            Engine::without_threads(device.clone(), checked(&raw)).expect("an engine");
        let client = engine.client().expect("a client");
        assert_eq!(client.handle().resources().exposure, None);
    }
}

#[test]
fn configured_windows_exist_or_the_start_fails() {
    let raw = |windows: &str| {
        with(|raw| {
            raw.explicit.windows = windows.into();
            raw.explicit.exposure = "windows".into();
        })
    };
    let start = |raw: &Raw| {
        let (engine, control) =
            Engine::without_threads(fabric(8), checked(raw)).expect("an engine");
        let client = engine.client().map(|client| client.handle().resources().windows);
        drop(control);
        client
    };
    assert_eq!(start(&raw("8")).expect("as many as there are"), 8);
    assert_eq!(start(&raw("auto")).expect("as far as they go"), 8);
    let error = start(&raw("9")).expect_err("one too many").to_string();
    assert!(error.contains("explicit.windows") && error.contains('9'), "{error}");
}
