//! Tests of shared memory: the rules of a device, and what is special to it.

mod connect;
mod descriptors;
mod ends;
mod exposed;
mod forked;
mod hostile;
mod mapped;
mod rules;
mod sleep;
mod unequal;
