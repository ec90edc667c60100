//! The binding of NFS version 3 (RFC 1813) in RFC 8267.
//!
//! Four items of four procedures are DDP-eligible, so a call has at most one argument for RDMA Read
//! and at most one result for RDMA Write: lists of one chunk, which every server supports. The
//! maximum length of a reply follows from the XDR except for READDIR and READDIRPLUS, which are as
//! long as their arguments allow ([`BoundCall::asks`](super::BoundCall::asks)). A READ or READLINK
//! that fails has no item.
//!
//! Other rules of RFC 8267: a reliable connection does not report that a server is gone, so a
//! client keeps a credit for an occasional NULL call with a deadline, or sets
//! `connections.call_timeout`. A server ignores the source port when it detects duplicate calls,
//! because an RDMA client cannot choose it.

use super::binding::{Binding, Item, Procedure, ReplyMax};

/// The binding.
pub const BINDING: Binding = Binding {
    name: "NFSv3",
    program: PROGRAM,
    version: 3,
    procedures: &PROCEDURES,
    others: None,
    port: Some(PORT),
};

/// The program number of NFS, in all versions.
pub const PROGRAM: u32 = 100_003;
/// The port of NFS on RDMA, without rpcbind.
pub const PORT: u16 = 20_049;

/// Does nothing.
pub const NULL: u32 = 0;
/// Gets attributes.
pub const GETATTR: u32 = 1;
/// Sets attributes.
pub const SETATTR: u32 = 2;
/// Looks a name up.
pub const LOOKUP: u32 = 3;
/// Checks rights.
pub const ACCESS: u32 = 4;
/// Reads a symbolic link. Result: the path.
pub const READLINK: u32 = 5;
/// Reads a file. Result: the data.
pub const READ: u32 = 6;
/// Writes a file. Argument: the data.
pub const WRITE: u32 = 7;
/// Makes a file.
pub const CREATE: u32 = 8;
/// Makes a directory.
pub const MKDIR: u32 = 9;
/// Makes a symbolic link. Argument: the path.
pub const SYMLINK: u32 = 10;
/// Makes a special file.
pub const MKNOD: u32 = 11;
/// Removes a file.
pub const REMOVE: u32 = 12;
/// Removes a directory.
pub const RMDIR: u32 = 13;
/// Renames.
pub const RENAME: u32 = 14;
/// Makes a hard link.
pub const LINK: u32 = 15;
/// Reads a directory.
pub const READDIR: u32 = 16;
/// Reads a directory with attributes and handles.
pub const READDIRPLUS: u32 = 17;
/// Gets the state of a file system.
pub const FSSTAT: u32 = 18;
/// Gets the capabilities of a file system.
pub const FSINFO: u32 = 19;
/// Gets limits of paths.
pub const PATHCONF: u32 = 20;
/// Commits what was written to stable storage.
pub const COMMIT: u32 = 21;

const PROCEDURES: [Procedure; 22] = [
    plain(NULL, "NULL", 0),
    plain(GETATTR, "GETATTR", STATUS + FATTR),
    plain(SETATTR, "SETATTR", STATUS + WCC_DATA),
    plain(LOOKUP, "LOOKUP", STATUS + FILE_HANDLE + POST_OP_ATTR + POST_OP_ATTR),
    plain(ACCESS, "ACCESS", STATUS + POST_OP_ATTR + WORD),
    returns(READLINK, "READLINK", &READLINK_PATH, STATUS + POST_OP_ATTR + LENGTH),
    returns(READ, "READ", &READ_DATA, STATUS + POST_OP_ATTR + WORD + WORD + LENGTH),
    takes(WRITE, "WRITE", &WRITE_DATA, STATUS + WCC_DATA + WORD + WORD + VERIFIER),
    plain(CREATE, "CREATE", MADE),
    plain(MKDIR, "MKDIR", MADE),
    takes(SYMLINK, "SYMLINK", &SYMLINK_PATH, MADE),
    plain(MKNOD, "MKNOD", MADE),
    plain(REMOVE, "REMOVE", STATUS + WCC_DATA),
    plain(RMDIR, "RMDIR", STATUS + WCC_DATA),
    plain(RENAME, "RENAME", STATUS + WCC_DATA + WCC_DATA),
    plain(LINK, "LINK", STATUS + POST_OP_ATTR + WCC_DATA),
    lists(READDIR, "READDIR"),
    lists(READDIRPLUS, "READDIRPLUS"),
    plain(FSSTAT, "FSSTAT", STATUS + POST_OP_ATTR + 6 * HYPER + WORD),
    plain(FSINFO, "FSINFO", STATUS + POST_OP_ATTR + 7 * WORD + HYPER + TIME + WORD),
    plain(PATHCONF, "PATHCONF", STATUS + POST_OP_ATTR + 6 * WORD),
    plain(COMMIT, "COMMIT", STATUS + WCC_DATA + VERIFIER),
];

