//! What is heard of the device and of librdmacm: how much of it waits.

use std::time::Duration;

use rpcrdma_engine::provider::{ConnectionManager, Provider, QueueEvent, Queues, Waker};

use super::fake::Board;
use super::rig::SMALL;
use crate::sys::verbs as sys;

#[test]
fn a_port_that_goes_up_and_down_leaves_its_last_states_and_is_counted() {
    let board = Board::new();
    let device = board.open().expect("a device");
    let mut queues = device.open_queues(&SMALL).expect("queues");
    let mut cm = device.open_cm().expect("a connection manager");
    let waker = Waker::new().expect("a descriptor");
    for _ in 0..100 {
        for event in [sys::IBV_EVENT_PORT_ERR, sys::IBV_EVENT_PORT_ACTIVE] {
            board.report(std::ptr::without_provenance_mut(1), event);
        }
    }
    assert!(cm.next(&waker, Duration::ZERO).is_none());
    let told: Vec<_> = std::iter::from_fn(|| queues.next_event()).collect();
    assert_eq!(told, [QueueEvent::PortDown, QueueEvent::PortUp]);
    let events = device.events();
    assert_eq!((events.ports_down, events.ports_up), (100, 100));
}
