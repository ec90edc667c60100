//! What joins a storage to its shard: the memory that it reads and writes, and the shard's sleep.

use std::os::fd::BorrowedFd;

use rpcrdma_mempool::Registered;
use rpcrdma_storage::Storage;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::handle::ShardHandle;

/// What a turn has for storages.
pub(crate) struct Joint<'a> {
    /// The regions of the shard.
    pub regions: &'a [(&'static str, Registered)],
    /// What ends the shard's sleep.
    pub wait_set: BorrowedFd<'a>,
    /// A storage had work.
    pub has_worked: bool,
}

impl Joint<'_> {
    /// Begins what was submitted; the first time, joins the storage to the shard.
    #[inline]
    pub fn drive<T>(&mut self, storage: &mut Storage<T>, shard: &ShardHandle) {
        if !storage.has_joined() {
            self.join(storage, shard.clone());
        }
        if storage.flush() {
            shard.wake();
        }
        self.has_worked |= storage.take_worked();
    }

    #[cold]
    fn join<T>(&self, storage: &mut Storage<T>, shard: ShardHandle) {
        let lends = |name: &str| !["send slots", "padding"].contains(&name);
        let regions = self.regions.iter().filter(|(name, _)| lends(name));
        storage.register(regions.map(|(_, registered)| registered.hold()));
        let watch = |ring: BorrowedFd<'_>| {
            Ok(epoll::add(self.wait_set, ring, EventData::new_u64(0), EventFlags::IN)?)
        };
        storage.join(watch, move || shard.wake());
    }
}
