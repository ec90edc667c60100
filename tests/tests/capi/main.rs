//! The C library: its header, its symbols, and programs in C, alone and against programs in Rust.

mod examples;
mod header;
mod page;
mod program;
mod store;
mod symbols;
mod toolchain;
