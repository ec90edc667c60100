//! Connection requests: the configured number may wait, however many came before.

use std::time::Duration;

use rpcrdma_provider::{CmEvent, ConnectionManager, Provider, Waker};

use crate::VerbsOptions;
use crate::fake::Board;

#[test]
fn accepted_requests_make_room_and_further_ones_are_rejected() {
    let board = Board::new();
    let mut cm = board.open().and_then(|device| device.open_cm()).expect("a connection manager");
    cm.listen("192.0.2.1:20049".parse().expect("an address")).expect("a listener");
    let waker = Waker::new().expect("a descriptor");
    let backlog = VerbsOptions::default().backlog as usize;
    let rejected = || board.calls().iter().filter(|call| **call == "rdma_reject").count();
    for round in 1..=3 {
        let before = rejected();
        board.ask(backlog + 2);
        let mut next = || cm.next(&waker, Duration::ZERO);
        let taken: Vec<_> = (0..backlog).map(|_| next()).collect();
        let is_request = |it: &Option<_>| matches!(it, Some(CmEvent::Request { .. }));
        assert!(taken.iter().all(is_request), "{round}");
        assert!(next().is_none(), "no more than may wait");
        assert_eq!(rejected() - before, 2, "{round}");
    }
}
