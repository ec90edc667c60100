//! The server's side of the API: handlers, calls, replies, tickets.

pub mod call;
pub mod handler;
pub mod reply;
pub mod ticket;
