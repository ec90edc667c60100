//! Where a benchmark runs: the fabric or an RDMA device, the cores, the machine and its noise.

pub mod cores;
pub mod env;
mod fabric;
pub mod files;
pub mod jitter;
pub mod pair;
pub(crate) mod verbs;

pub use cores::CorePair;
pub(crate) use cores::{on_core, pick, pin};
pub use fabric::{Device, Fabrics};
pub use jitter::Jitter;

/// Calls a generic function with the device that the options name: a fabric for each contender, or
/// an RDMA device, opened by this constructor of [`verbs::VerbsDevice`].
macro_rules! on_device {
    ($args:expr, $config:expr, $open:ident, |$device:ident| $run:expr) => {
        match $args.provider {
            $crate::args::values::Over::Fabric => {
                let $device = &$crate::device::Fabrics::new($config);
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
