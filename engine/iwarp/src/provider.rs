//! The provider.

use std::fmt::Display;
use std::sync::Arc;

use rpcrdma_config::{Config, section};
use rpcrdma_mempool::Registrar;
use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr, SetupError};
use rpcrdma_transport::device::{Device, Opened};

use crate::cm::{TcpCm, TcpSockets};
#[cfg(any(test, feature = "network"))]
use crate::network::Network;
use crate::options::TcpOptions;
use crate::port::Port;
use crate::queues::TcpQueues;
use crate::shared::Shared;
use crate::stack::Stack;

/// TCP as an RDMA device. Clones share its registrations; a process needs only one.
#[derive(Clone)]
pub struct Tcp(Arc<Shared>);

impl Tcp {
    /// TCP with the default options.
    ///
    /// # Errors
    /// None at present: as for [`Tcp::with_options`].
    pub fn new() -> Result<Tcp, SetupError> {
        Tcp::with_options(TcpOptions::default())
    }

    /// TCP with options.
    ///
    /// # Errors
    /// [`SetupError::Invalid`] if an option has a value that is not allowed.
    pub fn with_options(options: TcpOptions) -> Result<Tcp, SetupError> {
        Tcp::over(Stack::System, options)
    }

    /// TCP with options, whose connections are those of a virtual network.
    ///
    /// # Errors
    /// As for [`Tcp::with_options`].
    #[cfg(any(test, feature = "network"))]
    pub fn with_network(options: TcpOptions, network: &Network) -> Result<Tcp, SetupError> {
        Tcp::over(Stack::Virtual(network.clone()), options)
    }

    fn over(stack: Stack, options: TcpOptions) -> Result<Tcp, SetupError> {
        options.check()?;
        let device = Device::new("tcp", options.settings(), options.key_seed);
        Ok(Tcp(Arc::new(Shared { options, device, stack })))
    }

    /// The TCP of a configuration's section `[tcp]`.
    ///
    /// # Errors
    /// As for [`Tcp::with_options`].
    pub fn from_config(config: &Config) -> Result<Tcp, SetupError> {
        Tcp::with_options(TcpOptions::from(config.tcp()))
    }
}

impl Provider for Tcp {
    type Queues = TcpQueues;
    type Cm = TcpCm;

    fn caps(&self) -> &DeviceCaps {
        self.0.device.caps()
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        let (made, configured) = (&self.0.options, TcpOptions::from(config.tcp()));
        let options: [(_, &dyn Display, &dyn Display); 2] = [
            ("tcp.crc", &made.crc, &configured.crc),
            ("tcp.message_len", &made.message_len, &configured.message_len),
        ];
        OPENED.check(config, &options)
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        self.0.device.keys().clone()
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<TcpQueues, SetupError> {
        self.0
            .device
            .open_queues(attr, |_| Ok(Arc::new(Port::new(attr.qp_max, self.0.stack.ready_set()?))))
    }

    fn open_cm(&self) -> Result<TcpCm, SetupError> {
        TcpSockets::new(Arc::clone(&self.0)).map(TcpCm::new)
    }
}

impl std::fmt::Debug for Tcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tcp").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// What a program opened that has TCP.
const OPENED: Opened = Opened {
    kind: section::ProviderKind::Tcp,
    device: "TCP",
    made_with: "the provider was made with",
    from_config: "Tcp::from_config",
};

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text).expect("a configuration")
    }

    #[test]
    fn options_that_differ_from_the_configuration_are_named() {
        let given = "engine.provider = \"tcp\"\ntcp.crc = true\ntcp.message_len = \"1MiB\"";
        let given = config(given);
        let as_given = Tcp::from_config(&given).expect("allowed");
        as_given.check(&given).expect("it is what is configured");
        assert!(as_given.0.options.crc);
        assert_eq!(as_given.caps().message_len, 1 << 20);
        let other = Tcp::new().expect("allowed").check(&given).expect_err("it differs").to_string();
        assert!(other.contains("tcp.crc") && other.contains("made with false"), "{other}");
        let long = TcpOptions { crc: true, ..TcpOptions::default() };
        let other =
            Tcp::with_options(long).expect("allowed").check(&given).expect_err("it differs");
        assert!(other.to_string().contains("tcp.message_len"), "{other}");
        let shm = config("engine.provider = \"shm\"");
        as_given.check(&shm).expect_err("another provider");
    }
}
