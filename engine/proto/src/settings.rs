//! The settings of one side of a connection: its role, its receive buffers, its limits and
//! features.

use rpcrdma_xdr::numbers::limit::{
    GROUP_MAX, ITEM_SEGMENTS_MAX, MITEMS_MAX, RECV_BUFFER_SIZE_MAX, RECV_BUFFER_SIZE_MIN,
};
use rpcrdma_xdr::private_data::PrivateData;
use rpcrdma_xdr::property::{BackwardSupport, RtrSupport};
use rpcrdma_xdr::rtr::structure::RecvStructure;

use crate::error::Misuse;
use crate::version::Versions;

/// Which side opened the connection. Either may call the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It connected.
    Client,
    /// It accepted.
    Server,
}

impl Role {
    /// The top bit of all xids that this role makes (wire.md B9).
    #[inline]
    #[must_use]
    pub fn xid_bit(self) -> u32 {
        match self {
            Self::Client => 0,
            Self::Server => 1 << 31,
        }
    }
}

/// When a responder uses a Reply chunk that it was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReplyChunkUse {
    /// For every reply, however short, as the Linux server does.
    Always,
    /// For a reply that does not fit a Send (RFC 8166 4.3.3).
    #[default]
    WhenNeeded,
}

/// The limits of existing peers in their use of chunks, beyond the documents.
///
/// Every peer we know of accepts the default, above all the Linux kernel's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interop {
    /// The most Read chunks of a call that are data items. The Linux server takes one: for a second
    /// it answers ERR_CHUNK and closes the connection. libevpl has one as well.
    pub read_chunks_max: u32,
    /// Whether only an item that ends its call may be a Read chunk. ntirpc (NFS-Ganesha) does not
    /// look at the position of a chunk.
    pub read_chunk_last: bool,
    /// The most Write chunks of a call. ntirpc (NFS-Ganesha) and libevpl use the first only.
    pub write_chunks_max: u32,
    /// Whether up to three bytes behind a result in its Write chunk are taken for padding. ntirpc
    /// (NFS-Ganesha) writes it, which RFC 8166 3.4.6.2 forbids. For the upper-layer binding, which
    /// knows the length of the result.
    pub write_chunk_padding: bool,
    /// Whether the target of a link is requested in the payload stream. ntirpc (NFS-Ganesha) puts
    /// it there in any case. For the upper-layer binding, which knows what a result is.
    pub links_in_line: bool,
    /// The most segments of a chunk. libevpl takes a single one; the Linux client never has more
    /// than 16.
    pub segments_max: u32,
    /// Whether a call whose message is fetched from position zero may also have Read chunks. The
    /// Linux client never sends that, so servers may not be prepared for it.
    pub long_call_with_chunks: bool,
    /// Whether Write chunks may be offered beside a Reply chunk. The Linux client never does.
    pub write_with_reply: bool,
    /// When an offered Reply chunk is used. Linux and ntirpc use it for every reply, and their
    /// clients expect that; any client has to accept either (RFC 8166 4.3.3).
    pub reply_chunk: ReplyChunkUse,
    /// Whether the reply invalidates the caller's memory, if the caller supports that. The Linux
    /// client does, and saves a work request for each call.
    pub remote_invalidation: bool,
}

impl Interop {
    fn check(&self) -> Result<(), Misuse> {
        let chunks = [self.read_chunks_max, self.write_chunks_max];
        if chunks.iter().any(|count| !(1..=MITEMS_MAX).contains(count)) {
            return Err(Misuse("a call has 1 to 64 chunks of a kind"));
        }
        if !(1..=ITEM_SEGMENTS_MAX).contains(&self.segments_max) {
            return Err(Misuse("a chunk has 1 to 256 segments"));
        }
        Ok(())
    }
}

impl Default for Interop {
    fn default() -> Self {
        Self {
            read_chunks_max: 1,
            read_chunk_last: false,
            write_chunks_max: 1,
            write_chunk_padding: false,
            links_in_line: false,
            segments_max: 16,
            long_call_with_chunks: false,
            write_with_reply: false,
            reply_chunk: ReplyChunkUse::WhenNeeded,
            remote_invalidation: true,
        }
    }
}

