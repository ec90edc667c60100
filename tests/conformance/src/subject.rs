//! The provider that the rules are tested on.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rpcrdma_provider::{Address, Provider, Queues, SetupError};

/// A provider, and what its tests must know of it.
pub trait Subject: Provider<Queues: Queues<Qp: Sync>> + Clone {
    /// Whether a request is done when the peer has taken it, and fails as the peer says. Otherwise
    /// it is done when it is sent, and a refusal ends the connection.
    const HAS_ACKS: bool = true;
    /// Whether the memory of hosts is shared between processes.
    const IS_SHARED: bool = false;

    /// A device. Options that the provider does not have are left out.
    ///
    /// # Errors
    /// If an option is not allowed.
    fn made(options: &Options) -> Result<Self, SetupError>;

    /// Where to listen: any free address.
    fn address() -> Address;

    /// An address without a listener.
    fn nowhere() -> Address;

    /// A device with the provider's options.
    ///
    /// # Panics
    /// If it cannot be opened.
    fn plain() -> Self {
        Self::made(&Options::default()).expect("the default options are allowed")
    }
}

/// What tests choose of a device. `None` is the provider's default.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Slots of a ring.
    pub slots: Option<u32>,
    /// The position of the first slot of each ring.
    pub first_slot: u64,
    /// The delay in one direction, in ns.
    pub delay_ns: u64,
    /// How long a message waits for a Receive before it counts as retried once, in ns.
    pub rnr_timer_ns: Option<u64>,
    /// The virtual time, in ns.
    pub clock: Option<Arc<AtomicU64>>,
    /// Memory windows of all queues together.
    pub windows: Option<u32>,
    /// RDMA Reads of a queue pair in progress at one time.
    pub rd_atomic: Option<u32>,
    /// The seed of the remote keys.
    pub key_seed: Option<u64>,
}

/// The queue pairs of a provider.
pub type QpOf<S> = <<S as Provider>::Queues as Queues>::Qp;
/// The connected queue pairs of a provider that are not attached yet.
pub type EndpointOf<S> = <<S as Provider>::Queues as Queues>::Endpoint;

/// The queues of a provider, or something around them.
pub trait On<S: Provider>:
    Queues<Qp = QpOf<S>, Handle = <S::Queues as Queues>::Handle, Endpoint = EndpointOf<S>>
{
}

impl<S: Provider, Q> On<S> for Q where
    Q: Queues<Qp = QpOf<S>, Handle = <S::Queues as Queues>::Handle, Endpoint = EndpointOf<S>>
{
}

/// The options of a software provider: those that tests choose, and `$default` for all others. Its
/// type has the fields of these names, and `DeviceClock` is in scope.
#[macro_export]
macro_rules! chosen {
    ($type:ident: $options:expr, $default:expr) => {{
        let (options, default): (&$crate::subject::Options, $type) = ($options, $default);
        $type {
            rnr_timer_ns: options.rnr_timer_ns.unwrap_or(default.rnr_timer_ns),
            clock: options.clock.clone().map_or(default.clock, DeviceClock::Virtual),
            windows: options.windows.unwrap_or(default.windows),
            rd_atomic: options.rd_atomic.unwrap_or(default.rd_atomic),
            key_seed: options.key_seed,
            ..default
        }
    }};
}

/// Makes a subject of a provider of another crate, or another subject of a provider: a new type that
/// is the provider in all but its name.
#[macro_export]
macro_rules! rename {
    ($(#[$doc:meta])* $vis:vis $name:ident: $provider:ty) => {
        $(#[$doc])*
        #[derive(Clone)]
        $vis struct $name($vis $provider);

        impl $crate::Provider for $name {
            type Queues = <$provider as $crate::Provider>::Queues;
            type Cm = <$provider as $crate::Provider>::Cm;

            fn caps(&self) -> &$crate::DeviceCaps {
                self.0.caps()
            }

            fn check(&self, config: &$crate::Config) -> Result<(), $crate::SetupError> {
                self.0.check(config)
            }

            fn registrar(&self) -> std::sync::Arc<dyn $crate::Registrar> {
                self.0.registrar()
            }

            fn open_queues(
                &self,
                attr: &$crate::QueueAttr,
            ) -> Result<Self::Queues, $crate::SetupError> {
                self.0.open_queues(attr)
            }

            fn open_cm(&self) -> Result<Self::Cm, $crate::SetupError> {
                self.0.open_cm()
            }
        }
    };
}
