//! Programs other than NFS, without DDP-eligible items.
//!
//! NFSACL shares the connection of NFS. The others are small, and are usually reached over TCP;
//! they may be used here, as may any program without DDP-eligible items. The caller knows the
//! maximum length of their replies.

use super::binding::{Binding, Procedure, ReplyMax};

/// A program without DDP-eligible items in any procedure.
pub const fn binding(name: &'static str, program: u32, version: u32) -> Binding {
    Binding { name, program, version, procedures: &[], others: Some(&ANY), port: None }
}

/// The programs that RFC 8267 names, and related ones.
pub const BINDINGS: [Binding; 13] = [
    binding("NFSACLv2", NFSACL, 2),
    binding("NFSACLv3", NFSACL, 3),
    binding("MOUNTv1", MOUNT, 1),
    binding("MOUNTv2", MOUNT, 2),
    binding("MOUNTv3", MOUNT, 3),
    binding("NLMv1", NLM, 1),
    binding("NLMv3", NLM, 3),
    binding("NLMv4", NLM, 4),
    binding("NSMv1", NSM, 1),
    binding("RPCBINDv2", RPCBIND, 2),
    binding("RPCBINDv3", RPCBIND, 3),
    binding("RPCBINDv4", RPCBIND, 4),
    super::nfs4::CALLBACK,
];

/// Access control lists of NFS versions 2 and 3.
pub const NFSACL: u32 = 100_227;
/// The initial handles of NFS versions 2 and 3.
pub const MOUNT: u32 = 100_005;
/// Locks of NFS versions 2 and 3.
pub const NLM: u32 = 100_021;
/// Reboot notifications.
pub const NSM: u32 = 100_024;
/// Ports of programs.
pub const RPCBIND: u32 = 100_000;

const ANY: Procedure = Procedure {
    number: 0,
    name: "any procedure",
    arguments: &[],
    results: &[],
    reply: ReplyMax::Stated,
};
