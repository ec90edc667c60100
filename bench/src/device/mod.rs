//! What carries the messages of a benchmark: the fabric, shared memory, TCP, or an RDMA device.

mod fabric;
mod place;
pub(crate) mod shm;
pub(crate) mod tcp;
pub(crate) mod verbs;

pub use fabric::{Device, Fabrics};
pub use place::Place;

/// Calls a generic function with the device that the options name: a fabric for each contender,
/// shared memory, TCP, or an RDMA device. All but the first are opened by their constructor of this
/// name.
macro_rules! on_device {
    ($args:expr, $config:expr, $open:ident, |$device:ident| $run:expr) => {
        match $args.over() {
            $crate::values::Over::Fabric => {
                let $device = &$crate::device::Fabrics::new($config);
                $run
            }
            $crate::values::Over::Shm => {
                let $device = &$crate::device::shm::ShmDevice::$open($args, $config)?;
                $run
            }
            $crate::values::Over::Tcp => {
                let $device = &$crate::device::tcp::TcpDevice::$open($args, $config)?;
                $run
            }
            $crate::values::Over::Verbs => {
                let $device = &$crate::device::verbs::VerbsDevice::$open($args, $config)?;
                $run
            }
        }
    };
}
pub(crate) use on_device;
