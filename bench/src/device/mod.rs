//! Where a benchmark runs: the fabric or an RDMA device, the cores, the machine and its noise.

pub(crate) mod address;
pub mod cores;
pub mod env;
mod fabric;
pub mod files;
pub mod jitter;
pub(crate) mod kernel;
pub mod pair;
pub(crate) mod shm;
pub(crate) mod tcp;
pub(crate) mod verbs;

pub use cores::CorePair;
pub(crate) use cores::{on_core, pick, pin};
pub use fabric::{Device, Fabrics};
pub use jitter::Jitter;

/// Calls a generic function with the device that the options name: a fabric for each contender,
/// shared memory, TCP, or an RDMA device. All but the first are opened by their constructor of this
/// name.
macro_rules! on_device {
    ($args:expr, $config:expr, $open:ident, |$device:ident| $run:expr) => {
        match $args.over() {
            $crate::args::values::Over::Fabric => {
                let $device = &$crate::device::Fabrics::new($config);
                $run
            }
            $crate::args::values::Over::Shm => {
                let $device = &$crate::device::shm::ShmDevice::$open($args, $config)?;
                $run
            }
            $crate::args::values::Over::Tcp => {
                let $device = &$crate::device::tcp::TcpDevice::$open($args, $config)?;
                $run
            }
            $crate::args::values::Over::Verbs => {
                let $device = &$crate::device::verbs::VerbsDevice::$open($args, $config)?;
                $run
            }
        }
    };
}
pub(crate) use on_device;
