//! Reports on shards: what they state, and when there is none.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::ptr;

use rpcrdma_capi::rpcrdma_status::*;
use rpcrdma_capi::*;

use crate::rig::{Rig, check, made, refused};

const MINUTE: u64 = 60_000_000_000;

/// The values that a function writes, by name.
fn values(
    write: impl Fn(*mut rpcrdma_counter, usize, Option<&mut MaybeUninit<usize>>) -> c_int,
) -> BTreeMap<String, u64> {
    let mut all = [rpcrdma_counter { name: ptr::null(), value: 0 }; 100];
    let count = made(|out| write(all.as_mut_ptr(), 1, out));
    assert!((2..100).contains(&count));
    assert!(all[1].name.is_null(), "there was room for one");
    assert_eq!(made(|out| write(all.as_mut_ptr(), all.len(), out)), count);
    let named = all[..count].iter().map(|it| {
        // SAFETY: the name is a constant text.
        let name = unsafe { CStr::from_ptr(it.name) };
        (name.to_string_lossy().into_owned(), it.value)
    });
    let named: BTreeMap<_, _> = named.collect();
    assert_eq!(named.len(), count, "each has a name of its own");
    named
}

#[test]
fn a_report_states_what_a_shard_and_its_peers_have() {
    let rig = Rig::new(&rpcrdma_handler::NONE);
    rig.ask(b"call");
    rig.ask(b"call");
    // SAFETY: the handle is the engine's, the report is freed once, and there is room for what is
    // written.
    unsafe {
        let server = rpcrdma_engine_shard(rig.engine.as_ref(), 0).as_ref();
        let report = made(|out| rpcrdma_handle_inspect(server, MINUTE, out));
        let of = report.as_ref();
        let gauges = values(|to, room, count| rpcrdma_report_gauges(of, to, room, count));
        assert_eq!(gauges["connections_total"] - gauges["connections_free"], 1);
        assert_eq!(gauges["calls_open"], 0);
        assert!(gauges["receives_posted"] > 0 && gauges["receives_posted"] <= gauges["receives"]);

        assert_eq!(rpcrdma_report_peers(of), 1);
        assert_ne!(rpcrdma_report_peer_connection(of, 0).id, 0);
        let mut text = [0; 64];
        check(rpcrdma_report_peer_address(of, 0, text.as_mut_ptr(), text.len()));
        let address = CStr::from_ptr(text.as_ptr()).to_string_lossy();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        let counted =
            values(|to, room, count| rpcrdma_report_peer_counters(of, 0, to, room, count));
        assert_eq!(
            [counted["calls_received"], counted["refusals_sent"], counted["calls_sent"]],
            [2, 2, 0]
        );
        let has = values(|to, room, count| rpcrdma_report_peer_gauges(of, 0, to, room, count));
        assert_eq!([has["is_up"], has["is_requested"], has["granted_used"]], [1, 0, 0]);
        assert!(has["version"] > 0 && has["granted_limit"] > 0);

        assert_eq!(rpcrdma_report_peer_connection(of, 1).id, 0);
        let (none, mut count) = (ptr::null_mut(), MaybeUninit::uninit());
        refused(rpcrdma_report_peer_address(of, 1, text.as_mut_ptr(), 64), RPCRDMA_E_INVALID);
        let number = rpcrdma_report_peer_counters(of, 1, none, 0, Some(&mut count));
        refused(number, RPCRDMA_E_INVALID);
        let number = rpcrdma_report_peer_gauges(of, 1, none, 0, Some(&mut count));
        refused(number, RPCRDMA_E_INVALID);
        refused(rpcrdma_report_gauges(of, none, 0, None), RPCRDMA_E_INVALID);
        rpcrdma_report_free(report);
    }
}

#[test]
fn a_shard_that_takes_no_turn_does_not_report() {
    let rig = Rig::new(&rpcrdma_handler::NONE);
    let mut report = MaybeUninit::uninit();
    // SAFETY: the handles are the client's and the engine's.
    unsafe {
        let client = rpcrdma_client_handle(rig.client).as_ref();
        // This thread polls the client.
        refused(rpcrdma_handle_inspect(client, 1, Some(&mut report)), RPCRDMA_E_NO_TURN);
        refused(rpcrdma_handle_inspect(client, 1, None), RPCRDMA_E_INVALID);
        let server = rpcrdma_engine_shard(rig.engine.as_ref(), 0).as_ref();
        check(rpcrdma_engine_stop(rig.engine.as_mut()));
        refused(rpcrdma_handle_inspect(server, MINUTE, Some(&mut report)), RPCRDMA_E_STOPPED);
        rpcrdma_report_free(ptr::null_mut());
    }
}
