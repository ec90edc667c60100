//! All protocol numbers and size limits, each with the document that assigns it.
//!
//! Renumbering the protocol changes this file only, except for the numbers of properties
//! (`pv_which`), which are in the table of [`crate::property`]. There is no choice of numbering at
//! run time (wire.md, "Numbers").
//!
//! `[V2]` is draft-cel-nfsv4-rpcrdma-version-two-00, `[XCHAR]` is
//! draft-dnoveck-nfsv4-rpcrdma-xcharext-03, `[RTR]` is draft-dnoveck-nfsv4-rpcrdma-rtrext-02.

/// `rdma_vers` of version one (RFC 8166 4.2.2).
pub const VERSION_ONE: u32 = 1;
/// `rdma_vers` of version two (\[V2\] 4.2; wire.md N6 on later drafts that use the same number).
pub const VERSION_TWO: u32 = 2;

/// Values of `rdma_proc` (RFC 8166 4.1.2, \[V2\] 4.2).
pub mod proc {
    /// A payload stream follows the header.
    pub const MSG: u32 = 0;
    /// The payload stream is moved by explicit RDMA.
    pub const NOMSG: u32 = 1;
    /// Reserved (wire.md B6).
    pub const MSGP: u32 = 2;
    /// Reserved (wire.md B6).
    pub const DONE: u32 = 3;
    /// An error report.
    pub const ERROR: u32 = 4;
    /// Version two only: one of [`super::opttype`].
    pub const OPTIONAL: u32 = 5;
}

/// Values of `rdma_err` (RFC 8166 4.1.2, \[V2\] 4.2).
pub mod errcode {
    /// The version is not supported.
    pub const VERS: u32 = 1;
    /// The header is invalid. Version one calls it ERR_CHUNK (wire.md N5).
    pub const BAD_HEADER: u32 = 2;
    /// Version two only: the optional operation is not supported.
    pub const INVAL_OPTION: u32 = 3;
}

/// Values of `rdma_opttype` (wire.md N1).
pub mod opttype {
    /// Specify properties at connection (\[XCHAR\] 4.1).
    pub const CONNPROP: u32 = 1;
    /// Request property modification (\[XCHAR\] 4.2).
    pub const REQPROP: u32 = 2;
    /// Respond to a modification request (\[XCHAR\] 4.3).
    pub const RESPROP: u32 = 3;
    /// Report updated properties (\[XCHAR\] 4.4).
    pub const UPDPROP: u32 = 4;
    /// Transmit request (\[RTR\] 9.2, Table 4).
    pub const XMTREQ: u32 = 5;
    /// Transmit response (\[RTR\] 9.3, Table 4).
    pub const XMTRESP: u32 = 6;
    /// Transmit continue (\[RTR\] 9.4, Table 4).
    pub const XMTCONT: u32 = 7;
    /// Report error (\[RTR\] 9.5, Table 4).
    pub const REPTERR: u32 = 8;
}

/// Values of `bkreqsup` (\[XCHAR\] 3.3).
pub mod bkreqsup {
    /// Backward messages are not received.
    pub const NONE: u32 = 0;
    /// Only inline backward messages are received.
    pub const INLINE: u32 = 1;
    /// Backward messages are received as forward ones are.
    pub const GENL: u32 = 2;
}

/// Bits of the RTR Support property (\[RTR\] 8.2; wire.md E33).
pub mod rtrs {
    /// Transmit Request.
    pub const XREQ: u32 = 1;
    /// Transmit Response.
    pub const XRESP: u32 = 2;
    /// Transmit Continue.
    pub const XCONT: u32 = 4;
}

/// Values of `xmdp_type` (\[RTR\] 6.2; wire.md N3).
pub mod placement {
    /// Explicit RDMA.
    pub const EXRW: u32 = 1;
    /// Placement by Send, in numbered buffer segments.
    pub const TBSN: u32 = 2;
    /// The responder chooses between the two.
    pub const CHOICE: u32 = 3;
    /// The item's size chooses between the two.
    pub const BYSIZE: u32 = 4;
    /// A result: the item was too short and is in the payload stream.
    pub const TOOSHORT: u32 = 5;
    /// A result: the item does not exist.
    pub const NOITEM: u32 = 6;
}

