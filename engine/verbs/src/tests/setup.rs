//! Set-up with every call failing once: created objects are destroyed.

use std::time::Duration;

use rpcrdma_mempool::{Access, Region, RegionSpec, Rights};
use rpcrdma_provider::{
    CmEvent, ConnParam, ConnectError, ConnectionManager, Provider, Queues, SetupError, Waker,
};

use super::rig::SMALL;
use crate::VerbsOptions;
use crate::fake::Fake;

/// Opens a device, its queues with windows and memory, and a connection manager.
fn set_up(fake: &Fake) -> Result<(), SetupError> {
    let device = fake.open()?;
    let mut queues = device.open_queues(&SMALL)?;
    let _cm = device.open_cm()?;
    queues.open_window()?;
    let memory = Region::map(&RegionSpec::new(4096)).expect("memory");
    let registrar = device.registrar();
    let keys = registrar.register(&memory, Rights::own(Access::MW_BIND)).map_err(|error| {
        SetupError::Invalid { what: "memory", value: error.to_string(), allowed: String::new() }
    })?;
    let endpoint = queues.handle().port.create(None).map_err(|(_, error)| error)?;
    let attached = queues.attach(endpoint)?;
    queues.destroy(attached.qp);
    registrar.deregister(keys).map_err(|source| SetupError::System {
        call: "ibv_dereg_mr",
        source,
        hint: "",
    })
}

#[test]
fn a_failure_at_any_step_of_the_setup_leaves_nothing() {
    let fake = Fake::new();
    set_up(fake).expect("nothing fails");
    assert!(fake.alive().is_empty(), "{:?}", fake.alive());
    let calls = fake.calls();
    let makers = calls.iter().filter(|it| !is_end(it)).count();
    assert!(makers >= 15, "{calls:?}");
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| !is_end(call)) {
        fake.fail_at(Some(at));
        let _ = set_up(fake);
        assert!(fake.alive().is_empty(), "after {call}, call {at}: {:?}", fake.alive());
    }
}

#[test]
fn only_objects_the_device_does_not_destroy_remain() {
    let fake = Fake::new();
    set_up(fake).expect("nothing fails");
    let calls = fake.calls();
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| is_end(call)) {
        let before = fake.alive();
        fake.fail_at(Some(at));
        let _ = set_up(fake);
        let after = fake.alive();
        let left = |kind| after.get(kind).unwrap_or(&0) - before.get(kind).unwrap_or(&0);
        let kinds = ["devices", "pd", "mr", "mw", "qp", "srq", "cq", "channel", "cm channel", "id"];
        let left: Vec<i64> = kinds.into_iter().map(left).filter(|left| *left != 0).collect();
        assert!(matches!(left[..], [] | [1]), "after {call}, call {at}: {left:?} of {after:?}");
    }
}

#[test]
fn the_port_that_the_options_name_is_opened() {
    let fake = Fake::new();
    for (port, exists) in [(None, true), (Some(1), true), (Some(2), false)] {
        let opened = fake.open_with(&VerbsOptions { port, ..VerbsOptions::default() });
        let is_missing = matches!(opened, Err(SetupError::NoDevice { .. }));
        assert_eq!((opened.is_ok(), is_missing), (exists, !exists), "{port:?}");
    }
}

/// Connects two hosts of a wired device, as far as it goes.
fn connect(fake: &Fake) -> Result<(), SetupError> {
    let device = fake.open()?;
    let (a, b) = (device.open_queues(&SMALL)?, device.open_queues(&SMALL)?);
    let (mut there, mut here) = (device.open_cm()?, device.open_cm()?);
    let param = ConnParam { private: b"private", rnr_retry: 7, send_timeout: None };
    let at = here.listen("192.0.2.1:20049".parse().expect("an address"))?;
    there.connect(at, &a.handle(), &param)?;
    let waker = Waker::new().expect("a descriptor");
    let failed = || device.events().last_failure.expect("there was one");
    let lost = |call| SetupError::Memory { what: "connection", reason: call };
    if let Some(CmEvent::Refused { reason, .. }) = there.next(&waker, Duration::ZERO) {
        assert!(matches!(reason, ConnectError::CallFailed { .. }), "{reason}");
        return Err(SetupError::connect(at, reason));
    }
    let Some(CmEvent::Request { request, .. }) = here.next(&waker, Duration::ZERO) else {
        return Err(lost(failed()));
    };
    let _accepted = here.accept(request, &b.handle(), &param)?;
    match there.next(&waker, Duration::ZERO) {
        Some(CmEvent::Connected { .. }) => Ok(()),
        _ => Err(lost(failed())),
    }
}

#[test]
fn a_failure_at_any_step_of_a_connection_is_named_and_leaves_nothing() {
    for fake in [Fake::wired_iwarp, Fake::wired] {
        let fake = fake();
        fake.forget_calls();
        connect(fake).expect("nothing fails");
        assert!(fake.alive().is_empty(), "{:?}", fake.alive());
        let calls = fake.calls();
        assert!(calls.contains(&"rdma_accept") && calls.contains(&"rdma_connect"), "{calls:?}");
        // Opening is tested above: it tries what may fail. A failed look for events ends the
        // manager, as `events` shows. Leaving a peer has no result. The id that a request makes is
        // the peer's.
        let opened = calls.iter().position(|call| *call == "ibv_create_comp_channel");
        let tested = |(at, call): &(usize, &&str)| {
            Some(*at) > opened
                && !is_end(call)
                && !["rdma_get_cm_event", "rdma_disconnect"].contains(call)
                && !call.ends_with("to ERR")
                && calls[at - 1] != "rdma_connect"
        };
        for (at, call) in calls.iter().enumerate().filter(tested) {
            fake.fail_at(Some(at));
            let error = connect(fake).expect_err(call).to_string();
            assert!(error.contains(call), "{call}: {error}");
            assert!(fake.alive().is_empty(), "after {call}, call {at}: {:?}", fake.alive());
        }
    }
}

/// Whether a call destroys an object: the object stays if the call fails, without a remedy.
fn is_end(call: &str) -> bool {
    ["destroy", "dealloc", "dereg", "free"].iter().any(|end| call.contains(end))
}

#[test]
fn forks_are_made_safe_first_and_a_failure_is_an_error() {
    let fake = Fake::new();
    fake.refuse("ibv_fork_init", Some(libc::EINVAL));
    let error = fake.open().expect_err("memory was registered before").to_string();
    assert!(error.contains("ibv_fork_init") && error.contains("RDMAV_FORK_SAFE"), "{error}");
    assert_eq!(fake.calls(), ["ibv_fork_init"]);
}
