//! Chunks: memory that one side offers and the other reads or writes (RFC 8166 3.4)
//!
//! ```text
//!   call     | Read list: 0, 0, 64, 64, ... | Write list: 0 1 2 | Reply chunk |
//!               └ the message  └ an item at 64      └ item i of the reply goes to chunk i
//!   reply    |  none         | the same Write list and Reply chunk, with the lengths written |
//! ```
//! Only the caller's memory is ever exposed: the responder reads the call's data from it and writes
//! the reply's data to it. The layout is the same in both versions.

pub(crate) mod offer;
pub mod resolve;
pub(crate) mod route;
pub mod write;
