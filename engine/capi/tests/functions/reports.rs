//! Reports on shards: what they state, and when there is none.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;

use rpcrdma_capi::rpcrdma_status::*;
use rpcrdma_capi::*;

use crate::rig::{Rig, check, made, refused};

const MINUTE: u64 = 60_000_000_000;

/// Values by name.
unsafe fn by_name(all: *const rpcrdma_counter, count: usize) -> BTreeMap<String, u64> {
    // SAFETY: there are so many, and each name is a constant text.
    let named = unsafe { std::slice::from_raw_parts(all, count) }
        .iter()
        .map(|it| unsafe { (CStr::from_ptr(it.name).to_string_lossy().into_owned(), it.value) });
    let named: BTreeMap<_, _> = named.collect();
    assert_eq!(named.len(), count, "each has a name of its own");
    named
}

#[test]
fn a_report_states_what_a_shard_and_its_peers_have() {
    let rig = Rig::new(&rpcrdma_handler::NONE);
    rig.ask(b"call");
    rig.ask(b"call");
    // SAFETY: the handle is the engine's, and the report is freed once.
    unsafe {
        let server = rpcrdma_engine_shard(rig.engine.as_ref(), 0).as_ref();
        let made = made(|out| rpcrdma_handle_inspect(server, MINUTE, out));
        let report = &*made;
        let gauges = by_name(report.gauges, report.gauge_count);
        assert_eq!(gauges["connections_total"] - gauges["connections_free"], 1);
        assert_eq!(gauges["calls_open"], 0);
        assert!(gauges["receives_posted"] > 0 && gauges["receives_posted"] <= gauges["receives"]);

        assert_eq!(report.peer_count, 1);
        let peer = &**report.peers;
        assert_ne!(peer.connection.id, 0);
        let address = CStr::from_ptr(peer.address).to_string_lossy();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        let counted = by_name(peer.counters, peer.counter_count);
        assert_eq!(
            [counted["calls_received"], counted["refusals_sent"], counted["calls_sent"]],
            [2, 2, 0]
        );
        let has = by_name(peer.gauges, peer.gauge_count);
        assert_eq!([has["is_up"], has["is_requested"], has["granted_used"]], [1, 0, 0]);
        assert!(has["version"] > 0 && has["granted_limit"] > 0);
        rpcrdma_report_free(made);
    }
}

#[test]
fn a_shard_that_takes_no_turn_does_not_report() {
    let rig = Rig::new(&rpcrdma_handler::NONE);
    let mut report = MaybeUninit::uninit();
    // SAFETY: the handles are the client's and the engine's.
    unsafe {
        let client = rpcrdma_handle_of(rig.client).as_ref();
        // This thread polls the client.
        refused(rpcrdma_handle_inspect(client, 1, Some(&mut report)), RPCRDMA_E_NO_TURN);
        refused(rpcrdma_handle_inspect(client, 1, None), RPCRDMA_E_INVALID);
        let server = rpcrdma_engine_shard(rig.engine.as_ref(), 0).as_ref();
        check(rpcrdma_engine_stop(rig.engine.as_mut()));
        refused(rpcrdma_handle_inspect(server, MINUTE, Some(&mut report)), RPCRDMA_E_STOPPED);
        rpcrdma_report_free(ptr::null_mut());
    }
}
