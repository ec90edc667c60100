//! The tests on the software fabric, or without any device: one program, because linking takes
//! longer than running.

mod admission;
mod api_fabric;
mod backward;
mod caller;
mod checked_provider;
mod counters;
mod directions;
mod executions;
mod fairness;
mod faults;
mod fences;
mod fuzz_corpus;
mod hostile;
mod hostile_rdma;
mod hostile_server;
mod lacking;
mod net;
mod nfs3_fabric;
mod nfs3_repeats;
mod nfs41_fabric;
mod nothing_is_left;
mod onc;
mod padding;
mod panics;
mod posts;
mod rules;
mod silent;
mod simulation;
mod stops;
mod ulb_chunks;
mod ulb_interop;
mod versions;
