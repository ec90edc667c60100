//! Instructions, counted by callgrind: the same number in every run, on every machine.
//!
//! ```text
//!   a program, functions to count in ──▶ callgrind ──▶ Count { own, library, library_calls } of each part
//! ```
#![forbid(unsafe_code)]

pub mod callgrind;
