//! The wire format of RPC-over-RDMA: decoding and encoding.
//!
//! ```text
//!   one Send
//!   | header                      | payload stream   | padding | placed items
//!   | xid vers credit proc | body | xid dir ...
//!                            MSG, NOMSG: chunk lists
//!                            ERROR: error
//!                            OPTIONAL: opttype, length, a structure
//!                               CONNPROP REQPROP RESPROP UPDPROP    properties
//!                               XMTREQ XMTRESP XMTCONT REPTERR      round-trip reduction
//! ```
//! All types borrow from their input. Nothing allocates or panics, and every count is bounded.
//! Decoding is strict: encoding a decoded header gives the same bytes.
//!
//! Documents are cited as `[V2]` (draft-cel-nfsv4-rpcrdma-version-two-00), `[XCHAR]`
//! (draft-dnoveck-nfsv4-rpcrdma-xcharext-03) and `[RTR]` (draft-dnoveck-nfsv4-rpcrdma-rtrext-02);
//! `docs/wire.md` decides, with numbers, what they leave open.
//!
//! ```
//! use rpcrdma_xdr::{Body, ChunkLists, Header, RpcPrefix, Writer};
//!
//! let header = Header { xid: 7, vers: 2, credit: 32, body: Body::Msg(ChunkLists::EMPTY) };
//! let mut buffer = [0; 64];
//! let mut writer = Writer::new(&mut buffer);
//! header.encode(&mut writer)?;
//! assert_eq!(writer.position(), header.encoded_len());
//!
//! let (decoded, len) = Header::decode(&buffer)?;
//! assert_eq!((decoded, len), (header, 28));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `text`: a header as a line of text
//! - `header`, `one_chunk`
//! - `property`: what the OPTIONAL operations of `[XCHAR]` carry
//! - `rtr`: what those of `[RTR]` carry
//! - `chunk`, `onc`, `private_data`
//! - `array`: lists, of any items
//! - `cursor`: words, and the bytes between them
//! - `error`, `numbers`

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod array;
pub mod chunk;
pub mod cursor;
pub mod error;
pub mod header;
pub mod numbers;
pub mod onc;
pub mod one_chunk;
pub mod private_data;
pub mod property;
pub mod rtr;
#[cfg(feature = "text")]
mod text;

pub use array::{Array, List, Wire};
pub use chunk::{ChunkLists, RdmaSegment, ReadList, ReadSegment, WriteChunk, WriteList};
pub use cursor::{Reader, Writer};
pub use error::{DecodeError, NoRoom};
pub use header::{Body, Header, Optional, Prefix, RdmaError};
pub use onc::{MsgType, RpcPrefix};
pub use private_data::PrivateData;
pub use property::{
    BackwardSupport, ConnProp, Known, MayChange, PropId, PropIds, PropSet, PropSubset, PropVal,
    PropValues, Property, ReqProp, RespProp, RtrSupport, UpdProp,
};
pub use rtr::placement::{Loc, MsgItem, RsdItem, RsdLoc, RsdSet, Tbsns};
pub use rtr::report::{Mismatch, MsgId, OutOfRange, ReptErr, ReptInfo};
pub use rtr::structure::{RecvStructure, Segment, SegmentAt, SegmentGroup, StructureError};
pub use rtr::transmit::{XmtCont, XmtReq, XmtResp};