/// What the connections of a shard are opened with. All sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The structure of every receive buffer of the shard. Its first segment has at least 1024
    /// bytes: every header must lie in it.
    pub structure: RecvStructure,
    /// Credits that are asked for, for own calls.
    pub credits_requested: u32,
    /// The most credits that are granted to one peer.
    pub credits_granted_max: u32,
    /// The most transmissions of an own call. 1 switches continued calls off.
    pub call_count_max: u32,
    /// The most transmissions of a call that are accepted (`XPROP_REQRXLIM`).
    pub request_rx_limit: u32,
    /// The most transmissions of an own reply (`XPROP_RESPSXLIM`).
    pub response_sx_limit: u32,
    /// The most transmissions of a reply that are asked for (`optxrq_rsbuf`).
    pub response_rx_max: u32,
    /// The longest RPC message that is accepted, placed items and their padding included.
    pub rpc_len_max: u32,
    /// Which backward calls are accepted (`PROP_BRS`).
    pub backward: BackwardSupport,
    /// Whether properties are exchanged. Without, both sides work with the defaults.
    pub properties: bool,
    /// Which operations of the extension are used.
    pub rtr: RtrSupport,
    /// Whether items are placed in the peer's receive buffers where these allow it.
    pub placement: bool,
    /// Whether calls of the peer may have chunks: whether the engine can read and write the peer's
    /// memory. If not, such calls are rejected.
    pub explicit: bool,
    /// How chunks are used towards this peer.
    pub interop: Interop,
    /// Whether the peer's replies may invalidate memory that an own call exposed
    /// (`PROP_REQREMINV`): only memory behind type-2 memory windows (wire.md P12).
    pub requester_invalidation: bool,
    /// Which versions are spoken; at least one.
    pub versions: Versions,
    /// The longest message of version one that is sent in line, as private data state it.
    pub inline_send_max: u32,
}

impl Settings {
    /// All features on, with the simplest limits.
    #[must_use]
    pub fn new(structure: RecvStructure) -> Self {
        Self {
            structure,
            credits_requested: 32,
            credits_granted_max: 32,
            call_count_max: 16,
            request_rx_limit: 16,
            response_sx_limit: 16,
            response_rx_max: 16,
            rpc_len_max: 4 << 20,
            backward: BackwardSupport::Inline,
            properties: true,
            rtr: RtrSupport::XREQ | RtrSupport::XRESP | RtrSupport::XCONT,
            placement: true,
            explicit: true,
            interop: Interop::default(),
            requester_invalidation: false,
            versions: Versions::all(),
            inline_send_max: structure.total_len(),
        }
    }

    /// Whether the settings make sense.
    ///
    /// # Errors
    /// [`Misuse`] names the first that does not.
    pub fn check(&self) -> Result<(), Misuse> {
        let total = self.structure.total_len();
        if self.first_segment_len() < RECV_BUFFER_SIZE_MIN {
            return Err(Misuse("the first segment of a receive buffer has less than 1024 bytes"));
        }
        if !(RECV_BUFFER_SIZE_MIN..=RECV_BUFFER_SIZE_MAX).contains(&total) {
            return Err(Misuse("a receive buffer has 1 KiB to 4 MiB"));
        }
        if self.credits_requested == 0 || self.credits_granted_max == 0 {
            return Err(Misuse("at least one credit is asked for and granted"));
        }
        if self.versions.is_empty() {
            return Err(Misuse("at least one version is spoken"));
        }
        let counts = [
            self.call_count_max,
            self.request_rx_limit,
            self.response_sx_limit,
            self.response_rx_max,
        ];
        if counts.iter().any(|count| !(1..=GROUP_MAX).contains(count)) {
            return Err(Misuse("a message has 1 to 64 transmissions"));
        }
        self.interop.check()
    }

    /// This side's private data.
    #[must_use]
    pub fn private_data(&self) -> PrivateData {
        PrivateData {
            remote_invalidation: self.requester_invalidation,
            send_size: self.inline_send_max,
            recv_size: self.structure.total_len(),
        }
    }

    /// The length of the first segment of a receive buffer.
    #[must_use]
    pub fn first_segment_len(&self) -> u32 {
        self.structure.first_len()
    }
}
