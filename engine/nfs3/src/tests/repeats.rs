//! Calls that are repeated over another connection.

use nfs3_types::nfs3::{
    CREATE3args, CREATE3res, Nfs3Option, Nfs3Result, createhow3, nfsstat3, sattr3, stable_how,
};
use rpcrdma_engine::ulb::nfs3;

use super::client::{Client, handle, name};
use super::files::create;
use super::{Running, content};

#[test]
fn a_call_that_is_repeated_is_answered_and_not_executed_again() {
    let nfs = Running::new();
    let connect = |seed| {
        let root = nfs.client.root.clone();
        Client::seeded(nfs.fabric.clone(), nfs.server.address(), root, seed)
    };
    let make = |client: &mut Client| -> CREATE3res {
        let how = createhow3::GUARDED(sattr3::default());
        let arguments = CREATE3args { where_: name(&nfs.client.root, "file"), how };
        client.call(nfs3::CREATE, &arguments)
    };
    let made = handle(make(&mut connect(7)).unwrap().obj);
    // The same transaction id from the same address.
    let again = make(&mut connect(7)).unwrap();
    assert!(matches!(again.obj, Nfs3Option::Some(handle) if handle == made));
    // Another call that says the same.
    let other = make(&mut connect(8));
    assert!(matches!(other, Nfs3Result::Err((nfsstat3::NFS3ERR_EXIST, _))), "{other:?}");
}

#[test]
fn other_data_with_the_transaction_id_of_others_are_written() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let file = create(&mut nfs.client, &root, "file");
    let path = nfs.export().join("file");
    for (seed, len) in [(7, 100), (8, 5_000)] {
        // The third is the first once more: it is not executed again.
        for (byte, then) in [(1, 1), (2, 2), (1, 2)] {
            let root = root.clone();
            let mut client = Client::seeded(nfs.fabric.clone(), nfs.server.address(), root, seed);
            let written = client.write(&file, 0, &vec![byte; len], stable_how::UNSTABLE);
            assert!(matches!(written, Nfs3Result::Ok(_)));
            assert_eq!(content(&path), vec![then; len]);
        }
    }
}
