//! Upper-layer bindings: the DDP-eligible data items of RPC programs.
//!
//! RFC 8166 6.1 lets only those items leave the stream that the binding of the program names, and
//! wants the longest reply known before a call is sent (6.2). Here a program states both once, in
//! a table, and calls and answers by it: what is not in the table cannot be placed by mistake, and
//! what a peer placed without right is found.
//!
//! ```text
//!                       Binding (const): program, version, procedures, items, longest replies
//!                          │ bind(procedure, protection)
//!                          ▼
//!   client  call() ──▶ BoundCall   argument(), result(), submit()     ──▶  server
//!           results() ◀── Items    data(), end()                      ◀──  reply() ──▶ BoundReply
//!                                                                          arguments() ──▶ Items
//! ```
//!
//! [`nfs3`] is worked out in full, [`nfs2`] as well, and [`nfs4`] with the operations of its
//! COMPOUND; [`none`] lists the programs beside NFS that have nothing to place. The engine has no
//! coder of any of these programs: it learns from the one who writes or reads a message when an item
//! is reached.
//!
//! ```
//! use rpcrdma_engine::ulb::{Protection, nfs3};
//!
//! let read = nfs3::BINDING.bind(nfs3::READ, Protection::None)?;
//! assert_eq!(read.procedure().results[0].name, "READ3resok.data");
//! // A GETATTR has nothing that may be placed, either way.
//! let getattr = nfs3::BINDING.bind(nfs3::GETATTR, Protection::None)?;
//! assert!(getattr.procedure().arguments.is_empty() && getattr.procedure().results.is_empty());
//! // Under RPCSEC_GSS with integrity or privacy all of it stays in the message.
//! assert!(!Protection::Privacy.may_place());
//! # Ok::<(), rpcrdma_engine::ulb::BindError>(())
//! ```

mod binding;
mod call;
mod data;
mod items;
pub mod nfs2;
pub mod nfs3;
pub mod nfs4;
pub mod none;
mod protection;
mod reply;

pub use binding::{BindError, Binding, Bound, Item, Procedure, ReplyMax};
pub use call::BoundCall;
pub use data::{Data, Slices};
pub use items::{ItemError, Items};
pub use protection::Protection;
pub use reply::BoundReply;