/// Bits of `xmrseg_flags` (\[RTR\] 7.2).
pub mod segment_flag {
    /// The segment is a target for placed data (`XMRSFLAG_PLT`).
    pub const PLT: u32 = 1;
}

/// Values of `optr_err` (\[RTR\] 9.5; wire.md N4).
pub mod report {
    /// Another `rdma_proc` was expected.
    pub const BADHMT: u32 = 1;
    /// Another `rdma_opttype` was expected.
    pub const BADOMT: u32 = 2;
    /// No continuation was expected.
    pub const BADCONT: u32 = 3;
    /// Another transmission number was expected.
    pub const BADSEQ: u32 = 4;
    /// Another xid was expected.
    pub const BADXID: u32 = 5;
    /// The offset is not valid.
    pub const BADOFF: u32 = 6;
    /// The target buffer segment number is not valid.
    pub const BADTBSN: u32 = 7;
    /// The payload length is not valid.
    pub const BADPL: u32 = 8;
}

/// Values of `msg_type` (RFC 5531 9; wire.md X8).
pub mod msg_type {
    /// A call.
    pub const CALL: u32 = 0;
    /// A reply.
    pub const REPLY: u32 = 1;
}

/// ONC RPC (RFC 5531).
pub mod onc {
    /// `rpcvers`: the version of RPC (RFC 5531 9).
    pub const VERSION: u32 = 2;

    /// Values of `reply_stat` (RFC 5531 9).
    pub mod reply_stat {
        /// The call was accepted; it may not have been executed.
        pub const ACCEPTED: u32 = 0;
        /// The call was denied.
        pub const DENIED: u32 = 1;
    }

    /// Values of `accept_stat` (RFC 5531 9).
    pub mod accept_stat {
        /// The call was executed.
        pub const SUCCESS: u32 = 0;
        /// The program is not available.
        pub const PROG_UNAVAIL: u32 = 1;
        /// The version of the program is not available.
        pub const PROG_MISMATCH: u32 = 2;
        /// The procedure is not available.
        pub const PROC_UNAVAIL: u32 = 3;
        /// The arguments cannot be decoded.
        pub const GARBAGE_ARGS: u32 = 4;
        /// A system error of the server, such as lack of memory.
        pub const SYSTEM_ERR: u32 = 5;
    }

    /// Values of `reject_stat` (RFC 5531 9).
    pub mod reject_stat {
        /// The version of RPC is not supported.
        pub const RPC_MISMATCH: u32 = 0;
        /// The caller is not authenticated.
        pub const AUTH_ERROR: u32 = 1;
    }

    /// Values of `auth_stat` (RFC 5531 9) that this project uses.
    pub mod auth_stat {
        /// The credentials are malformed.
        pub const BADCRED: u32 = 1;
        /// The verifier is malformed.
        pub const BADVERF: u32 = 3;
    }

    /// Values of `auth_flavor` (RFC 5531 8.2, 14; RFC 2203 5).
    pub mod auth_flavor {
        /// No credentials.
        pub const NONE: u32 = 0;
        /// User and groups, as the caller states.
        pub const SYS: u32 = 1;
        /// RPCSEC_GSS.
        pub const GSS: u32 = 6;
    }
}

/// The eight bytes of connection private data (RFC 8797 4).
pub mod private_data {
    /// First word.
    pub const MAGIC: u32 = 0xf6ab_0e18;
    /// Fifth byte.
    pub const VERSION: u8 = 1;
    /// Sixth byte, bit "R": the sender supports remote invalidation.
    pub const FLAG_REMOTE_INVALIDATION: u8 = 0x01;
}

