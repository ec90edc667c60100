//! The providers of this build: the list of them, and which one leads to an address.

use rpcrdma_config::{Config, ProviderKind};
use rpcrdma_provider::Address;

/// The providers by the names of their kinds, for [`with_provider!`](crate::with_provider).
#[doc(hidden)]
pub mod built {
    use rpcrdma_config::{Config, ProviderKind};
    pub use rpcrdma_fabric::Fabric;
    #[cfg(feature = "tcp")]
    pub use rpcrdma_iwarp::Tcp;
    use rpcrdma_provider::SetupError;
    #[cfg(feature = "shm")]
    pub use rpcrdma_shm::Shm;
    #[cfg(feature = "verbs")]
    pub use rpcrdma_verbs::Verbs;

    /// What is opened in place of a provider that this build does not have.
    pub struct Missing;

    impl Missing {
        /// Never opens anything.
        pub fn from_config(config: &Config) -> Result<Fabric, SetupError> {
            Err(SetupError::unmet(config, "engine.provider", "this build has no such provider"))
        }
    }

    /// What a program opens where the configuration leaves it open.
    pub fn opened(kind: ProviderKind) -> ProviderKind {
        if kind == ProviderKind::Auto { ProviderKind::Fabric } else { kind }
    }
}

/// Evaluates an expression with the type of a provider, by its [`ProviderKind`]; `Auto` is the
/// software fabric. In a build without the provider, `from_config` of the type is an error.
///
/// ```
/// use rpcrdma::{Config, Engine, Provider, SetupError, with_provider};
///
/// fn run<P: Provider>(device: P, config: Config) -> Result<String, SetupError> {
///     let name = device.caps().name.clone();
///     Engine::new(device, config)?.stop();
///     Ok(name)
/// }
/// let config = Config::default();
/// let kind = config.engine().provider;
/// let name = with_provider!(kind, |Device| run(Device::from_config(&config)?, config))?;
/// assert_eq!(name, "fabric");
/// # Ok::<(), SetupError>(())
/// ```
#[macro_export]
macro_rules! with_provider {
    ($kind:expr, |$device:ident| $act:expr) => {
        $crate::each_provider! { [$crate::with_each] $kind, $device, $act }
    };
}

/// Passes what is behind the brackets to the macro that they name, in brackets, and behind it the
/// providers of this build, by the names of their kinds. A new provider is added here.
#[doc(hidden)]
#[macro_export]
macro_rules! each_provider {
    ($to:tt $($arguments:tt)*) => { $crate::add_shm! { $to [$($arguments)*] Fabric } };
}

#[doc(hidden)]
#[macro_export]
#[cfg(feature = "shm")]
macro_rules! add_shm {
    ($($list:tt)*) => { $crate::add_tcp! { $($list)* Shm } };
}

#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "shm"))]
macro_rules! add_shm {
    ($($list:tt)*) => { $crate::add_tcp! { $($list)* } };
}

#[doc(hidden)]
#[macro_export]
#[cfg(feature = "tcp")]
macro_rules! add_tcp {
    ($($list:tt)*) => { $crate::add_verbs! { $($list)* Tcp } };
}

#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "tcp"))]
macro_rules! add_tcp {
    ($($list:tt)*) => { $crate::add_verbs! { $($list)* } };
}

#[doc(hidden)]
#[macro_export]
#[cfg(feature = "verbs")]
macro_rules! add_verbs {
    ($($list:tt)*) => { $crate::pass_on! { $($list)* Verbs } };
}

#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "verbs"))]
macro_rules! add_verbs {
    ($($list:tt)*) => { $crate::pass_on! { $($list)* } };
}

#[doc(hidden)]
#[macro_export]
macro_rules! pass_on {
    ([$($to:tt)*] $($list:tt)*) => { $($to)*! { $($list)* } };
}

#[doc(hidden)]
#[macro_export]
macro_rules! with_each {
    ([$kind:expr, $device:ident, $act:expr] $($name:ident)+) => {
        match $crate::built::opened($kind) {
            $($crate::ProviderKind::$name => {
                type $device = $crate::built::$name;
                $act
            })+
            _ => {
                type $device = $crate::built::Missing;
                $act
            }
        }
    };
}

