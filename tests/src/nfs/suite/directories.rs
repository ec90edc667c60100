//! READDIR and READDIRPLUS, in replies of every size.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nfs3_types::nfs3::{nfs_fh3, post_op_attr, post_op_fh3};
use rpcrdma::Provider;

use super::{Scene, pattern};
use crate::nfs::{ListFrom, Nfs};

/// READDIR and READDIRPLUS list a directory as the file system does, with every maximum length of a
/// reply.
///
/// # Panics
/// If not.
pub fn directories_are_read_in_replies_of_every_size<P: Provider>(scene: &mut Scene<'_, P>) {
    let (dir, path) = scene.fresh("directories");
    for count in 0..120 {
        let name = format!("{count}-{}", "e".repeat(count % 40));
        fs::write(path.join(name), pattern(1, count)).expect("a file");
    }
    let is = listed(&path);
    let inline = scene.inline;
    let counts = [600, 1000, inline - 4, inline, inline + 4, 8192, 32_768, 65_536];
    for count in counts {
        assert_eq!(names_of(&mut scene.nfs, &dir, count), is, "READDIR of {count}");
    }
    for count in counts.into_iter().chain((inline - 400..inline).step_by(if scene.is_thorough {
        16
    } else {
        100
    })) {
        let before = (scene.moved)();
        assert_eq!(names_plus(&mut scene.nfs, &dir, &path, count), is, "READDIRPLUS of {count}");
        let wrote = (scene.moved)().writes > before.writes;
        if scene.is_one() && count >= 8192 {
            assert!(wrote, "a long reply of version one comes in a Reply chunk");
        }
    }
    let (empty, _) = scene.fresh("empty");
    assert_eq!(names_of(&mut scene.nfs, &empty, 1000).len(), 0);
}

/// The entries of a directory and their numbers, from the file system.
fn listed(path: &Path) -> BTreeMap<Vec<u8>, u64> {
    let entries = fs::read_dir(path).expect("a directory");
    let entries = entries.map(|entry| entry.expect("an entry"));
    entries
        .map(|entry| {
            (entry.file_name().as_bytes().to_vec(), entry.metadata().expect("attributes").ino())
        })
        .collect()
}

fn is_ordinary(name: &[u8]) -> bool {
    name != b"." && name != b".."
}

fn names_of<P: Provider>(nfs: &mut Nfs<P>, dir: &nfs_fh3, count: u32) -> BTreeMap<Vec<u8>, u64> {
    let (mut names, mut from) = (BTreeMap::new(), ListFrom::default());
    loop {
        let found = nfs.readdir(dir, from, count).expect("READDIR");
        assert!(found.reply.eof || !found.reply.entries.0.is_empty(), "there is progress");
        for entry in found.reply.entries.0 {
            from = ListFrom { cookie: entry.cookie, cookieverf: found.cookieverf };
            let name = entry.name.0.into_owned();
            if is_ordinary(&name) {
                assert_eq!(names.insert(name, entry.fileid), None, "a name comes once");
            }
        }
        if found.reply.eof {
            return names;
        }
    }
}

fn names_plus<P: Provider>(
    nfs: &mut Nfs<P>,
    dir: &nfs_fh3,
    path: &Path,
    count: u32,
) -> BTreeMap<Vec<u8>, u64> {
    let (mut names, mut from) = (BTreeMap::new(), ListFrom::default());
    loop {
        let found = nfs.readdirplus(dir, from, count).expect("READDIRPLUS");
        assert!(found.reply.eof || !found.reply.entries.0.is_empty(), "there is progress");
        for entry in found.reply.entries.0 {
            from = ListFrom { cookie: entry.cookie, cookieverf: found.cookieverf };
            let name = entry.name.0.into_owned();
            if !is_ordinary(&name) {
                continue;
            }
            let is = fs::metadata(path.join(std::ffi::OsStr::from_bytes(&name))).expect("there");
            if let post_op_attr::Some(said) = entry.name_attributes {
                assert_eq!((said.size, said.fileid), (is.size(), is.ino()));
            }
            if let post_op_fh3::Some(handle) = entry.name_handle
                && names.len().is_multiple_of(100)
            {
                let said = nfs.getattr(&handle).expect("the handle is good");
                assert_eq!(said.fileid, is.ino());
            }
            assert_eq!(names.insert(name, entry.fileid), None, "a name comes once");
        }
        if found.reply.eof {
            return names;
        }
    }
}
