//! All interleavings of using a key and invalidating it, by loom.
#![expect(unsafe_code, reason = "loom watches memory that two threads share")]

use loom::sync::Arc;
use loom::thread;

use rpcrdma_mempool::{Access, Keys, Registrar};

use crate::keys::{KeyCache, KeyTable};

/// Memory that a key names: loom sees it when two threads touch it at once.
struct Memory(loom::cell::UnsafeCell<u8>);
// SAFETY: what the test is about; loom checks every access.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

#[test]
fn memory_is_not_accessed_after_its_key_was_invalidated() {
    loom::model(|| {
        let table = std::sync::Arc::new(KeyTable::default());
        let rkey = table.insert(0x1000, 1, Access::REMOTE_WRITE).unwrap();
        let (mut keys, reader) = KeyCache::new(std::sync::Arc::clone(&table));
        let memory = Arc::new(Memory(loom::cell::UnsafeCell::new(1)));
        let theirs = Arc::clone(&memory);
        let poller = thread::spawn(move || {
            for _ in 0..2 {
                reader.begin(&mut keys);
                if keys.locate(rkey, 0, 1).is_some() {
                    theirs.0.with_mut(|_| ());
                }
                reader.end();
            }
        });
        table.deregister(Keys { lkey: rkey, rkey }).unwrap();
        memory.0.with_mut(|_| ());
        poller.join().unwrap();
    });
}
