//! The calls of the benchmark: ONC RPC headers, arguments and results, byte by byte.
//!
//! ```text
//!   call   xid CALL 2 prog vers proc  AUTH_NONE  AUTH_NONE           40 bytes, then
//!            null  -            echo  length data
//!            read  offset count write offset length data
//!   reply  xid REPLY ACCEPTED  AUTH_NONE  SUCCESS                    24 bytes, then
//!            null  -            echo  length data
//!            read  length data  write count
//! ```
//!
//! RFC 5531 headers with AUTH_NONE; data is an XDR opaque of variable length.

use rpcrdma::onc::{CallHeader, ReplyHeader, RpcPrefix};
use serde::{Deserialize, Serialize};

use crate::values::{Op, Placement, Touch};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub op: Op,
    pub request_data: usize,
    pub reply_data: usize,
}

impl Shape {
    /// A call of `op` with `size` bytes of data where it has data, and `reply` of them in the
    /// reply of an echo.
    pub fn new(op: Op, size: usize, reply: usize) -> Shape {
        let (request_data, reply_data) = match op {
            Op::Null => (0, 0),
            Op::Echo => (size, reply),
            Op::Read => (0, size),
            Op::Write => (size, 0),
        };
        Shape { op, request_data, reply_data }
    }

    pub fn data_len(&self) -> usize {
        self.request_data.max(self.reply_data)
    }

    pub fn call_len(&self) -> usize {
        let arguments = match self.op {
            Op::Null => 0,
            Op::Echo => 4,
            Op::Read | Op::Write => 12,
        };
        CALL_HEADER_LEN + arguments + padded(self.request_data)
    }

    pub fn reply_len(&self) -> usize {
        let results = match self.op {
            Op::Null => 0,
            Op::Echo | Op::Read | Op::Write => 4,
        };
        REPLY_HEADER_LEN + results + padded(self.reply_data)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub shape: Shape,
    pub placement: Placement,
    pub window: u32,
    pub connections: u32,
    pub touch: Touch,
    /// Calls under way at one time whose results are written into memory of the program's own; 0 if
    /// they come where Sends place them.
    pub sinks: u32,
}

impl Load {
    pub fn what(&self) -> String {
        let Shape { op, request_data, reply_data } = self.shape;
        let data = match op {
            Op::Null => "null calls".to_owned(),
            Op::Echo if request_data == reply_data => format!("echo of {request_data} bytes"),
            Op::Echo => format!("echo of {request_data} bytes with {reply_data} back"),
            Op::Read => format!("read of {reply_data} bytes"),
            Op::Write => format!("write of {request_data} bytes"),
        };
        let how = match self.placement {
            Placement::Inline => "",
            Placement::Send => ", placed by sends",
            Placement::Rdma => ", moved by explicit RDMA",
        };
        data + how
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    pub request_len: usize,
    pub reply_len: usize,
    /// Requests under way at one time, at least 1.
    pub window: u32,
}

/// Bytes of the header of an RPC call with AUTH_NONE (RFC 5531).
pub const CALL_HEADER_LEN: usize = RpcPrefix::LEN + CallHeader::PLAIN_LEN;
/// Bytes of the header of an accepted RPC reply with AUTH_NONE (RFC 5531).
pub const REPLY_HEADER_LEN: usize = RpcPrefix::LEN + ReplyHeader::SUCCESS_LEN;
/// The next multiple of four: how XDR pads opaque data.
pub fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::wire::PLAIN_LEN;

    #[test]
    fn an_echo_of_64_bytes_is_136_there_and_120_back_on_the_wire() {
        let shape = Shape::new(Op::Echo, 64, 64);
        assert_eq!(PLAIN_LEN + shape.call_len(), 136);
        assert_eq!(PLAIN_LEN + shape.reply_len(), 120);
    }

    #[test]
    fn a_null_call_is_its_headers() {
        let shape = Shape::new(Op::Null, 64, 64);
        assert_eq!((shape.call_len(), shape.reply_len()), (40, 24));
    }

    #[test]
    fn data_goes_one_way_in_a_read_and_the_other_in_a_write() {
        let read = Shape::new(Op::Read, 4096, 4096);
        assert_eq!((read.call_len(), read.reply_len()), (52, 28 + 4096));
        let write = Shape::new(Op::Write, 4096, 4096);
        assert_eq!((write.call_len(), write.reply_len()), (52 + 4096, 28));
    }

    #[test]
    fn odd_lengths_are_padded_to_four() {
        let shape = Shape::new(Op::Echo, 5, 0);
        assert_eq!((shape.call_len(), shape.reply_len()), (44 + 8, 28));
    }
}