/// The provider that a program opens to listen at an address, or to connect to it; without an
/// address, both ends are in the program. That is `engine.provider` of the configuration, and if
/// that is `auto`:
///
/// ```text
///   an address shm:...                                                  Shm
///   otherwise, if verbs.device or verbs.address is set                  Verbs
///   an IP address of an RDMA device, or one whose route begins there    Verbs
///   another IP address                                                  Tcp
///   none                                                                Fabric
/// ```
/// Never `Auto`. Without the RDMA libraries, and in a build without the feature `verbs`, no address
/// is one of a device; in a build without the feature `tcp`, all IP addresses are. `0.0.0.0` and
/// `[::]` are addresses of a device if there is one with an active port. It sends no packet: a host
/// that a device leads to may speak RDMA over another one only, or not at all, and a configuration
/// then says so by `engine.provider`.
///
/// ```
/// use rpcrdma::{Address, Config, ProviderKind, provider_for};
///
/// let config = Config::default();
/// let store: Address = "shm:/run/store.sock".parse()?;
/// assert_eq!(provider_for(&config, Some(store)), ProviderKind::Shm);
/// assert_eq!(provider_for(&config, None), ProviderKind::Fabric);
/// # Ok::<(), rpcrdma::AddressError>(())
/// ```
pub fn provider_for(config: &Config, at: Option<Address>) -> ProviderKind {
    let configured = config.engine().provider;
    if configured != ProviderKind::Auto {
        return configured;
    }
    let names_device = config.verbs().device.is_some() || config.verbs().address.is_some();
    match at {
        Some(Address::Shm(_) | Address::Process(_)) => ProviderKind::Shm,
        _ if names_device => ProviderKind::Verbs,
        Some(at) if leads_to_device(&at) => ProviderKind::Verbs,
        Some(_) => ProviderKind::Tcp,
        None => ProviderKind::Fabric,
    }
}

/// Whether a device is the way to an address, as far as this build has devices.
#[cfg(all(feature = "tcp", feature = "verbs"))]
fn leads_to_device(at: &Address) -> bool {
    at.as_ip().is_some_and(rpcrdma_verbs::leads_to)
}

#[cfg(not(all(feature = "tcp", feature = "verbs")))]
fn leads_to_device(_: &Address) -> bool {
    cfg!(feature = "verbs")
}

#[cfg(test)]
mod tests {
    use rpcrdma_config::Raw;

    use super::*;

    fn with(change: impl FnOnce(&mut Raw)) -> Config {
        let mut raw = Raw::default();
        change(&mut raw);
        Config::try_from(raw).expect("it is valid")
    }

    fn at(text: &str) -> Option<Address> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn what_is_configured_is_opened_for_any_address() {
        for kind in ["fabric", "shm", "tcp", "verbs"] {
            let config = with(|raw| raw.engine.provider = kind.into());
            for at in [at("10.0.0.1:7777"), at("shm:@store"), None] {
                assert_eq!(provider_for(&config, at).as_str(), kind);
            }
        }
    }

    #[test]
    fn an_address_has_a_provider() {
        let auto = Config::default();
        assert_eq!(provider_for(&auto, at("shm:@store")), ProviderKind::Shm);
        assert_eq!(provider_for(&auto, None), ProviderKind::Fabric);
    }

    #[test]
    fn a_named_device_is_opened_for_all_but_sockets() {
        for named in [
            with(|raw| raw.verbs.device = "mlx5_0".into()),
            with(|raw| raw.verbs.address = "10.0.0.1".into()),
        ] {
            assert_eq!(provider_for(&named, at("127.0.0.1:7777")), ProviderKind::Verbs);
            assert_eq!(provider_for(&named, None), ProviderKind::Verbs);
            assert_eq!(provider_for(&named, at("shm:@store")), ProviderKind::Shm);
        }
    }

    #[cfg(all(feature = "tcp", feature = "verbs"))]
    #[test]
    fn without_a_device_every_ip_address_is_one_of_tcp() {
        let has_device = rpcrdma_verbs::devices().is_ok_and(|devices| !devices.is_empty());
        if has_device {
            return;
        }
        for text in ["127.0.0.1:7777", "0.0.0.0:20049", "[::1]:7777", "203.0.113.1:7777"] {
            assert_eq!(provider_for(&Config::default(), at(text)), ProviderKind::Tcp, "{text}");
        }
    }
}
