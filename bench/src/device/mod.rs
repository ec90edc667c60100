//! What carries the messages of a benchmark: devices of the provider that the options name.

mod devices;
mod place;

pub use devices::{Device, Devices, Open};
pub use place::Place;

/// Calls a generic function with the devices of the provider that the options name, made by their
/// constructor of this name.
macro_rules! on_device {
    ($args:expr, $config:expr, $new:ident, |$device:ident| $run:expr) => {
        rpcrdma::with_provider!($args.over(), |Opened| {
            let $device = &$crate::device::Devices::$new(Opened::from_config, $args, $config)?;
            $run
        })
    };
}
pub(crate) use on_device;
