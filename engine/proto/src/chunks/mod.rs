//! Chunks: memory that one side offers and the other reads or writes (RFC 8166 3.4)

pub mod write;
