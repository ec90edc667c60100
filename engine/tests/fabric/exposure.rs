//! Ways of exposing memory to peers that depend on the device, or that the checked provider
//! rejects.

use rpcrdma::fabric::FabricOptions;
use rpcrdma::{CallError, CallRefused, Execution, Fabric, Sink, Want};
use rpcrdma_suite::scenarios::explicit::plan;
use rpcrdma_suite::scenarios::given_up;
use rpcrdma_suite::script::{Order, Part, Script};
use rpcrdma_suite::world::{Plan, World};

fn fabric(windows: u32) -> Fabric {
    let options = FabricOptions { windows, ..FabricOptions::default() };
    Fabric::with_options(options).expect("a fabric")
}

/// Everything that exposes memory, a few times.
fn everything(world: &mut World<Fabric>, plan: &Plan) {
    let peer = world.connect(0);
    for len in [1, 5_000, 16_384, 50_001].repeat(3) {
        world.rounds_that_expose(0, peer, len);
    }
    world.check_all_returned();
    world.check_nothing_leaked();
    assert!(world.clients[0].handle().stats().exposures > 0, "{:?}", plan.call.explicit);
}

#[test]
fn a_device_without_windows_registers_for_each_call_if_configured() {
    let device = fabric(0);
    let mut plan = plan("two");
    plan.call.explicit.exposure = "registration".into();
    let mut world = World::new(&|| device.clone(), &plan);
    everything(&mut world, &plan);
    let stats = world.clients[0].handle().stats();
    assert_eq!(stats.invalidations, 0, "nothing is there to be invalidated");
    assert_eq!(world.clients[0].shard().audit().windows.total, 0);
}

/// The fabric's keys rest; which keys a device gives out is its own choice.
#[test]
fn a_late_result_reaches_no_other_registration() {
    let device = fabric(0);
    given_up::a_late_result_reaches_no_other_registration(&|| device.clone());
}

#[test]
fn a_device_with_few_windows_carries_every_form_of_call() {
    // The clients take what there is; the server, which makes no calls, goes without.
    let device = fabric(8);
    let mut plan = plan("two");
    plan.serve.connections.calls_max = 0;
    plan.call.explicit.windows = "8".into();
    let mut world = World::new(&|| device.clone(), &plan);
    everything(&mut world, &plan);
    assert_eq!(world.clients[0].shard().audit().windows.total, 8);
}

/// One registration for good is of the shard's own memory: what is another's is not in it, and
/// never will be.
#[test]
fn registrations_of_one_shard_do_not_expose_memory_of_another() {
    let device = fabric(0);
    let mut plan = Plan { clients: 2, ..plan("two") };
    plan.call.explicit.exposure = "static-insecure".into();
    let mut world = World::new(&|| device.clone(), &plan);
    let peer = world.connect(0);
    let want = Want { len_min: 0, len_max: 9_000 };
    for (owner, refused) in [(1, Err(CallRefused::CannotExpose)), (0, Ok(()))] {
        let loan = world.clients[owner].turn(world.now).buffer().expect("a buffer");
        let mut call = world.clients[0].call(peer, 9).expect("a free slot");
        call.payload().put_fixed(&Script::new(1, &[], &[Part::Bulk(9_000)]).head());
        call.want_into(want, Sink::from(loan));
        let result = call.submit();
        assert_eq!(result, refused);
        assert!(result.is_ok() || !result.is_err_and(|why| why.is_transient()));
    }
    world.completion(0, |done| assert!(done.result().is_ok()));
    world.check_all_returned();
}

#[test]
fn static_insecure_exposes_all_memory_permanently() {
    let device = fabric(0);
    let mut plan = plan("two");
    plan.call.explicit.exposure = "static-insecure".into();
    let mut world = World::new(&|| device.clone(), &plan);
    everything(&mut world, &plan);
}

/// A call that ends before its reply does not end its peer's right: the memory is withheld.
#[test]
fn memory_that_stays_exposed_returns_when_the_connection_ends() {
    const LEN: u32 = 9_000;
    let device = fabric(0);
    let mut plan = plan("two");
    plan.call.explicit.exposure = "static-insecure".into();
    let (mut world, peer) = World::pair(&|| device.clone(), &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let script = Script::new(1, &[], &[Part::Bulk(LEN)]).order(Order::Elsewhere);
    let loan = world.clients[0].turn(world.now).buffer().expect("a buffer");
    let mut call = world.clients[0].call(peer, 9).expect("a free slot");
    call.payload().put_fixed(&script.head());
    call.want_into(Want { len_min: 0, len_max: LEN }, Sink::from(loan));
    call.reply_payload_max(script.reply_payload_max());
    let handle = call.handle();
    call.submit().expect("there is room");
    world.until("it is there", |world| world.servers[0].handler().elsewhere.len() == 1);
    assert!(world.clients[0].cancel(handle));
    world.completion(0, |mut done| {
        let why = CallError::Cancelled(Execution::Unknown);
        assert_eq!((done.cookie(), done.result().err()), (9, Some(why)));
        assert!(done.take_sink(0).is_none(), "its peer can write to it");
    });
    assert_eq!(world.clients[0].shard().audit().exposures, 1);
    let (ticket, finished) = world.servers[0].handler().elsewhere.pop().expect("a ticket");
    world.servers[0].handle().finish(ticket, finished).expect("there is room");
    world.until("it is written and answered", |world| {
        world.clients[0].handle().stats().replies_late == 1
    });
    assert_eq!(world.clients[0].shard().audit().exposures, 1);
    world.round(0, peer, &Script::new(2, &[], &[Part::Inline(9)]));
    assert!(world.clients[0].handle().close(peer), "the order is taken");
    world.check_all_returned();
    world.check_nothing_leaked();
}
