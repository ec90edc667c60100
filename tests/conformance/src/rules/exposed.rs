//! Registrations for one call, and regions with remote rights: the access of a key, and its end.

use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{Queues, Remote, SendOp, WcStatus};

use super::windows::{READ, WRITE, outcome, read, write};
use crate::host::*;
use crate::subject::Subject;

pub(crate) fn exposed_bytes_are_open_to_every_queue_pair_until_they_are_concealed<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let (qa2, _) = pair.another();
    let rkey = pair.b.expose(&pair.b.sge(64, 16), READ | WRITE).unwrap();
    let addr = pair.b.at(64);
    assert_eq!(write(&mut pair, rkey, addr, 16), WcStatus::Success);
    let sgl = [pair.a.sge(0, 16)];
    pair.a.post(qa2.qp, 77, SendOp::Read(Remote { addr, rkey }), &sgl);
    assert_eq!(outcome(&mut pair), WcStatus::Success);
    pair.b.queues.conceal(rkey ^ 1).unwrap();
    assert_eq!(read(&mut pair, rkey, addr, 16), WcStatus::Success);
    pair.b.queues.conceal(rkey).unwrap();
    assert_eq!(read(&mut pair, rkey, addr, 16), WcStatus::RemoteAccess);
    let again = pair.b.expose(&pair.b.sge(64, 16), READ | WRITE).unwrap();
    assert_ne!(again, rkey);
}

pub(crate) fn keys_of_registrations_rest_while_others_are_used<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let held = pair.b.expose(&pair.b.sge(0, 16), READ).unwrap();
    let (kept, addr) = (pair.b.at(0), pair.b.at(64));
    let mut last = held;
    let mut keys = std::collections::HashSet::new();
    for round in 0..600 {
        let rkey = pair.b.expose(&pair.b.sge(64, 16), READ).unwrap();
        assert!(rkey != held && rkey != last, "round {round}");
        assert_eq!(read(&mut pair, held, kept, 16), WcStatus::Success, "round {round}");
        assert_eq!(read(&mut pair, rkey, addr, 16), WcStatus::Success, "round {round}");
        // The last one once more, which is dead.
        pair.b.queues.conceal(if round > 0 { last } else { 0 }).unwrap();
        pair.b.queues.conceal(rkey).unwrap();
        keys.insert(rkey);
        last = rkey;
    }
    assert_eq!(keys.len(), 600, "none has come again");
    assert_eq!(read(&mut pair, last, addr, 16), WcStatus::RemoteAccess);
}

pub(crate) fn exposed_bytes_have_bounds_and_rights<S: Subject>() {
    for (offset, len, access) in [(63, 1, READ), (64, 17, READ), (64, 16, WRITE)] {
        let mut pair = Pair::<S>::small();
        let rkey = pair.b.expose(&pair.b.sge(64, 16), READ).unwrap();
        let addr = pair.b.at(offset);
        let status = if access == READ {
            read(&mut pair, rkey, addr, len)
        } else {
            write(&mut pair, rkey, addr, len)
        };
        assert_eq!(status, WcStatus::RemoteAccess);
    }
}

pub(crate) fn unregistered_memory_cannot_be_exposed<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let good = pair.b.sge((256 << 10) - 8, 8);
    pair.b.expose(&good, READ).unwrap();
    let region = map::<S>(4096);
    let keys = register(&pair.device, &region, Access::empty());
    let fixed = Sge { addr: region.base().as_ptr() as u64, length: 8, lkey: keys.lkey };
    pair.b.expose(&fixed, READ).unwrap();
    let bad = [
        (Sge { length: 9, ..good }, READ),
        (Sge { length: 0, ..good }, READ),
        (Sge { lkey: good.lkey ^ 0x4000, ..good }, READ),
        (good, READ | Access::LOCAL_WRITE),
        (fixed, WRITE),
    ];
    for (sge, access) in bad {
        pair.b.expose(&sge, access).unwrap_err();
    }
}

pub(crate) fn a_region_registered_with_remote_rights_is_open_under_its_own_key<S: Subject>() {
    for (registered, reads, writes) in
        [(READ, true, false), (READ | WRITE | Access::LOCAL_WRITE, true, true)]
    {
        let mut pair = Pair::<S>::small();
        let region = map::<S>(4096);
        let keys = register(&pair.device, &region, registered);
        let addr = region.base().as_ptr() as u64;
        let status =
            |is_allowed| if is_allowed { WcStatus::Success } else { WcStatus::RemoteAccess };
        assert_eq!(read(&mut pair, keys.rkey, addr, 4096), status(reads));
        assert_eq!(write(&mut pair, keys.rkey, addr, 4096), status(writes));
        let mut pair = Pair::<S>::small();
        assert_eq!(read(&mut pair, keys.rkey, addr, 1), WcStatus::RemoteAccess, "another fabric");
    }
    let mut pair = Pair::<S>::small();
    let (addr, rkey) = (pair.b.at(0), pair.b.keys.rkey);
    assert_eq!(read(&mut pair, rkey, addr, 1), WcStatus::RemoteAccess, "it has no remote rights");
}
