//! The binding of NFS version 2 (RFC 1094) in RFC 8267: the same four items as version 3.
//!
//! Data have at most 8192 bytes and paths 1024, so a reply is never long.

use super::binding::{Binding, Item, Procedure, ReplyMax};
use super::nfs3::{PORT, PROGRAM};

/// The binding.
pub const BINDING: Binding = Binding {
    name: "NFSv2",
    program: PROGRAM,
    version: 2,
    procedures: &PROCEDURES,
    others: None,
    port: Some(PORT),
};

/// Reads a symbolic link. Result: the path.
pub const READLINK: u32 = 5;
/// Reads a file. Result: the data.
pub const READ: u32 = 6;
/// Writes a file. Argument: the data.
pub const WRITE: u32 = 8;
/// Makes a symbolic link. Argument: the path. Attributes follow it.
pub const SYMLINK: u32 = 13;
/// Reads a directory.
pub const READDIR: u32 = 16;

const PROCEDURES: [Procedure; 18] = [
    procedure(0, "NULL", &[], &[], 0),
    procedure(1, "GETATTR", &[], &[], STATUS + FATTR),
    procedure(2, "SETATTR", &[], &[], STATUS + FATTR),
    procedure(3, "ROOT", &[], &[], 0),
    procedure(4, "LOOKUP", &[], &[], FOUND),
    procedure(READLINK, "READLINK", &[], &READLINK_PATH, STATUS + LENGTH),
    procedure(READ, "READ", &[], &READ_DATA, STATUS + FATTR + LENGTH),
    procedure(7, "WRITECACHE", &[], &[], 0),
    procedure(WRITE, "WRITE", &WRITE_DATA, &[], STATUS + FATTR),
    procedure(9, "CREATE", &[], &[], FOUND),
    procedure(10, "REMOVE", &[], &[], STATUS),
    procedure(11, "RENAME", &[], &[], STATUS),
    procedure(12, "LINK", &[], &[], STATUS),
    procedure(SYMLINK, "SYMLINK", &SYMLINK_PATH, &[], STATUS),
    procedure(14, "MKDIR", &[], &[], FOUND),
    procedure(15, "RMDIR", &[], &[], STATUS),
    Procedure {
        number: READDIR,
        name: "READDIR",
        arguments: &[],
        results: &[],
        // Whether another entry follows, and whether it was the last: beside the entries that the
        // count in the arguments allows.
        reply: ReplyMax::Asked(STATUS + WORD + WORD),
    },
    procedure(17, "STATFS", &[], &[], STATUS + 5 * WORD),
];

const WRITE_DATA: [Item; 1] = [item("writeargs.data", DATA_MAX)];
const SYMLINK_PATH: [Item; 1] = [link("symlinkargs.to", PATH_MAX)];
const READ_DATA: [Item; 1] = [item("readres.data", DATA_MAX)];
const READLINK_PATH: [Item; 1] = [link("readlinkres.data", PATH_MAX)];

const fn item(name: &'static str, len_max: u32) -> Item {
    Item { name, operation: None, len_max, is_link: false }
}

const fn link(name: &'static str, len_max: u32) -> Item {
    Item { is_link: true, ..item(name, len_max) }
}

const fn procedure(
    number: u32,
    name: &'static str,
    arguments: &'static [Item],
    results: &'static [Item],
    longest: u32,
) -> Procedure {
    Procedure { number, name, arguments, results, reply: ReplyMax::Fixed(longest) }
}

const DATA_MAX: u32 = 8192;
const PATH_MAX: u32 = 1024;
const WORD: u32 = 4;
/// The length of a DDP-eligible item: it stays in the stream.
const LENGTH: u32 = WORD;
const STATUS: u32 = WORD;
/// `fattr`: eleven words and three times.
const FATTR: u32 = 11 * WORD + 3 * 2 * WORD;
/// What LOOKUP, CREATE and MKDIR return: a handle of 32 bytes and attributes.
const FOUND: u32 = STATUS + 32 + FATTR;
