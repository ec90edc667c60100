//! Files for a thread that polls: operations by io_uring, whose memory are loans.
//!
//! ```text
//!   loans ─▶ submit ─▶ [slots] ── flush: one system call for all ─▶ kernel ⇄ medium
//!   loans ◀─ completed ◀── read from memory ◀──────────────────────────┘
//! ```
//!
//! The rules:
//!
//! 1. The memory of an operation is moved into it and comes back with its result. While the kernel
//!    may access it, no safe code has a name for it; a storage that is dropped waits.
//! 2. Nothing waits and nothing is allocated once the storage is made. What exceeds its sizes is
//!    refused, and given back.
//! 3. A short result goes on, to the end of the file or an error.
//! 4. Requests whose addresses, lengths and offset are multiples of 4 KiB pass by the page cache,
//!    each by itself.
//! 5. Where io_uring is not to be had, threads do the same, and a [`Note`] says why.
//!
//! ```
//! use rpcrdma_storage::{Caching, Operation, Pieces, Storage, StorageOptions, SyncLevel};
//! # use rpcrdma_mempool::{
//! #     Access, BulkPool, Keys, PoolSpec, Region, RegionSpec, RegisterError, Registered,
//! #     Registrar, Rights,
//! # };
//! # struct Device;
//! # impl Registrar for Device {
//! #     fn register(&self, _: &Region, _: Rights) -> Result<Keys, RegisterError> {
//! #         Ok(Keys { lkey: 7, rkey: 8 })
//! #     }
//! #     fn deregister(&self, _: Keys) -> std::io::Result<()> {
//! #         Ok(())
//! #     }
//! # }
//! # let spec = PoolSpec { slots: 4, slot_len: 4096, align: 4096 };
//! # let region = Region::map(&RegionSpec { lock: false, ..RegionSpec::new(spec.bulk_region_len()?) })?;
//! # let device = std::sync::Arc::new(Device);
//! # let mut memory = Registered::new(region, device, Rights::own(Access::LOCAL_WRITE))?;
//! # let mut pool = BulkPool::new(&mut memory, &spec)?;
//! let mut storage = Storage::new(&StorageOptions::default())?;
//! storage.notes().iter().for_each(|note| eprintln!("{note}"));
//! storage.register([memory.hold()]);
//! # let path = std::env::temp_dir().join(format!("rpcrdma-storage-{}", std::process::id()));
//! let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
//! # std::fs::remove_file(&path)?;
//! let file = storage.add(file, Caching::Direct)?;
//!
//! let mut block = pool.take().ok_or("no block is free")?;
//! block.fill(7);
//! let from = Pieces::from_iter([block]);
//! storage.submit(Operation::Write { file, offset: 8192, from }, "a write")?;
//! let mut is_on_the_medium = false;
//! while !is_on_the_medium {
//!     storage.flush(); // a thread with other work does that now; this one has none
//!     storage.wait()?;
//!     while let Some(done) = storage.completed() {
//!         match done.tag {
//!             "a write" => {
//!                 assert_eq!(done.result?.bytes(), 4096);
//!                 storage.submit(Operation::Sync { file, level: SyncLevel::Data }, "a sync")?;
//!             }
//!             _ => is_on_the_medium = done.result.is_ok(),
//!         }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `storage`
//! - `way`
//! - `ring`, `slot`, `threads`
//! - `vector`
//! - `operation`, `request`
//! - `files`, `options`, `stat`

#[cfg(test)]
mod faults;
mod files;
mod operation;
mod options;
mod request;
mod ring;
mod slot;
mod stat;
mod storage;
#[cfg(test)]
mod tests;
mod threads;
mod vector;
mod way;

pub use files::{ALIGNMENT, Caching, FileId};
pub use operation::{
    Done, Operation, OperationId, Output, PIECES_MAX, Pieces, Refusal, Refused, SyncLevel,
};
pub use options::{Note, StorageOptions};
pub use stat::Stat;
pub use storage::Storage;
