//! Mutations of the sources, and the tests that notice them: `tests/mutate --rows` and
//! `tests/mutants`.
//!
//! A library for the test of docs/conformance.md, which reads the same names and the same table.

pub mod names;
pub mod rules;
pub mod table;
