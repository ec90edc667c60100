//! The rules of the fabric, one test each; a model; two threads.

mod connect;
mod delay;
mod fault;
mod host;
mod model;
mod rules;
mod teardown;
mod threads;
