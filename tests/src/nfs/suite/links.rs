//! SYMLINK and READLINK, whose targets are DDP-eligible.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use rpcrdma::Provider;

use super::Scene;
use crate::nfs::{Defect, Give, Take};

/// SYMLINK and READLINK with targets of every length, moved in every way.
///
/// # Panics
/// If not.
pub fn targets_of_every_length_are_made_and_read<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("links");
    let lens = (1..=17).chain((700..=1023).step_by(3));
    for (index, len) in lens.enumerate() {
        let give = [Give::Apart(1), Give::InLine, Give::Apart(3)][index % 3];
        let target = target(len);
        let name = format!("{give:?}-{len}");
        let link = scene.nfs.symlink(&dir, name.as_bytes(), &target, give).expect(&name);
        let made = fs::read_link(path.join(&name)).expect(&name);
        assert_eq!(made.as_os_str().as_bytes(), target, "{name}");
        // READLINK does not know how long the target is.
        let room = [len as u32, 1024, 4096][index % 3];
        for take in [Take::InLine, Take::RdmaBuffer, Take::Sink(1), Take::Sink(2)] {
            let (read, placed) = scene.nfs.readlink(&link, room, take).expect(&name);
            assert_eq!(read, target, "{name} by {take:?} of {room}");
            assert!(!placed || take != Take::InLine, "{name} was placed");
            if scene.has(Defect::LinksInLine) {
                assert!(!placed, "{name}: no Write chunk was offered");
            } else if scene.is_one() && matches!(take, Take::Sink(_)) {
                assert!(placed, "{name}: what has a Write chunk comes in it");
            }
        }
    }
}

/// A target of `len` bytes that every file system takes: its components are short.
fn target(len: usize) -> Vec<u8> {
    (0..len).map(|at| if at % 100 == 99 { b'/' } else { b'a' + (at % 23) as u8 }).collect()
}
