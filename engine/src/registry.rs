//! The shard registry: the shards of an engine that have not ended.

use std::sync::{Mutex, PoisonError};

use crate::handle::{ShardHandle, ShardState, WeakShardHandle};

/// All shards of an engine, polled by it or by the program.
#[derive(Default)]
pub(crate) struct ShardRegistry(Mutex<Vec<WeakShardHandle>>);

impl ShardRegistry {
    /// Adds a new shard.
    pub fn register(&self, shard: &ShardHandle) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|entry| entry.upgrade().as_ref().is_some_and(is_alive));
        list.push(shard.downgrade());
    }

    /// The shards that have not ended, in the order of their numbers.
    pub fn shards(&self) -> Vec<ShardHandle> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shards: Vec<ShardHandle> =
            list.iter().filter_map(WeakShardHandle::upgrade).filter(is_alive).collect();
        shards.sort_by_key(ShardHandle::shard);
        shards
    }
}

/// Whether a shard has not ended. One that has panicked is alive until it is dropped.
fn is_alive(shard: &ShardHandle) -> bool {
    shard.state() != ShardState::Ended
}
