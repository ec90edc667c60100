//! What a program keeps, and what it must not do inside a callback.
#![expect(unsafe_code, reason = "a C program passes pointers")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "it is a C program, as far as it can be")]

mod inside;
mod memory;
mod program;
