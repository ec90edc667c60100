//! Properties that change on an established connection.

use rpcrdma::{Changes, PropertiesRefused, Provider};
use rpcrdma_proto::PropertyError;
use rpcrdma_xdr::property::{PropId, Property};

use crate::script::{Part, Script};
use crate::world::{Open, Plan, World};

/// Requests are answered, one at a time, and the connection continues; a change of an unchangeable
/// property is not requested.
pub fn changes_are_requested_and_answered<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let now = world.now;
    let ask = |world: &mut World<P>, value| {
        let changes = Changes::of(&[value]).expect("one value");
        world.clients[0].turn(now).request_properties(peer, &changes)
    };
    let fixed = PropertiesRefused::Protocol(PropertyError::Fixed(PropId::RECV_BUFFER_SIZE));
    assert_eq!(ask(&mut world, Property::RecvBufferSize(2048)), Err(fixed));
    ask(&mut world, Property::ResponseSxLimit(2)).expect("nothing is in the way");
    let twice = ask(&mut world, Property::ResponseSxLimit(2));
    let is_open =
        |why| matches!(why, PropertiesRefused::Protocol(PropertyError::Outstanding { .. }));
    assert!(twice.is_err_and(is_open), "{twice:?}");
    let mut outcome = None;
    world.until("it is answered", |world| {
        outcome = outcome.or_else(|| world.clients[0].property_outcome(peer));
        outcome.is_some()
    });
    let outcome = outcome.expect("it was answered");
    let answered = [outcome.done, outcome.other, outcome.refused];
    let limit = PropId::RESPONSE_SX_LIMIT;
    assert_eq!(answered.iter().filter(|ids| ids.contains(limit)).count(), 1, "{outcome:?}");
    let limits = *world.clients[0].turn(now).limits(peer).expect("it is up");
    assert_eq!(outcome.done.contains(limit), limits.response_sx_limit == 2);
    world.round(0, peer, &Script::new(1, &[Part::Bulk(20_000)], &[Part::Bulk(20_000)]));
    world.check_nothing_leaked();
}

/// Clients learn what a server announces, and calls continue.
pub fn changes_are_announced<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let client = world.servers[0].handler().connected[0];
    let now = world.now;
    for limit in [2, 7] {
        let changes = Changes::of(&[Property::RequestRxLimit(limit)]).expect("one value");
        world.servers[0].turn(now).announce_properties(client, &changes).expect("it goes out");
        world.until("it is known", |world| {
            let limits = *world.clients[0].turn(now).limits(peer).expect("it is up");
            limits.request_rx_limit == limit
        });
        world.round(0, peer, &Script::new(limit, &[Part::Bulk(9_000)], &[Part::Bulk(9_000)]));
    }
    // A few wait until the shard sends them; then there is room for others.
    let changes = Changes::of(&[Property::RequestRxLimit(7)]).expect("one value");
    for _ in 0..2 {
        let mut announce = || world.servers[0].turn(now).announce_properties(client, &changes);
        for _ in 0..WAITING {
            announce().expect("it goes out");
        }
        assert_eq!(announce(), Err(PropertiesRefused::Busy));
        world.quiesce();
    }
    assert_eq!(world.servers[0].handle().stats().violations_unreported, 0);
    world.check_nothing_leaked();
}

/// The control messages of a connection that may wait at one time.
const WAITING: u32 = 4;
