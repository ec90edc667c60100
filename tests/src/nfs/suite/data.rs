//! READ and WRITE: every length, with every way to move data.

use std::fs;

use nfs3_types::nfs3::stable_how;
use rpcrdma::Provider;

use super::sizes::{few_lengths, lengths};
use super::{Scene, pattern};
use crate::nfs::client::{read_request, read_results, write_request};
use crate::nfs::defects::{
    assert_cut_off, assert_padded_wrongly, is_end_lost, is_padded_wrongly, possible,
};
use crate::nfs::{Defect, Give, Take};

/// READ returns the bytes of the file, however they are requested.
///
/// # Panics
/// If not.
pub fn reads_bring_what_is_in_the_file<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("reads");
    let max = longest(scene).0;
    let bytes = pattern(1, max as usize + 100);
    fs::write(path.join("file"), &bytes).expect("a file");
    let file = scene.nfs.lookup(&dir, b"file").expect("the file").object;
    let is_one = scene.is_one();
    for take in [Take::Sink(1), Take::RdmaBuffer, Take::InLine, Take::Sink(3)] {
        let is_dense = scene.is_thorough && matches!(take, Take::Sink(1) | Take::InLine);
        let which = if is_dense { lengths } else { few_lengths };
        for len in which(max, scene.inline, &[]) {
            if len == 0 && scene.has(Defect::ReadOfNothing) {
                continue;
            }
            let offset = len as usize % 7;
            let before = (scene.moved)();
            let read = scene.nfs.read(&file, offset as u64, len, take);
            let is_broken = scene.has(Defect::ReadPadding) && is_padded_wrongly(len as usize);
            if scene.has(Defect::ReadPadding) && is_end_lost(len as usize) {
                assert_cut_off(read);
                continue;
            }
            // A Reply chunk without room cuts off what is too much.
            let is_short = take == Take::InLine && len % 4 == 1;
            if is_broken && !matches!(take, Take::Sink(_)) && (is_short || read.is_err()) {
                assert_padded_wrongly(read, len as usize);
                continue;
            }
            let read = read.unwrap_or_else(|why| panic!("{len} bytes by {take:?}: {why:?}"));
            // A server may return less than requested, within limits.
            assert!(read.data.len() == len as usize, "{} of {len}, {take:?}", read.data.len());
            assert!(read.data == bytes[offset..][..len as usize], "{len} bytes by {take:?}");
            assert!(!read.eof, "there is more behind {len}");
            let wrote = (scene.moved)().writes > before.writes;
            match take {
                Take::InLine => assert!(!read.placed, "{len} bytes were placed"),
                Take::Sink(_) => {
                    assert_eq!(read.sink, len > 0, "the memory of {len} bytes comes back");
                    assert!(!is_one || (len > 0) == (read.placed && wrote), "{len} by {take:?}");
                }
                Take::RdmaBuffer if is_one && len > scene.inline => {
                    assert!(read.placed && wrote, "{len} bytes were written");
                }
                Take::RdmaBuffer => {}
            }
        }
    }
}

/// READ at the end of a file, and after it.
///
/// # Panics
/// If a server returns more or fewer bytes than exist.
pub fn reads_stop_at_the_end<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("ends");
    for len in [0_usize, 1, 2, 3, 4, 1023, 4096, 10_001, 70_003] {
        let (name, bytes) = (format!("of-{len}"), pattern(2, len));
        fs::write(path.join(&name), &bytes).expect("a file");
        let file = scene.nfs.lookup(&dir, name.as_bytes()).expect("the file").object;
        for take in [Take::Sink(1), Take::Sink(2), Take::RdmaBuffer, Take::InLine] {
            for offset in [0, len / 2, len.saturating_sub(1), len, len + 1, len + 100_000] {
                let is = bytes.get(offset..).unwrap_or_default();
                let take = possible(take, is.len(), scene.defects);
                let read = scene.nfs.read(&file, offset as u64, 80_000, take).expect(&name);
                assert!(read.data == is, "{name} from {offset} by {take:?}");
                assert!(read.eof, "{name} from {offset} by {take:?} ends");
            }
        }
    }
}

