//! READ and WRITE of version 4: their data inline, by Write chunk and by Read chunk.

use rpcrdma::Provider;

use super::{Scene, end, pattern};
use crate::nfs::{Give, Take};
use crate::nfs41::numbers::access;

/// What is read is in the file, and what is written is there afterwards, however the data move.
///
/// # Panics
/// If not.
pub fn data_move_by_every_way<P: Provider>(scene: Scene<'_, P>) {
    let bytes = pattern(43, LEN);
    scene.file("ways", &bytes);
    let mut client = scene.client("mover");
    let file = client.open_file("ways", access::BOTH | access::WANT_NO_DELEG).expect("it is open");
    let is_version_one = client.wire.stats().connections_version_one > 0;
    for take in [Take::InLine, Take::RdmaBuffer, Take::Sink(1), Take::Sink(3)] {
        for len in LENGTHS {
            let offset = len % 5;
            let read = client.read(&file.handle, file.state, (offset.into(), len), take);
            let (data, placed) = read.unwrap_or_else(|why| panic!("{len} by {take:?}: {why:?}"));
            assert!(data == bytes[offset as usize..][..len as usize], "{len} by {take:?}");
            let is_apart = match take {
                Take::InLine => Some(false),
                Take::Sink(_) => Some(len > 0),
                // The engine has the choice for what fits a message, and in version two for more.
                Take::RdmaBuffer => (is_version_one && len > 4096).then_some(true),
            };
            assert!(is_apart.is_none_or(|it| it == placed), "{len} by {take:?}: {placed}");
        }
    }
    for (seed, give) in (44..).zip([Give::InLine, Give::Apart(1), Give::Apart(3)]) {
        for len in LENGTHS {
            let data = pattern(seed, len as usize);
            let written = client.write(&file, 3, &data, give);
            let count = written.unwrap_or_else(|why| panic!("{len} by {give:?}: {why:?}"));
            assert_eq!(count, len, "{give:?}");
            let found = scene.files.get("ways");
            assert!(found[3..][..len as usize] == data, "{len} by {give:?}");
            assert_eq!(found.len(), LEN);
        }
    }
    assert_eq!(client.size(&file.handle).expect("a GETATTR"), LEN as u64);
    client.close_file(&file).expect("it is closed");
    end(client);
}

/// The length of the file.
const LEN: usize = 200_000;
/// Around the length of a message, and of several pages.
const LENGTHS: [u32; 12] =
    [0, 1, 2, 3, 1000, 3_700, 4_096, 4_097, 10_001, 65_536, 100_003, 131_072];
