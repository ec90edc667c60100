//! The binding of NFS version 4, all minor versions, in RFC 8267.
//!
//! COMPOUND is a list of operations: begin each with its number
//! ([`BoundCall::operation`](super::BoundCall::operation),
//! [`Items::operation`](super::Items::operation),
//! [`BoundReply::operation`](super::BoundReply::operation)). Items are matched within their
//! operation, so a READ that fails does not use up the result buffer of the next (`wire.md` E24).
//! In version one all Write chunks of a call are one list. The engine offers one chunk unless
//! `interop.write_chunks_max` is larger: the results of further operations stay in the stream.
//!
//! READ_PLUS has no DDP-eligible item, because its caller cannot know how its data will be split.
//! Only the caller can sum up the maximum length of a COMPOUND's reply, or take it from its session
//! (`ca_maxresponsesize`). The callbacks are a separate program: [`CALLBACK`].

use super::binding::{Binding, Item, Procedure, ReplyMax};
use super::nfs3::{PORT, PROGRAM};

/// The binding.
pub const BINDING: Binding = Binding {
    name: "NFSv4",
    program: PROGRAM,
    version: 4,
    procedures: &[
        Procedure {
            number: NULL,
            name: "NULL",
            arguments: &[],
            results: &[],
            reply: ReplyMax::Fixed(0),
        },
        Procedure {
            number: COMPOUND,
            name: "COMPOUND",
            arguments: &[
                link("createtype4.linkdata", OP_CREATE),
                item("WRITE4args.data", OP_WRITE),
            ],
            results: &[item("READ4resok.data", OP_READ), link("READLINK4resok.link", OP_READLINK)],
            reply: ReplyMax::Stated,
        },
    ],
    others: None,
    port: Some(PORT),
};

/// The callbacks of minor version 1 and later, on the backward direction; the client gave the
/// program number with its session. Nothing is DDP-eligible.
pub const fn callback(program: u32) -> Binding {
    Binding { program, ..CALLBACK }
}

/// The callbacks, under the number that most clients use.
pub const CALLBACK: Binding = Binding {
    name: "NFSv4 callback",
    program: 0x4000_0000,
    version: 1,
    procedures: &[
        Procedure {
            number: NULL,
            name: "CB_NULL",
            arguments: &[],
            results: &[],
            reply: ReplyMax::Fixed(0),
        },
        Procedure {
            number: COMPOUND,
            name: "CB_COMPOUND",
            arguments: &[],
            results: &[],
            reply: ReplyMax::Stated,
        },
    ],
    others: None,
    port: None,
};

/// Does nothing.
pub const NULL: u32 = 0;
/// A list of operations.
pub const COMPOUND: u32 = 1;

/// Creates an object other than a regular file. Argument: the path, of a symbolic link.
pub const OP_CREATE: u32 = 6;
/// Reads a file. Result: the data.
pub const OP_READ: u32 = 25;
/// Reads a symbolic link. Result: the path.
pub const OP_READLINK: u32 = 27;
/// Writes a file. Argument: the data.
pub const OP_WRITE: u32 = 38;

/// No length is limited by the protocol.
const fn item(name: &'static str, operation: u32) -> Item {
    Item { name, operation: Some(operation), len_max: u32::MAX, is_link: false }
}

const fn link(name: &'static str, operation: u32) -> Item {
    Item { is_link: true, ..item(name, operation) }
}
