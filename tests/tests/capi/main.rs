//! The C library: its header, its symbols, and programs in C, alone and against programs in Rust.

mod header;
mod symbols;
mod toolchain;
