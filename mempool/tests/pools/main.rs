//! Pools and topologies by the public interface, in one program.

mod model;
mod pool_alloc;
mod topology;
