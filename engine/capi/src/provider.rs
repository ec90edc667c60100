//! The providers: what is generic over them in Rust is one of those of the build here.

use ::rpcrdma::control::Control;
use ::rpcrdma::{
    Config, Engine, Provider, SessionCall, SetupError, built, each_provider, with_provider,
};

/// The type of a value that exists for each provider.
macro_rules! any {
    ($name:ident, $of:ident) => {
        each_provider! { [$crate::provider::any_of] $name, $of }
    };
}

macro_rules! any_of {
    ([$name:ident, $of:ident] $($provider:ident)+) => {
        pub(crate) enum $name {
            $($provider($of<built::$provider>),)+
        }

        $(impl From<$of<built::$provider>> for $name {
            #[inline(always)]
            fn from(one: $of<built::$provider>) -> $name {
                $name::$provider(one)
            }
        })+
    };
}
use any_of;

/// Does the same for the value of each provider.
macro_rules! each {
    ($any:ident, $value:expr, $it:ident => $act:expr) => {
        ::rpcrdma::each_provider! { [$crate::provider::each_of] $any, $value, $it, $act }
    };
}
pub(crate) use each;

macro_rules! each_of {
    ([$any:ident, $value:expr, $it:ident, $act:expr] $($provider:ident)+) => {
        match $value {
            $($any::$provider($it) => $act,)+
        }
    };
}
pub(crate) use each_of;

type Written<P> = SessionCall<'static, P>;

any!(AnyEngine, Engine);
any!(AnyControl, Control);
any!(AnySessionCall, Written);

/// One of those of the build.
pub(crate) trait Known: Provider {
    /// A call of a session over it.
    fn named(call: SessionCall<'static, Self>) -> AnySessionCall;
}

impl<P: Provider> Known for P
where
    AnySessionCall: From<Written<P>>,
{
    #[inline(always)]
    fn named(call: SessionCall<'static, P>) -> AnySessionCall {
        call.into()
    }
}

impl AnyEngine {
    /// The engine that the configuration names; with a control plane that the program steps, if
    /// it has no thread.
    pub fn open(
        config: Config,
        has_thread: bool,
    ) -> Result<(AnyEngine, Option<AnyControl>), SetupError> {
        let kind = config.engine().provider;
        with_provider!(kind, |Device| start(Device::from_config(&config)?, config, has_thread))
    }
}

fn start<P: Provider>(
    device: P,
    config: Config,
    has_thread: bool,
) -> Result<(AnyEngine, Option<AnyControl>), SetupError>
where
    AnyEngine: From<Engine<P>>,
    AnyControl: From<Control<P>>,
{
    if has_thread {
        return Ok((Engine::new(device, config)?.into(), None));
    }
    let (engine, control) = Engine::without_threads(device, config)?;
    Ok((engine.into(), Some(control.into())))
}