/// WRITE writes exactly the bytes to the file, however they are moved.
///
/// # Panics
/// If not.
pub fn writes_put_into_the_file_what_was_given<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("writes");
    let max = longest(scene).1;
    let file = scene.nfs.create(&dir, b"file").expect("a file");
    let is_one = scene.is_one();
    let mut verifiers = Vec::new();
    for give in [Give::Apart(1), Give::Apart(3), Give::InLine] {
        let is_dense = scene.is_thorough && give == Give::Apart(1);
        let which = if is_dense { lengths } else { few_lengths };
        // What is in the stream has to lie in the slots of one message.
        let max = if give == Give::InLine { max.min(IN_LINE_MAX) } else { max };
        for (index, len) in which(max, scene.inline, &[]).into_iter().enumerate() {
            let stable =
                [stable_how::UNSTABLE, stable_how::DATA_SYNC, stable_how::FILE_SYNC][index % 3];
            let (offset, bytes) = (len as usize % 5, pattern(len, len as usize));
            fs::write(path.join("file"), [0xee; 16]).expect("the file");
            let before = (scene.moved)();
            let done = scene.nfs.write(&file, offset as u64, &bytes, stable, give);
            let done = done.unwrap_or_else(|why| panic!("{len} bytes by {give:?}: {why:?}"));
            assert_eq!(done.count, len, "all of it is written, by {give:?}");
            assert!(done.committed as u32 >= stable as u32, "as safe as asked for: {done:?}");
            verifiers.push(done.verf);
            let mut expected = vec![0xee; 16.max(if len > 0 { offset + len as usize } else { 0 })];
            expected[offset..][..len as usize].copy_from_slice(&bytes);
            let is = fs::read(path.join("file")).expect("the file");
            assert!(is == expected, "{len} bytes by {give:?} at {offset}");
            let read = (scene.moved)().reads > before.reads;
            assert!(!is_one || len <= scene.inline || read, "{len} bytes by {give:?} are read");
        }
    }
    verifiers.push(scene.nfs.commit(&file).expect("COMMIT"));
    verifiers.dedup();
    assert_eq!(verifiers.len(), 1, "the server was not started anew");
}

/// The server reads a call as a whole (position zero) if it is too long for a Send and not
/// reducible.
///
/// # Panics
/// If not.
pub fn long_calls_are_fetched_as_a_whole<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("long-calls");
    let file = scene.nfs.create(&dir, b"file").expect("a file");
    let is_one = scene.is_one();
    let which = if scene.is_thorough { lengths } else { few_lengths };
    for len in which(3 * scene.inline, scene.inline, &[2 * scene.inline]) {
        let bytes = pattern(len, len as usize);
        let before = (scene.moved)();
        let done =
            scene.nfs.write(&file, 0, &bytes, stable_how::UNSTABLE, Give::InLine).expect("WRITE");
        assert_eq!(done.count, len);
        let is = fs::read(path.join("file")).expect("the file");
        assert!(is[..len as usize] == bytes, "{len} bytes");
        let read = (scene.moved)().reads > before.reads;
        assert!(!is_one || len < scene.inline || read, "a call of {len} bytes is read");
    }
}

/// Long and short READs and WRITEs, as many as the server grants, each with correct results, in any
/// order.
///
/// # Panics
/// If not.
pub fn many_calls_are_in_flight<P: Provider>(scene: &mut Scene<'_, P>) {
    const BLOCK: usize = 8_000;
    const BLOCKS: usize = 60;
    let (dir, path) = scene.fresh("many");
    let bytes = pattern(9, BLOCK * BLOCKS);
    fs::write(path.join("from"), &bytes).expect("a file");
    let from = scene.nfs.lookup(&dir, b"from").expect("the file").object;
    let to = scene.nfs.create(&dir, b"to").expect("a file");
    let (mut reads, mut writes, mut most) = (Vec::new(), Vec::new(), 0);
    for round in 0..4 {
        for block in 0..BLOCKS {
            let offset = (block * BLOCK) as u64;
            let len = [1, 100, BLOCK - 1, BLOCK][(block + round) % 4];
            let take = [Take::Sink(1), Take::RdmaBuffer, Take::InLine][(block + round) % 3];
            let take = possible(take, len, scene.defects);
            let request = read_request(&from, offset, len as u32, take);
            reads.push((block, len, scene.nfs.rpc.submit(&request).expect("a READ")));
            let data = &bytes[block * BLOCK..][..len];
            let give = [Give::Apart(1), Give::InLine][block % 2];
            let request = write_request(&to, offset, data, stable_how::UNSTABLE, give);
            writes.push(scene.nfs.rpc.submit(&request).expect("a WRITE"));
            most = most.max(scene.nfs.rpc.open());
        }
    }
    assert!(most >= 8, "calls are in flight at one time: {most}");
    for (block, len, call) in reads {
        let reply = scene.nfs.rpc.finish(call).expect("a READ");
        let read = read_results(&reply).expect("its results");
        assert!(read.data == bytes[block * BLOCK..][..len], "block {block}, {len} bytes");
    }
    for call in writes {
        scene.nfs.rpc.finish(call).expect("a WRITE");
    }
    let written = fs::read(path.join("to")).expect("the file");
    // In four rounds every block is written to its full length.
    assert!(written == bytes, "all blocks are where they belong");
}

/// The longest READ and WRITE that both ends take.
fn longest<P: Provider>(scene: &mut Scene<'_, P>) -> (u32, u32) {
    let root = scene.root.clone();
    let info = scene.nfs.fsinfo(&root).expect("FSINFO");
    (info.rtmax.min(LONGEST), info.wtmax.min(LONGEST))
}

/// What the slots of one message hold for certain.
pub(super) const IN_LINE_MAX: u32 = 60 << 10;
/// What the memory of the client is for.
pub const LONGEST: u32 = 1 << 20;
