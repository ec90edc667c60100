//! Memory that a device may access, with one owner for each buffer.
//!
//! ```text
//!   Region ──register──▶ Registered ──carve──▶ SendPool   Token<Send>  program ⇄ device
//!   pages, node, lock     keys                 RecvPool   Token<Recv>  device ⇄ program
//!                                                └─ detach ─▶ Loan     program, any thread ─▶ pool
//!                                              BulkPool ────▶ Loan
//!                                              ZeroPage
//! ```
//!
//! The rules:
//!
//! 1. A buffer has exactly one owner. The owner holds a value that can be moved and not copied: a
//!    [`Token`] inside the engine, a [`Loan`] in a program. While the device owns the buffer, no
//!    such value exists.
//! 2. A pool belongs to one thread, does not allocate after it is made, and takes no lock. Only a
//!    loan crosses threads, and only its return is shared between threads.
//! 3. Memory is registered exactly as long as a part of it is alive. The last pool or loan
//!    deregisters it, also after a failure or a panic.
//! 4. Memory that a device may still write to is leaked, and not used again. A pool that is dropped
//!    with tokens out leaks its memory; `recall` is for callers that know that the device is quiet.
//! 5. What was requested and not provided is reported: see [`Region::notes`].
//!
//! ```
//! use rpcrdma_mempool::{
//!     Access, BulkPool, Keys, PageSize, PoolSpec, Region, RegionSpec, RegisterError, Registered,
//!     Registrar, Rights,
//! };
//! # struct Device;
//! # impl Registrar for Device {
//! #     fn register(&self, _: &Region, _: Rights) -> Result<Keys, RegisterError> {
//! #         Ok(Keys { lkey: 7, rkey: 8 })
//! #     }
//! #     fn deregister(&self, _: Keys) -> std::io::Result<()> {
//! #         Ok(())
//! #     }
//! # }
//! # let device = std::sync::Arc::new(Device);
//! let blocks = PoolSpec { slots: 4, slot_len: 64 << 10, align: 4096 };
//! let spec = RegionSpec { pages: PageSize::Huge2M, ..RegionSpec::new(blocks.bulk_region_len()?) };
//! let region = Region::map(&spec)?;
//! println!("{} pages", region.page_size());
//! region.notes().iter().for_each(|note| println!("{note}"));
//!
//! let mut memory = Registered::new(region, device, Rights::own(Access::LOCAL_WRITE))?;
//! let mut pool = BulkPool::new(&mut memory, &blocks)?;
//! let mut block = pool.take().expect("four are free");
//! block.fill(1);
//! assert_eq!(block.sge(0..4096).lkey, 7);
//! std::thread::spawn(move || drop(block)).join().expect("does not panic");
//! pool.reclaim();
//! assert_eq!(pool.free(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `bulk`, `bytes`, `recv`, `send`
//! - `loan`
//! - `pool`
//! - `registered`, `slot`
//! - `registrar`
//! - `region`
//! - `free_list`, `memfd`
//! - `file_size`, `pin`, `process_limit`, `returns`, `smaps`, `token`, `topology`

pub mod bulk;
pub mod bytes;
pub mod file_size;
mod free_list;
pub mod loan;
pub mod memfd;
pub mod pin;
pub mod pool;
pub mod process_limit;
pub mod recv;
pub mod region;
pub mod registered;
pub mod registrar;
mod returns;
pub mod send;
pub mod slot;
mod smaps;
#[cfg(test)]
mod testing;
pub mod token;
pub mod topology;

pub use bulk::BulkPool;
pub use bytes::{RegisteredBytes, RegisteredSlice};
pub use free_list::FreeListError;
pub use loan::{Loan, RawLoan};
pub use pin::{PinError, allowed_cores, pin_to};
pub use pool::{Pool, PoolError, PoolSpec};
pub use recv::{RecvPool, RecvSpec};
pub use region::{Note, PageSize, Region, RegionError, RegionSpec};
pub use registered::{RegionFull, RegionHold, Registered, Span};
pub use registrar::{Access, Keys, RegisterError, Registrar, Rights, Sge};
pub use send::{SendPool, SendSpec, ZeroPage};
pub use slot::{HEADROOM, SendSlot};
pub use token::kind::Recv;
pub use token::{Quiet, RecvToken, SLOTS_MAX, SendToken, Token, kind};
pub use topology::Topology;
