//! The functions of the header, as a C program calls them: what they do, what they refuse, and what
//! stays with the program.
#![expect(unsafe_code, reason = "a C program passes pointers")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "it is a C program, as far as it can be")]

mod answers;
mod calls;
mod inside;
mod memory;
mod misuse;
mod observation;
mod polled;
mod programs;
mod providers;
mod reports;
mod rig;
mod sessions;
mod shard_calls;
