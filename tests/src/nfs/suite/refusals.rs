//! Failing calls: the caller gets the error and its memory, and the next call succeeds.

use std::fs;

use nfs3_types::nfs3::{nfs_fh3, nfsstat3};
use nfs3_types::xdr_codec::Opaque;
use rpcrdma::onc::AcceptStatus;
use rpcrdma::{CallError, Provider};

use super::{Scene, pattern};
use crate::nfs::client::{read_request, read_results};
use crate::nfs::defects::assert_cut_off;
use crate::nfs::{Defect, Failure, ListFrom, Nfs, Take};

/// A failed READ or READLINK has no data: the offered memory is returned unchanged.
///
/// # Panics
/// If not.
pub fn failures_leave_memory_alone<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("failures");
    fs::write(path.join("file"), pattern(1, 100)).expect("a file");
    let file = scene.nfs.lookup(&dir, b"file").expect("the file").object;
    let foreign = nfs_fh3 { data: Opaque::owned(vec![7; 32]) };
    for take in [Take::Sink(1), Take::Sink(3), Take::RdmaBuffer, Take::InLine] {
        for handle in [&dir, &foreign] {
            let read = scene.nfs.read(handle, 0, 10_000, take);
            assert!(matches!(read, Err(Failure::Status(_))), "{take:?}: {read:?}");
        }
        let link = scene.nfs.readlink(&file, 1024, take);
        assert!(matches!(link, Err(Failure::Status(nfsstat3::NFS3ERR_INVAL))), "{link:?}");
        let read = scene.nfs.read(&file, 0, 100, take).expect("the next call goes");
        assert!(read.data == pattern(1, 100));
    }
}

/// A result that is longer than the memory for it fails its call; the connection continues.
///
/// # Panics
/// If not.
pub fn memory_that_is_too_small_fails_its_call_only<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("too-small");
    for count in 0..200 {
        fs::write(path.join(format!("entry-{count}")), "").expect("a file");
    }
    let bytes = pattern(1, 20_000);
    fs::write(path.join("file"), &bytes).expect("a file");
    let file = scene.nfs.lookup(&dir, b"file").expect("the file").object;
    let is_one = scene.is_one();
    for _ in 0..3 {
        // Only in version one a reply that is longer than announced cannot be sent in another form.
        if is_one {
            let from = ListFrom::default();
            let listed = scene.nfs.readdirplus_in(&dir, from, 32_768, scene.inline + 1000);
            assert_too_small(listed, scene.defects);
            data_longer_than_their_chunk(&mut scene.nfs, &file, scene.defects);
        }
        let read = scene.nfs.read(&file, 0, 20_000, Take::Sink(1)).expect("the next call goes");
        assert!(read.data == bytes);
    }
    let stats = scene.nfs.rpc.client().handle().stats();
    assert_eq!(stats.connections_closed, 0, "the connection is the same");
}

/// A READ of 20,000 bytes into a Write chunk of 9000, in version one: it fails.
///
/// # Panics
/// If not.
pub fn data_longer_than_their_chunk<P: Provider>(
    nfs: &mut Nfs<P>,
    file: &nfs_fh3,
    defects: &[Defect],
) {
    let request = read_request(file, 0, 20_000, Take::Sink(1)).taking(9_000, Take::Sink(1));
    match nfs.rpc.call(&request).and_then(|reply| read_results(&reply)) {
        Err(Failure::NotExecuted(AcceptStatus::SystemError)) if nfs.may_answer_system_error => {}
        result => assert_too_small(result, defects),
    }
}

/// The server answers ERR_CHUNK if the memory that was offered is too small, or cuts the results off
/// if it has [`Defect::CutOff`].
fn assert_too_small<T>(result: Result<T, Failure>, defects: &[Defect]) {
    if defects.contains(&Defect::CutOff) {
        return assert_cut_off(result);
    }
    match result {
        Err(Failure::Call { error: CallError::Rejected(..), .. }) => {}
        Err(other) => panic!("the call failed otherwise: {other:?}"),
        Ok(_) => panic!("the call was executed"),
    }
}
