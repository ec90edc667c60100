//! Checks that every NFSv3 server must pass: the kernel's server and `rpcrdma-nfs3`.

pub mod data;
pub mod directories;
pub mod kinds;
pub mod links;
pub mod names;
pub mod refusals;
pub mod sizes;
pub mod versions;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nfs3_types::nfs3::nfs_fh3;
use nfs3_types::rpc::auth_unix;
use nfs3_types::xdr_codec::Opaque;
use rpcrdma::Provider;
use rpcrdma_suite::script::part_bytes;

use super::client::Nfs;
use super::defects::Defect;

/// A client, and the directory that its server exports.
pub struct Scene<'a, P: Provider> {
    /// The client.
    pub nfs: Nfs<P>,
    /// The handle of the directory.
    pub root: nfs_fh3,
    /// Its path.
    pub path: &'a Path,
    /// The server's counts of explicit RDMA.
    pub moved: &'a dyn Fn() -> Moved,
    /// The inline threshold, in both directions.
    pub inline: u32,
    /// Whether to test all interesting lengths, or one of each kind.
    pub is_thorough: bool,
    /// What the server is known to do wrong.
    pub defects: &'static [Defect],
}

/// Explicit RDMA of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// RDMA Reads.
    pub reads: u64,
    /// RDMA Writes.
    pub writes: u64,
}

impl<'a, P: Provider> Scene<'a, P> {
    /// A scene with the credentials of the directory's owner.
    ///
    /// # Panics
    /// If there is no such directory.
    pub fn new(
        mut nfs: Nfs<P>,
        root: nfs_fh3,
        path: &'a Path,
        moved: &'a dyn Fn() -> Moved,
        inline: u32,
    ) -> Scene<'a, P> {
        let owner = fs::metadata(path).expect("the directory is there");
        nfs.rpc.set_credentials(&auth_unix {
            machinename: Opaque::borrowed(b"tests"),
            uid: owner.uid(),
            gid: owner.gid(),
            ..auth_unix::default()
        });
        Scene { nfs, root, path, moved, inline, is_thorough: true, defects: &[] }
    }

    /// An empty directory for a check: its handle and path.
    ///
    /// # Panics
    /// If the server does not find it.
    pub fn fresh(&mut self, name: &str) -> (nfs_fh3, PathBuf) {
        let path = self.path.join(name);
        // A check may run again with another configuration.
        if path.exists() {
            fs::remove_dir_all(&path).expect("what a check left can be removed");
        }
        fs::create_dir(&path).expect("a directory can be made");
        let found = self.nfs.lookup(&self.root, name.as_bytes()).expect("the server finds it");
        (found.object, path)
    }

    /// Whether the server is known to have a defect.
    pub fn has(&self, defect: Defect) -> bool {
        self.defects.contains(&defect)
    }

    /// Whether the connection speaks version one.
    ///
    /// # Panics
    /// If the client has never connected.
    pub fn is_one(&mut self) -> bool {
        let stats = self.nfs.rpc.client().handle().stats();
        assert!(
            stats.connections_version_one + stats.connections_version_two > 0,
            "the client is connected"
        );
        stats.connections_version_two == 0
    }
}

/// Every check, one after the other.
///
/// # Panics
/// If the server or the client fails a check.
pub fn all<P: Provider>(scene: &mut Scene<'_, P>) {
    kinds::every_kind_of_message(&mut scene.nfs, &scene.root, scene.defects);
    names::attributes_are_those_of_the_file_system(scene);
    names::names_of_every_length_are_found(scene);
    names::changes_are_made_in_the_file_system(scene);
    names::the_file_system_describes_itself(scene);
    links::targets_of_every_length_are_made_and_read(scene);
    directories::directories_are_read_in_replies_of_every_size(scene);
    data::reads_bring_what_is_in_the_file(scene);
    data::reads_stop_at_the_end(scene);
    data::writes_put_into_the_file_what_was_given(scene);
    data::long_calls_are_fetched_as_a_whole(scene);
    data::many_calls_are_in_flight(scene);
    refusals::failures_leave_memory_alone(scene);
    refusals::memory_that_is_too_small_fails_its_call_only(scene);
}

/// Bytes that depend on their position, and begin elsewhere for seeds next to each other or a power
/// of two apart.
pub fn pattern(seed: u32, len: usize) -> Vec<u8> {
    part_bytes(seed.wrapping_mul(0x9e37_79b1) >> 20, 0, len as u32)
}
