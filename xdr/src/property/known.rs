//! The table of the known properties.

use super::table::MayChange;
use super::value::{BackwardSupport, Bits, Bool, Codec, Level, RtrSupport, Structure, Word};
use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::{default, limit};
use crate::rtr::structure::{RecvStructure, StructureError};

/// Passes the table to a macro, with further rows after it.
macro_rules! table {
    ($derive:ident $($more:tt)*) => { $derive! {
        /// Receive Buffer Size (\[XCHAR\] 3.1): bytes of the smallest receive buffer posted; at
        /// least 1024 (wire.md P11). Not yet clamped to [`limit::RECV_BUFFER_SIZE_MAX`].
        1 RECV_BUFFER_SIZE "rbsiz": RecvBufferSize(u32) as Word<{ limit::RECV_BUFFER_SIZE_MIN }>,
            Some(default::RECV_BUFFER_SIZE), Peer;
        /// Requester Remote Invalidation (\[XCHAR\] 3.2): whether the peer's memory may be
        /// invalidated by our replies (wire.md P12).
        2 REQUESTER_REMOTE_INVALIDATION "reqreminv": RequesterRemoteInvalidation(bool) as Bool,
            Some(false), Peer;
        /// Backward Request Support (\[XCHAR\] 3.3): how backward requests may be sent.
        3 BACKWARD_SUPPORT "brs": BackwardSupport(BackwardSupport) as Level,
            Some(BackwardSupport::Inline), Both;
        /// Receive Buffer Structure (\[RTR\] 8.3): the segments of the peer's receive buffers. Its
        /// default is one segment of the receive buffer size (wire.md E22).
        4 RECV_STRUCTURE "rbstruct": RecvStructure(RecvStructure) as Structure,
            None, Neither;
        /// Request Transmission Receive Limit (\[RTR\] 8.4): transmissions of the longest request
        /// accepted; 0 means 1 (wire.md E9).
        5 REQUEST_RX_LIMIT "reqrxlim": RequestRxLimit(u32) as Word,
            Some(default::TRANSMISSIONS), Both;
        /// Response Transmission Send Limit (\[RTR\] 8.5): transmissions of the longest response
        /// generated; 0 means 1 (wire.md E9).
        6 RESPONSE_SX_LIMIT "respsxlim": ResponseSxLimit(u32) as Word,
            Some(default::TRANSMISSIONS), Both;
        /// RTR Support (\[RTR\] 8.2 says 3, which \[XCHAR\] had given away): which operations are
        /// supported.
        7 RTR_SUPPORT "rtrsupp": RtrSupport(RtrSupport) as Bits,
            Some(RtrSupport::empty()), Both;
        $($more)*
    } };
}

table!(properties);