const WRITE_DATA: [Item; 1] = [item("WRITE3args.data")];
const SYMLINK_PATH: [Item; 1] = [link("symlinkdata3.symlink_data")];
const READ_DATA: [Item; 1] = [item("READ3resok.data")];
const READLINK_PATH: [Item; 1] = [link("READLINK3resok.data")];

/// No length is limited by the protocol.
const fn item(name: &'static str) -> Item {
    Item { name, operation: None, len_max: u32::MAX, is_link: false }
}

const fn link(name: &'static str) -> Item {
    Item { is_link: true, ..item(name) }
}

const fn plain(number: u32, name: &'static str, longest: u32) -> Procedure {
    Procedure { number, name, arguments: &[], results: &[], reply: ReplyMax::Fixed(longest) }
}

const fn takes(
    number: u32,
    name: &'static str,
    arguments: &'static [Item],
    longest: u32,
) -> Procedure {
    Procedure { number, name, arguments, results: &[], reply: ReplyMax::Fixed(longest) }
}

const fn returns(
    number: u32,
    name: &'static str,
    results: &'static [Item],
    longest: u32,
) -> Procedure {
    Procedure { number, name, arguments: &[], results, reply: ReplyMax::Fixed(longest) }
}

/// The count in the arguments covers the whole of the success arm, but some servers count only the
/// entries: so attributes, cookie verifier and the last two words are added.
const fn lists(number: u32, name: &'static str) -> Procedure {
    let beside = STATUS + POST_OP_ATTR + VERIFIER + WORD + WORD;
    Procedure { number, name, arguments: &[], results: &[], reply: ReplyMax::Asked(beside) }
}

const WORD: u32 = 4;
const HYPER: u32 = 8;
/// The length of a DDP-eligible item: it stays in the stream.
const LENGTH: u32 = WORD;
const STATUS: u32 = WORD;
const TIME: u32 = 2 * WORD;
/// `cookieverf3`, `writeverf3`.
const VERIFIER: u32 = 8;
/// `nfs_fh3`: a length and up to 64 bytes.
const FILE_HANDLE: u32 = WORD + 64;
/// `fattr3`: type, mode, links, owner, group; size, used, device, file system, file id; three times.
const FATTR: u32 = 5 * WORD + 5 * HYPER + 3 * TIME;
/// `post_op_attr`: whether there are attributes, and these.
const POST_OP_ATTR: u32 = WORD + FATTR;
/// `pre_op_attr`: whether there are some, size and two times.
const PRE_OP_ATTR: u32 = WORD + HYPER + 2 * TIME;
const WCC_DATA: u32 = PRE_OP_ATTR + POST_OP_ATTR;
/// What CREATE, MKDIR, SYMLINK and MKNOD return: handle and attributes of the new, and the
/// directory's.
const MADE: u32 = STATUS + WORD + FILE_HANDLE + POST_OP_ATTR + WCC_DATA;
