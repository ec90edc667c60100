//! Calls of MOUNT over TCP.

use std::io::{Read, Write};
use std::net::TcpStream;

use rpcrdma::Fabric;

use super::Running;

/// Sends a call in fragments of `cut` bytes, and returns the answer after XID and message type.
fn call(stream: &mut TcpStream, words: &[u32], tail: &[u8], cut: usize) -> Vec<u8> {
    let mut record: Vec<u8> =
        [77, 0].iter().chain(words).flat_map(|word| word.to_be_bytes()).collect();
    record.extend(tail);
    let count = record.len().div_ceil(cut);
    for (at, fragment) in record.chunks(cut).enumerate() {
        let last = if at + 1 == count { 1 << 31 } else { 0 };
        stream.write_all(&(last | fragment.len() as u32).to_be_bytes()).expect("it is open");
        stream.write_all(fragment).expect("it is open");
    }
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).expect("an answer");
    let mut reply = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
    stream.read_exact(&mut reply).expect("all of it");
    assert_eq!(reply[..8], [0, 0, 0, 77, 0, 0, 0, 1]);
    reply.split_off(8)
}

fn path(bytes: &[u8]) -> Vec<u8> {
    let mut path = (bytes.len() as u32).to_be_bytes().to_vec();
    path.extend(bytes);
    path.resize(path.len().next_multiple_of(4), 0);
    path
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| word.try_into().map_or(0, u32::from_be_bytes)).collect()
}

const fn header(procedure: u32) -> [u32; 8] {
    [2, 100_005, 3, procedure, 0, 0, 0, 0]
}

#[test]
fn a_client_gets_the_handle_of_the_export_and_of_what_is_below() {
    let nfs = Running::<Fabric>::new();
    std::fs::create_dir(nfs.export().join("below")).expect("made");
    std::fs::write(nfs.export().join("file"), "").expect("made");
    std::os::unix::fs::symlink("/etc", nfs.export().join("link")).expect("made");
    let export = nfs.export().canonicalize().expect("it is there");
    let export = export.to_str().expect("a name of ours").to_owned();
    let mut stream = TcpStream::connect(nfs.server.mount_address()).expect("it listens");
    assert_eq!(words(&call(&mut stream, &header(0), &[], 1000)), [0, 0, 0, 0]);
    let mounted = call(&mut stream, &header(1), &path(export.as_bytes()), 7);
    assert_eq!(words(&mounted)[..6], [0, 0, 0, 0, 0, 36]);
    assert_eq!(mounted[24..60], nfs.client.root.data[..]);
    assert_eq!(words(&mounted[60..]), [2, 1, 0], "AUTH_SYS and AUTH_NONE");
    for (below, status) in [
        ("/below", 0),
        ("/below/", 0),
        ("/file", 20),
        ("/missing", 2),
        ("/link", 20),
        ("/../..", 13),
        ("else", 13),
    ] {
        let tail = path(format!("{export}{below}").as_bytes());
        let mounted = call(&mut stream, &header(1), &tail, 1000);
        assert_eq!(words(&mounted)[4], status, "{below}");
    }
    // The list of mounts, each a host and a path, and the list of exports.
    assert_eq!(words(&call(&mut stream, &header(2), &[], 1000))[4], 1);
    call(&mut stream, &header(4), &[], 1000);
    assert_eq!(words(&call(&mut stream, &header(2), &[], 1000))[4], 0);
    let exports = call(&mut stream, &header(5), &[], 1000);
    assert_eq!(words(&exports)[4..6], [1, export.len() as u32]);
}

#[test]
fn an_export_that_was_removed_cannot_be_mounted() {
    let nfs = Running::<Fabric>::new();
    let export = nfs.export().canonicalize().expect("it is there");
    std::fs::remove_dir(&export).expect("it is empty");
    let mut stream = TcpStream::connect(nfs.server.mount_address()).expect("it listens");
    let tail = path(export.to_str().expect("a name of ours").as_bytes());
    let mounted = call(&mut stream, &header(1), &tail, 1000);
    assert_eq!(words(&mounted)[4], 2, "MNT3ERR_NOENT");
}

#[test]
fn invalid_calls_are_denied_and_records_that_are_too_long_end_the_connection() {
    let nfs = Running::<Fabric>::new();
    let connect = || TcpStream::connect(nfs.server.mount_address()).expect("it listens");
    let mut stream = connect();
    for (wrong, answer) in [
        ([2, 100_003, 3, 0, 0, 0, 0, 0], &[0, 0, 0, 1][..]),
        ([2, 100_005, 1, 0, 0, 0, 0, 0], &[0, 0, 0, 2, 3, 3]),
        ([2, 100_005, 3, 6, 0, 0, 0, 0], &[0, 0, 0, 3]),
        ([2, 100_005, 3, 1, 0, 0, 0, 0], &[0, 0, 0, 4]),
        ([1, 100_005, 3, 0, 0, 0, 0, 0], &[1, 0, 2, 2]),
    ] {
        assert_eq!(words(&call(&mut stream, &wrong, &[], 1000)), answer);
    }
    assert_eq!(words(&call(&mut stream, &header(1), &path(&[b'x'; 1025]), 9999))[3], 4);
    for hostile in [&[0xff; 4][..], &[0, 0, 0x20, 0, 1, 2, 3], &[0x80, 0, 0, 4, 0, 0, 0, 1]] {
        let mut hostile_stream = connect();
        hostile_stream.write_all(hostile).expect("it is open");
        assert_eq!(hostile_stream.read(&mut [0; 8]).unwrap_or(0), 0, "it is closed");
    }
    // Other clients are served: more of them than the service has connections.
    let mut clients: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    let newest = clients.last_mut().expect("there are some");
    assert_eq!(words(&call(newest, &header(0), &[], 3)), [0, 0, 0, 0]);
}
