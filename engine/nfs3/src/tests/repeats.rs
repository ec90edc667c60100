//! Calls repeated over another connection.

use nfs3_types::nfs3::{createhow3, nfsstat3, sattr3, stable_how};

use super::{Client, Running, content, failed};

#[test]
fn a_call_that_is_repeated_is_answered_and_not_executed_again() {
    let nfs = Running::new();
    let connect = |seed| {
        let root = nfs.client.root.clone();
        Client::seeded(nfs.device.clone(), nfs.server.address(), root, seed)
    };
    let make = |client: &mut Client| {
        let how = createhow3::GUARDED(sattr3::default());
        client.create_as(&nfs.client.root, b"file", how)
    };
    let made = make(&mut connect(7)).unwrap();
    // The same XID from the same address.
    assert_eq!(make(&mut connect(7)).unwrap(), made);
    // Another call with the same content.
    assert_eq!(failed(make(&mut connect(8))), nfsstat3::NFS3ERR_EXIST);
}

#[test]
fn other_data_with_the_transaction_id_of_others_are_written() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let file = nfs.client.create(&root, b"file").unwrap();
    let path = nfs.export().join("file");
    for (seed, len) in [(7, 100), (8, 5_000)] {
        // The third call repeats the first, and is not executed again.
        for (byte, then) in [(1, 1), (2, 2), (1, 2)] {
            let root = root.clone();
            let mut client = Client::seeded(nfs.device.clone(), nfs.server.address(), root, seed);
            client.write(&file, 0, &vec![byte; len], stable_how::UNSTABLE).unwrap();
            assert_eq!(content(&path), vec![then; len]);
        }
    }
}

#[test]
fn the_answers_of_a_client_are_kept_however_many_others_have() {
    let mut nfs = Running::new();
    let root = nfs.client.root.clone();
    let busy = nfs.client.create(&root, b"busy").unwrap();
    std::fs::write(nfs.export().join("removed"), "").expect("written");
    let (device, address) = (nfs.device.clone(), nfs.server.address());
    let remove =
        || Client::seeded(device.clone(), address, root.clone(), 7).remove(&root, b"removed");
    remove().unwrap();
    for _ in 0..1100 {
        nfs.client.write(&busy, 0, b"x", stable_how::UNSTABLE).unwrap();
    }
    remove().expect("it is the same call, and not executed again");
}