/// Maximum counts and lengths in received headers (wire.md E40); a header above them is invalid.
pub mod limit {
    /// Items in one `xmdp_grpinfo`, and items in all sets of one `xmdp_rsdgroup` (wire.md W3).
    pub const MITEMS_MAX: u32 = 64;
    /// RDMA segments or target buffer segment numbers of one item, and segments of one chunk.
    pub const ITEM_SEGMENTS_MAX: u32 = 256;
    /// Sets in one `xmdp_rsdgroup`.
    pub const RSD_SETS_MAX: u32 = 64;
    /// Transmissions in one group.
    pub const GROUP_MAX: u32 = 64;
    /// Entries of a Read list.
    pub const READ_SEGMENTS_MAX: u32 = 256;
    /// Chunks of a Write list.
    pub const WRITE_CHUNKS_MAX: u32 = 64;
    /// Values in one set of properties.
    pub const PROPERTIES_MAX: u32 = 64;
    /// Words in one subset of properties: a bit for each of [`PROPERTIES_MAX`].
    pub const SUBSET_WORDS_MAX: u32 = PROPERTIES_MAX / 32;
    /// Groups in a receive buffer structure (wire.md W4).
    pub const STRUCTURE_GROUPS_MAX: u32 = 8;
    /// Segments in a receive buffer structure (wire.md E20).
    pub const STRUCTURE_SEGMENTS_MAX: u32 = 64;
    /// The smallest receive buffer size that a peer may state, in bytes (wire.md P11).
    pub const RECV_BUFFER_SIZE_MIN: u32 = 1024;
    /// The largest receive buffer size used; a larger stated one is reduced to it, in bytes
    /// (wire.md P16).
    pub const RECV_BUFFER_SIZE_MAX: u32 = 4 << 20;
    /// The largest transmission limit used; a larger stated one is reduced to it (wire.md P16).
    pub const TRANSMISSIONS_MAX: u32 = 1024;
    /// Bytes of credentials and of a verifier (RFC 5531 8.2).
    pub const AUTH_BODY_MAX: u32 = 400;
    /// Bytes of the machine's name in AUTH_SYS credentials (RFC 5531, Appendix A).
    pub const AUTH_SYS_MACHINE_MAX: u32 = 255;
    /// Groups in AUTH_SYS credentials beside the first (RFC 5531, Appendix A).
    pub const AUTH_SYS_GROUPS_MAX: u32 = 16;
}

/// Defaults until the peer states other values.
pub mod default {
    /// Receive buffer size of version two, in bytes (\[XCHAR\] 3, Table 1; wire.md P3).
    pub const RECV_BUFFER_SIZE: u32 = 4096;
    /// Inline threshold of version one and of the first message, in bytes (wire.md B1).
    pub const INLINE_V1: u32 = 1024;
    /// Both transmission limits (\[RTR\] 8.1, Table 3).
    pub const TRANSMISSIONS: u32 = 1;
}

/// Sizes on the wire, in bytes.
pub mod size {
    /// xid, vers, credit, proc: below this a message is dropped (wire.md B12).
    pub const PREFIX: usize = 16;
    /// RDMA_ERROR without a range of versions (wire.md B12).
    pub const ERROR: usize = 20;
    /// RDMA_ERROR with a range of versions (wire.md B12).
    pub const ERROR_VERS: usize = 28;
    /// RDMA_MSG or RDMA_NOMSG with three empty lists; the smallest header (wire.md B12).
    pub const HEADER_MIN: usize = 28;
    /// RDMA_OPTIONAL up to and with the length of `rdma_optinfo`.
    pub const OPTIONAL: usize = 24;
    /// A transmit-request header without items.
    pub const XMTREQ_MIN: usize = 44;
    /// A transmit-response header without items.
    pub const XMTRESP_MIN: usize = 36;
    /// A transmit-continue header.
    pub const XMTCONT: usize = 36;
    /// The largest report-error header.
    pub const REPTERR_MAX: usize = 68;
    /// An RDMA segment.
    pub const SEGMENT: usize = 16;
    /// A message item placed by Send, without its segment numbers.
    pub const MITEM_TBSN: usize = 20;
    /// A message item moved by explicit RDMA, without its segments.
    pub const MITEM_EXRW: usize = 16;
    /// A message item that is a result without placement.
    pub const MITEM_VOID: usize = 12;
    /// A reply-direction set, without its items.
    pub const RSDSET: usize = 12;
    /// A reply-direction item that asks for placement by Send.
    pub const RSDITEM_TBSN: usize = 8;
    /// A reply-direction item of type EXRW or CHOICE, without its segments.
    pub const RSDITEM_EXRW: usize = 12;
    /// A reply-direction item of type BYSIZE, without its segments.
    pub const RSDITEM_BYSIZE: usize = 16;
    /// A receive buffer structure, without its groups.
    pub const RBSTRUCT: usize = 8;
    /// A group of a receive buffer structure.
    pub const RBSTRUCT_GROUP: usize = 16;
    /// Connection private data (RFC 8797 4).
    pub const PRIVATE_DATA: usize = 8;
}
