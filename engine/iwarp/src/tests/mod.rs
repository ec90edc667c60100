//! Tests of connections over TCP: the rules of a device, and what is special to it.

mod blocked;
mod cuts;
mod hostile;
mod lengths;
mod pieces;
mod raw;
mod rules;
mod sleep;
