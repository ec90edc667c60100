//! Comparison: two or more sides in turns, and how sure their ratios are.

pub mod bootstrap;
