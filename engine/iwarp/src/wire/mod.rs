//! The wire format, without sockets: bytes in, values out.

pub mod fpdu;
pub mod inbound;
pub mod segment;
pub mod start;
pub mod terminate;
pub mod violation;
