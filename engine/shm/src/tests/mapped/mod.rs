//! The tests of the rules where long messages are, and what is copied from a peer's pool.

mod copies;
mod pools;
mod reuse;
mod rules;
