//! Every kind of message once or twice, without access to the file system: for captures, and for
//! remote servers.

use nfs3_types::nfs3::{nfs_fh3, nfsstat3, stable_how};
use rpcrdma::Provider;

use super::data::IN_LINE_MAX;
use super::pattern;
use super::refusals::data_longer_than_their_chunk;
use crate::nfs::defects::possible;
use crate::nfs::{Defect, Failure, Give, ListFrom, Nfs, Take};

/// Short and long calls and replies, with and without chunks, and the two errors of version one.
/// Written data are read back, and all files are removed.
///
/// # Panics
/// If anything is not as it should be.
pub fn every_kind_of_message<P: Provider>(nfs: &mut Nfs<P>, root: &nfs_fh3, defects: &[Defect]) {
    nfs.null().expect("NULL");
    let dir = nfs.mkdir(root, b"kinds").expect("MKDIR");
    let file = nfs.create(&dir, b"file").expect("CREATE");
    for (index, len) in [1, 2, 3, 4, 1000, 4096, 30_001, 100_002, 100_003].into_iter().enumerate() {
        let bytes = pattern(index as u32, len);
        for give in [Give::InLine, Give::Apart(1), Give::Apart(3)] {
            if give == Give::InLine && len > IN_LINE_MAX as usize {
                continue;
            }
            let done = nfs.write(&file, 0, &bytes, stable_how::UNSTABLE, give);
            assert_eq!(done.expect("WRITE").count as usize, len, "{give:?}");
        }
        for take in [Take::InLine, Take::RdmaBuffer, Take::Sink(1), Take::Sink(3)] {
            let take = possible(take, len, defects);
            let read = nfs.read(&file, 0, len as u32, take).expect("READ");
            assert!(read.data == bytes, "{len} bytes by {take:?}");
        }
    }
    nfs.commit(&file).expect("COMMIT");
    let failing = nfs.read(&dir, 0, 9000, Take::Sink(1));
    assert!(matches!(failing, Err(Failure::Status(_))), "{failing:?}");
    let stats = nfs.rpc.client().handle().stats();
    if stats.connections_version_two == 0 {
        data_longer_than_their_chunk(nfs, &file, defects);
    }

    let mut names = vec![b"file".to_vec()];
    for len in [5, 997, 1023] {
        for give in [Give::InLine, Give::Apart(1)] {
            let target = "t".repeat(200) + "/" + &"u".repeat(len);
            let target = &target.as_bytes()[target.len() - len..];
            let name = format!("{give:?}-{len}").into_bytes();
            let link = nfs.symlink(&dir, &name, target, give).expect("SYMLINK");
            for take in [Take::InLine, Take::RdmaBuffer, Take::Sink(1)] {
                let (read, _) = nfs.readlink(&link, 8192, take).expect("READLINK");
                assert_eq!(read, target, "{take:?}");
            }
            names.push(name);
        }
    }
    for count in 0..60 {
        let name = format!("{}-{count}", "n".repeat(100)).into_bytes();
        nfs.create(&dir, &name).expect("CREATE");
        names.push(name);
    }
    for room in [1000, 4000, 32_768] {
        let found = nfs.readdirplus(&dir, ListFrom::default(), room).expect("READDIRPLUS");
        assert!(!found.reply.entries.0.is_empty());
    }
    for name in names {
        nfs.remove(&dir, &name).expect("REMOVE");
    }
    nfs.rmdir(root, b"kinds").expect("RMDIR");
    let gone = nfs.lookup(root, b"kinds");
    assert!(matches!(gone, Err(Failure::Status(nfsstat3::NFS3ERR_NOENT))), "{gone:?}");
}
