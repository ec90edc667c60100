//! Upper-layer bindings: the DDP-eligible data items of RPC programs.
//!
//! RFC 8166 6.1 permits DDP only for the items that the program's binding names, and requires a
//! known maximum length of the reply before a call is sent (6.2). A program states both in a table,
//! and calls and answers by it: other items cannot be placed by mistake, and items that a peer
//! placed in violation of the binding are detected.
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
//! [`nfs3`] and [`nfs2`] are complete, and [`nfs4`] has the operations of its COMPOUND; [`none`]
//! lists other programs without DDP-eligible items. The engine has no codec for these programs: the
//! writer or reader of a message calls it when an item is reached.
//!
//! ```
//! use rpcrdma::ulb::{Protection, nfs3};
//!
//! let read = nfs3::BINDING.bind(nfs3::READ, Protection::None)?;
//! assert_eq!(read.procedure().results[0].name, "READ3resok.data");
//! // A GETATTR has nothing that may be placed, either way.
//! let getattr = nfs3::BINDING.bind(nfs3::GETATTR, Protection::None)?;
//! assert!(getattr.procedure().arguments.is_empty() && getattr.procedure().results.is_empty());
//! // Under RPCSEC_GSS with integrity or privacy all of it stays in the message.
//! assert!(!Protection::Privacy.may_place());
//! # Ok::<(), rpcrdma::ulb::BindError>(())
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
