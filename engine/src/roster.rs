//! The roster: the shards of an engine that have not ended.

use std::sync::{Mutex, PoisonError};

use crate::handle::{ShardHandle, ShardState, WeakShardHandle};

/// All shards of an engine, whoever polls them.
#[derive(Default)]
pub(crate) struct Roster(Mutex<Vec<WeakShardHandle>>);

impl Roster {
    /// Enters a new shard.
    pub fn enter(&self, shard: &ShardHandle) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|entry| entry.upgrade().as_ref().is_some_and(is_there));
        list.push(shard.downgrade());
    }

    /// The shards that have not ended, in the order of their numbers.
    pub fn shards(&self) -> Vec<ShardHandle> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shards: Vec<ShardHandle> =
            list.iter().filter_map(WeakShardHandle::upgrade).filter(is_there).collect();
        shards.sort_by_key(ShardHandle::shard);
        shards
    }
}

/// Whether a shard has not ended. One that has panicked is there until it is dropped.
fn is_there(shard: &ShardHandle) -> bool {
    shard.state() != ShardState::Ended
}
