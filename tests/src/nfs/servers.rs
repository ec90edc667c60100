//! NFS servers of other projects: how they differ, and what they count.

use std::cell::Cell;
use std::env;
use std::fs;
use std::path::Path;

use rpcrdma_config::Raw;

use super::{Defect, Moved, defects};

/// A server, and how it differs from others.
pub(super) struct Kind {
    name: &'static str,
    /// Its default inline thresholds.
    pub inline: u32,
    /// Whether it invalidates a key with its reply.
    pub invalidates: bool,
    /// Whether it states what it counts and receives commands in `/proc`.
    is_kernel: bool,
    pub defects: &'static [Defect],
    /// What it needs of `[interop]`.
    pub interop: fn(&mut Raw),
}

pub(super) const KINDS: [Kind; 3] = [
    Kind {
        name: "kernel",
        inline: 4096,
        invalidates: true,
        is_kernel: true,
        defects: &[],
        interop: |_| {},
    },
    Kind { name: "ganesha", defects: defects::GANESHA, interop: for_ganesha, ..GANESHA },
    Kind {
        name: "ganesha-unpatched",
        defects: defects::GANESHA_UNPATCHED,
        interop: |raw| {
            for_ganesha(raw);
            raw.interop.write_chunk_padding = true;
        },
        ..GANESHA
    },
];

/// It states no sizes, so a message has 1024 bytes (RFC 8166 3.3.2).
const GANESHA: Kind = Kind {
    name: "",
    inline: 1024,
    invalidates: false,
    is_kernel: false,
    defects: &[],
    interop: for_ganesha,
};

fn for_ganesha(raw: &mut Raw) {
    raw.interop.read_chunk_last = true;
    raw.interop.links_in_line = true;
}

/// The server that is there.
pub(super) fn kind() -> &'static Kind {
    let name = env::var("RPCRDMA_TEST_NFS").unwrap_or_else(|_| "kernel".into());
    KINDS.iter().find(|kind| kind.name == name).unwrap_or_else(|| panic!("no server is {name}"))
}

/// Whether the kernel's server is there, which a test controls by `/proc`; says so if not.
pub(super) fn is_kernel() -> bool {
    let kind = kind();
    if !kind.is_kernel {
        eprintln!("SKIPPED: for the kernel's server, and this is {}", kind.name);
    }
    kind.is_kernel
}

/// What the server has counted of its RDMA Reads and Writes. One that counts nothing has more at
/// every look.
pub(super) fn moved() -> Moved {
    if !kind().is_kernel {
        let looks = LOOKS.get() + 1;
        LOOKS.set(looks);
        return Moved { reads: looks, writes: looks };
    }
    let count = |name: &str| {
        let path = Path::new("/proc/sys/sunrpc/svc_rdma").join(name);
        let text = fs::read_to_string(&path).expect("a counter of the server");
        text.trim().parse().expect("a number")
    };
    Moved { reads: count("rdma_stat_read"), writes: count("rdma_stat_write") }
}

thread_local! { static LOOKS: Cell<u64> = const { Cell::new(0) }; }
