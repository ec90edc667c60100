//! The providers: what is generic over them in Rust is one of four here.

use ::rpcrdma::control::Control;
#[cfg(feature = "verbs")]
use ::rpcrdma::verbs::Verbs;
use ::rpcrdma::{Config, Engine, Fabric, Provider, SessionCall, SetupError, Shm, Tcp};
use rpcrdma_config::ProviderKind;

/// The type of a value that exists for each provider.
macro_rules! any {
    ($(#[$doc:meta])* $name:ident, $of:ident) => {
        $(#[$doc])*
        pub(crate) enum $name {
            Fabric($of<::rpcrdma::Fabric>),
            Shm($of<::rpcrdma::Shm>),
            Tcp($of<::rpcrdma::Tcp>),
            #[cfg(feature = "verbs")]
            Verbs($of<::rpcrdma::verbs::Verbs>),
        }
    };
}

/// Does the same for the value of each provider.
macro_rules! each {
    ($any:ident, $value:expr, $it:ident => $act:expr) => {
        match $value {
            $any::Fabric($it) => $act,
            $any::Shm($it) => $act,
            $any::Tcp($it) => $act,
            #[cfg(feature = "verbs")]
            $any::Verbs($it) => $act,
        }
    };
}
pub(crate) use each;

type Written<P> = SessionCall<'static, P>;

any!(AnyEngine, Engine);
any!(AnyControl, Control);
any!(AnySessionCall, Written);

/// One of the four.
pub(crate) trait Known: Provider {
    /// A call of a session over it.
    fn named(call: SessionCall<'static, Self>) -> AnySessionCall;
}

macro_rules! known {
    ($($provider:ident)*) => {$(
        impl Known for $provider {
            #[inline(always)]
            fn named(call: SessionCall<'static, Self>) -> AnySessionCall {
                AnySessionCall::$provider(call)
            }
        }
    )*};
}
known!(Fabric Shm Tcp);
#[cfg(feature = "verbs")]
known!(Verbs);

impl AnyEngine {
    /// The engine that the configuration names; with a control plane that the program steps, if
    /// it has no thread.
    pub fn open(
        config: Config,
        has_thread: bool,
    ) -> Result<(AnyEngine, Option<AnyControl>), SetupError> {
        match config.engine().provider {
            ProviderKind::Auto | ProviderKind::Fabric => {
                let (engine, control) = start(Fabric::from_config(&config)?, config, has_thread)?;
                Ok((AnyEngine::Fabric(engine), control.map(AnyControl::Fabric)))
            }
            ProviderKind::Shm => {
                let (engine, control) = start(Shm::from_config(&config)?, config, has_thread)?;
                Ok((AnyEngine::Shm(engine), control.map(AnyControl::Shm)))
            }
            ProviderKind::Tcp => {
                let (engine, control) = start(Tcp::from_config(&config)?, config, has_thread)?;
                Ok((AnyEngine::Tcp(engine), control.map(AnyControl::Tcp)))
            }
            #[cfg(feature = "verbs")]
            ProviderKind::Verbs => {
                let (engine, control) = start(Verbs::from_config(&config)?, config, has_thread)?;
                Ok((AnyEngine::Verbs(engine), control.map(AnyControl::Verbs)))
            }
            #[cfg(not(feature = "verbs"))]
            ProviderKind::Verbs => {
                let reason = "this library was built without RDMA devices";
                Err(SetupError::unmet(&config, "engine.provider", reason))
            }
        }
    }
}

fn start<P: Provider>(
    device: P,
    config: Config,
    has_thread: bool,
) -> Result<(Engine<P>, Option<Control<P>>), SetupError> {
    if has_thread {
        return Ok((Engine::new(device, config)?, None));
    }
    let (engine, control) = Engine::without_threads(device, config)?;
    Ok((engine, Some(control)))
}
