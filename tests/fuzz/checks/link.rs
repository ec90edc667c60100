//! A server over shared memory with two connections: one of a valid client, and one of a peer that
//! writes anything to the memory and the socket of its connection.
//!
//! Whatever it does, nothing panics and no memory outside is touched; its connection ends with its
//! process, and the calls of the valid client are answered correctly.

use std::sync::OnceLock;

use rpcrdma::{Address, Shm, ShmName};
use rpcrdma_shm::hostile_peer::HostilePeer;

use super::choices::Choices;
use crate::opener::OnDevice;
use crate::script::Script;
use crate::world::{Plan, World};

/// Checks one input.
///
/// # Panics
/// If the valid client is affected, or the connection of the other does not end.
pub fn check(input: &[u8]) {
    static DEVICE: OnceLock<Shm> = OnceLock::new();
    let device = DEVICE.get_or_init(|| Shm::new().expect("a thread")).clone();
    let address = "shm:@".parse().expect("an address");
    let (mut world, good) = World::pair(&OnDevice { device, address }, &Plan::default());
    let Address::Shm(name) = world.at else { panic!("{} is no socket", world.at) };
    meet(&mut world, &name, &mut Choices::new(input));
    world.until("its connection has ended", |world| world.servers[0].handle().connections() == 1);
    world.round(0, good, &Script::new(1, &[], &[]));
    world.check_nothing_leaked();
}

/// The other peer comes, does what the input says, and goes.
fn meet(world: &mut World<Shm>, name: &ShmName, choices: &mut Choices<'_>) {
    let mut peer = HostilePeer::connect(name, STAGING).expect("there is a listener");
    world.until("it is accepted", |_| peer.is_accepted());
    for _ in 0..EVENTS_MAX {
        if choices.is_over() {
            break;
        }
        event(&mut peer, world, choices);
    }
    world.step();
}

fn event(peer: &mut HostilePeer, world: &mut World<Shm>, choices: &mut Choices<'_>) {
    match choices.below(10) {
        0 => {
            let words =
                [(); 3].map(|()| u64::from(choices.word()) << 32 | u64::from(choices.word()));
            let bytes = bytes(choices, 64);
            peer.publish(words, &bytes);
        }
        1 | 2 => {
            // A message in its slot.
            let bytes = bytes(choices, 224);
            peer.publish(header(SEND, 0, bytes.len() as u32), &bytes);
        }
        3 => {
            // Of any kind, and of any length, with a place in the staging area or elsewhere.
            let op = choices.below(7) as u8;
            let len = choices.below(70_000);
            let key = choices.pick(&[u32::MAX, u32::MAX, u32::MAX - 1, u32::MAX - 2, 7]);
            let stated = if choices.rarely(8) { choices.word() } else { len };
            let offset = u64::from(choices.below(70_000));
            let place = [&key.to_ne_bytes()[..], &stated.to_ne_bytes(), &offset.to_ne_bytes()];
            peer.publish(header(op, choices.below(3) as u8, len), &place.concat());
        }
        4 => {
            // Where words are.
            let at = choices.below(16 << 10) as usize;
            peer.corrupt(at, &bytes(choices, 16));
        }
        5 => {
            let at = choices.below(peer.memory_len() as u32) as usize;
            peer.corrupt(at, &bytes(choices, 64));
        }
        6 => peer.acknowledge(u64::from(choices.below(40)), u64::from(choices.below(4))),
        7 => peer.set_outcome(u64::from(choices.below(40)), choices.below(0x100)),
        8 => peer.send(&bytes(choices, 100)),
        _ => world.step(),
    }
}

/// As many bytes as the input says, at most `max`.
fn bytes(choices: &mut Choices<'_>, max: u32) -> Vec<u8> {
    (0..choices.below(max + 1)).map(|_| choices.byte()).collect()
}

/// A header as the transport lays it out.
fn header(op: u8, pieces: u8, byte_len: u32) -> [u64; 3] {
    [0, u64::from(op) << 32 | u64::from(pieces) << 40, u64::from(byte_len)]
}

const EVENTS_MAX: usize = 200;
/// As the server's: it refuses another one.
const STAGING: u32 = 4 << 20;
/// `OP_SEND` of the transport.
const SEND: u8 = 1;
