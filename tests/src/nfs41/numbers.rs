//! Numbers of RFC 8881: operations, statuses and flags, with the names that they have there.

/// Operations of COMPOUND (`nfs_opnum4`).
pub mod op {
    /// Rights on a file.
    pub const ACCESS: u32 = 3;
    /// Ends an open.
    pub const CLOSE: u32 = 4;
    /// Returns a delegation.
    pub const DELEGRETURN: u32 = 8;
    /// Attributes.
    pub const GETATTR: u32 = 9;
    /// The current file handle.
    pub const GETFH: u32 = 10;
    /// A name in a directory.
    pub const LOOKUP: u32 = 15;
    /// Opens a file.
    pub const OPEN: u32 = 18;
    /// Sets the current file handle.
    pub const PUTFH: u32 = 22;
    /// Sets it to the root.
    pub const PUTROOTFH: u32 = 24;
    /// Reads a file.
    pub const READ: u32 = 25;
    /// Entries of a directory.
    pub const READDIR: u32 = 26;
    /// Writes a file.
    pub const WRITE: u32 = 38;
    /// Associates a connection with a session.
    pub const BIND_CONN_TO_SESSION: u32 = 41;
    /// Names a client.
    pub const EXCHANGE_ID: u32 = 42;
    /// Makes a session.
    pub const CREATE_SESSION: u32 = 43;
    /// Ends a session.
    pub const DESTROY_SESSION: u32 = 44;
    /// Forgets a revoked state.
    pub const FREE_STATEID: u32 = 45;
    /// The security flavors of a directory.
    pub const SECINFO_NO_NAME: u32 = 52;
    /// Begins every COMPOUND of a session.
    pub const SEQUENCE: u32 = 53;
    /// Whether states are valid.
    pub const TEST_STATEID: u32 = 55;
    /// Ends a client.
    pub const DESTROY_CLIENTID: u32 = 57;
    /// Nothing is reclaimed any more.
    pub const RECLAIM_COMPLETE: u32 = 58;
    /// What stands in place of an operation that is not known.
    pub const ILLEGAL: u32 = 10_044;
}

/// Operations of CB_COMPOUND (`nfs_cb_opnum4`).
pub mod cb {
    /// Recalls a delegation.
    pub const RECALL: u32 = 4;
    /// Begins every CB_COMPOUND of a session.
    pub const SEQUENCE: u32 = 11;
    /// What stands in place of an operation that is not known.
    pub const ILLEGAL: u32 = 10_044;
}

/// Statuses (`nfsstat4`).
pub mod status {
    /// Success.
    pub const OK: u32 = 0;
    /// No such file.
    pub const NOENT: u32 = 2;
    /// No right.
    pub const ACCESS: u32 = 13;
    /// Not a directory.
    pub const NOTDIR: u32 = 20;
    /// The argument is invalid.
    pub const INVAL: u32 = 22;
    /// The file system cannot be written to.
    pub const ROFS: u32 = 30;
    /// The file handle is invalid.
    pub const BADHANDLE: u32 = 10_001;
    /// A size is too small.
    pub const TOOSMALL: u32 = 10_005;
    /// Try again later.
    pub const DELAY: u32 = 10_008;
    /// Too much is asked for.
    pub const RESOURCE: u32 = 10_018;
    /// There is no current file handle.
    pub const NOFILEHANDLE: u32 = 10_020;
    /// The minor version is not supported.
    pub const MINOR_VERS_MISMATCH: u32 = 10_021;
    /// The stateid is invalid.
    pub const BAD_STATEID: u32 = 10_025;
    /// The arguments cannot be decoded.
    pub const BADXDR: u32 = 10_036;
    /// The operation is not known.
    pub const OP_ILLEGAL: u32 = 10_044;
    /// The session is not known.
    pub const BADSESSION: u32 = 10_052;
    /// The slot does not exist.
    pub const BADSLOT: u32 = 10_053;
    /// The sequence number of a slot is neither the last nor the next.
    pub const SEQ_MISORDERED: u32 = 10_063;
    /// The first operation is not SEQUENCE.
    pub const OP_NOT_IN_SESSION: u32 = 10_071;
    /// A request was repeated whose reply was not kept.
    pub const RETRY_UNCACHED_REP: u32 = 10_068;
    /// The client is not known.
    pub const STALE_CLIENTID: u32 = 10_022;
    /// The operation is not supported.
    pub const NOTSUPP: u32 = 10_004;
    /// The client still has state.
    pub const CLIENTID_BUSY: u32 = 10_074;
}

/// Flags of `sr_status_flags`, which SEQUENCE returns.
pub mod flag {
    /// No connection for the back channel of any session.
    pub const CB_PATH_DOWN: u32 = 0x0000_0001;
    /// A recalled state was revoked.
    pub const RECALLABLE_STATE_REVOKED: u32 = 0x0000_0040;
    /// No connection for the back channel of this session.
    pub const CB_PATH_DOWN_SESSION: u32 = 0x0000_0200;
    /// The back channel is in an unrecoverable state.
    pub const BACKCHANNEL_FAULT: u32 = 0x0000_0400;
}

/// Flags of CREATE_SESSION.
pub mod session_flag {
    /// The connection of the request is also that of the back channel.
    pub const CONN_BACK_CHAN: u32 = 2;
}

/// Share access of OPEN, with what is wanted of a delegation.
pub mod access {
    /// To read.
    pub const READ: u32 = 1;
    /// To write.
    pub const WRITE: u32 = 2;
    /// Both.
    pub const BOTH: u32 = 3;
    /// With a read delegation.
    pub const WANT_READ_DELEG: u32 = 0x100;
    /// With a write delegation.
    pub const WANT_WRITE_DELEG: u32 = 0x200;
    /// Without a delegation.
    pub const WANT_NO_DELEG: u32 = 0x400;
}

/// Why there is no delegation (`why_no_delegation4`).
pub mod no_delegation {
    /// Someone else uses the file, or has just done so.
    pub const CONTENTION: u32 = 1;
    /// The server has not the means.
    pub const RESOURCE: u32 = 2;
}

/// Directions of a connection (`channel_dir_from_client4`, `channel_dir_from_server4`).
pub mod direction {
    /// The client asks for both if possible.
    pub const FORE_OR_BOTH: u32 = 3;
    /// The server grants both.
    pub const BOTH: u32 = 3;
}
