//! What it is measured on: the fabric or a device, the cores, the machine and its noise.

pub mod cores;
pub mod env;
pub mod files;
pub mod jitter;
pub mod site;
pub(crate) mod verbs;

/// Calls a generic function with the site that the options of the device name: a fabric for each
/// contender, or the device, opened by this constructor of [`verbs::Device`].
macro_rules! at_site {
    ($args:expr, $config:expr, $open:ident, |$site:ident| $run:expr) => {
        match $args.provider {
            $crate::args::values::Over::Fabric => {
                let $site = &$crate::device::site::Fabrics::new($config);
                $run
            }
            $crate::args::values::Over::Verbs => {
                let $site = &$crate::device::verbs::Device::$open($args, $config)?;
                $run
            }
        }
    };
}
pub(crate) use at_site;
