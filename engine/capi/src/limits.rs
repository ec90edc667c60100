//! The limits of a peer.

use core::ffi::c_int;

use ::rpcrdma::{BackwardSupport, PeerLimits, Version};

/// Which calls a side accepts from the server that it has connected to.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_backward {
    /// Calls that fit one short message: the default.
    RPCRDMA_BACKWARD_INLINE = 0,
    /// None.
    RPCRDMA_BACKWARD_NONE = 1,
    /// Every call that the forward direction allows.
    RPCRDMA_BACKWARD_GENERAL = 2,
}

/// The limits of a peer. Later versions may add fields where the library makes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct rpcrdma_limits {
    /// The version that it speaks: 1 or 2; 0 before its first message.
    pub version: u32,
    /// The longest transmission that it takes.
    pub recv_size: u32,
    /// The longest transmission that it sends.
    pub send_size: u32,
    /// The most transmissions of a call that it takes.
    pub request_rx_limit: u32,
    /// The most transmissions of a reply that it sends.
    pub response_sx_limit: u32,
    /// Which backward calls it takes, as `rpcrdma_backward`.
    pub backward: c_int,
    /// Whether items can be placed in its buffers.
    pub placement: bool,
    /// Whether its memory may be invalidated by replies.
    pub remote_invalidation: bool,
    /// 0.
    pub reserved: [u8; 2],
    /// Transmissions that may be sent to it now; 0 in `on_connect`.
    pub credits: u32,
}

impl rpcrdma_limits {
    pub(crate) fn of(limits: &PeerLimits) -> rpcrdma_limits {
        use rpcrdma_backward::{
            RPCRDMA_BACKWARD_GENERAL, RPCRDMA_BACKWARD_INLINE, RPCRDMA_BACKWARD_NONE,
        };
        let backward = match limits.backward {
            BackwardSupport::None => RPCRDMA_BACKWARD_NONE,
            BackwardSupport::General => RPCRDMA_BACKWARD_GENERAL,
            BackwardSupport::Inline => RPCRDMA_BACKWARD_INLINE,
        };
        rpcrdma_limits {
            version: match limits.version {
                None => 0,
                Some(Version::One) => 1,
                Some(Version::Two) => 2,
            },
            recv_size: limits.recv_size,
            send_size: limits.send_size,
            request_rx_limit: limits.request_rx_limit,
            response_sx_limit: limits.response_sx_limit,
            backward: backward as c_int,
            placement: limits.placement,
            remote_invalidation: limits.remote_invalidation,
            reserved: [0; 2],
            credits: 0,
        }
    }
}
