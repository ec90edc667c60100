//! Errors of setting up: what failed before any message was sent.

use std::fmt;

use rpcrdma_config::Config;

use crate::{Address, Rejection};

/// Why the set-up failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The sum of what the configuration needs exceeds a limit of the device.
    #[error("{what}: {needed} needed, {device} has at most {limit}")]
    Limit {
        /// The resource.
        what: &'static str,
        /// The number that the configuration needs.
        needed: u64,
        /// What there is.
        limit: u64,
        /// The device.
        device: String,
    },
    /// The configuration does not fit the device or the machine.
    #[error("configuration: {0}")]
    Config(String),
    /// The device or the system cannot do what a key of the configuration requires.
    #[error("{key} = {given}: {reason}")]
    Unmet {
        /// The key.
        key: &'static str,
        /// Its value.
        given: String,
        /// The cause, and which value would work.
        reason: String,
    },
    /// A system call, or a call of an RDMA library, failed.
    #[error("{call} failed: {source}; {hint}")]
    System {
        /// The call.
        call: &'static str,
        /// Its error.
        source: std::io::Error,
        /// The likely cause.
        hint: &'static str,
    },
    /// An RDMA library is missing, or lacks a function.
    #[error(
        "the RDMA libraries are missing: {library} cannot be used ({reason}); {advice}; TCP, shared \
         memory and the software fabric need none"
    )]
    Library {
        /// The library.
        library: &'static str,
        /// Why not.
        reason: String,
        /// What helps.
        advice: &'static str,
    },
    /// The requested RDMA device does not exist.
    #[error("no RDMA device {wanted}; found: {found}")]
    NoDevice {
        /// The requested device.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// Memory could not be allocated or registered.
    #[error("cannot obtain memory for {what}: {reason}")]
    Memory {
        /// The purpose of the memory.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: Box<Address>,
        /// Why not.
        reason: &'static str,
    },
    /// The connection could not be established.
    #[error("cannot connect to {to}: {reason}")]
    Connect {
        /// The address.
        to: Box<Address>,
        /// Why not.
        reason: ConnectError,
    },
    /// A thread could not be pinned to its core.
    #[error("cannot run a shard on core {core}: {reason}")]
    Core {
        /// The core.
        core: u32,
        /// Why not.
        reason: String,
    },
    /// A value is not in the allowed range.
    #[error("{what} is {value}; allowed: {allowed}")]
    Invalid {
        /// The name of the value.
        what: &'static str,
        /// The value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// The engine is stopping or stopped.
    #[error("the engine is stopped")]
    Stopped,
    /// The thread that had to do it has panicked.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

impl SetupError {
    /// The error of an address that cannot be listened on.
    pub fn listen(address: impl Into<Address>, reason: &'static str) -> SetupError {
        SetupError::Listen { address: Box::new(address.into()), reason }
    }

    /// The error of a connection that could not be established.
    pub fn connect(to: impl Into<Address>, reason: ConnectError) -> SetupError {
        SetupError::Connect { to: Box::new(to.into()), reason }
    }

    /// The reason for a connection that could not be established, with the call that failed.
    pub fn as_connect_error(&self) -> ConnectError {
        match self {
            SetupError::Connect { reason, .. } => *reason,
            SetupError::System { call, source, hint } => match source.raw_os_error() {
                Some(errno) => ConnectError::CallFailed { call, errno, hint },
                None => ConnectError::Failed,
            },
            SetupError::Stopped | SetupError::Panicked(_) => ConnectError::Stopped,
            SetupError::Limit { what, needed, limit, .. } => {
                HostRefusal::Limit { what, needed: *needed, limit: *limit }.into()
            }
            SetupError::Memory { what, .. } => HostRefusal::Memory { what }.into(),
            SetupError::Invalid { what, .. } => HostRefusal::Invalid { what }.into(),
            SetupError::Unmet { key, .. } => HostRefusal::Unmet { key }.into(),
            SetupError::Config(_) => HostRefusal::Config.into(),
            // Not of a connection.
            SetupError::Library { .. }
            | SetupError::NoDevice { .. }
            | SetupError::Listen { .. }
            | SetupError::Core { .. } => ConnectError::Failed,
        }
    }

    /// The error of a descriptor that cannot be waited for.
    pub fn unwatched(source: impl Into<std::io::Error>) -> SetupError {
        let hint = "check fs.epoll.max_user_watches";
        SetupError::System { call: "epoll_ctl", source: source.into(), hint }
    }

    /// An error for a device or system that cannot do what `key` of the configuration requires.
    pub fn unmet(config: &Config, key: &'static str, reason: impl Into<String>) -> SetupError {
        let given = config.value_of(key).unwrap_or_default();
        SetupError::Unmet { key, given, reason: reason.into() }
    }
}

impl ConnectError {
    /// Whether the same request may succeed later, without a change of the program or of the
    /// configuration of either side. Then wait and try again, or go elsewhere.
    pub fn is_transient(self) -> bool {
        match self {
            // The peer, the network or this host may recover.
            ConnectError::NoListener
            | ConnectError::TimedOut
            | ConnectError::NoRoute
            | ConnectError::Failed
            | ConnectError::CallFailed { .. }
            | ConnectError::NoRoom
            | ConnectError::Lost => true,
            ConnectError::Rejected(why) => why.is_transient(),
            ConnectError::RefusedHere(why) => why.is_transient(),
            ConnectError::WrongAddress { .. }
            | ConnectError::Stopped
            | ConnectError::Version { .. } => false,
        }
    }
}

/// A thread of the engine has panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{thread} has panicked: {message}")]
#[non_exhaustive]
pub struct Panicked {
    /// The thread.
    pub thread: EngineThread,
    /// The panic message.
    pub message: String,
}

impl Panicked {
    /// The panic of `thread` with this message.
    pub fn new(thread: EngineThread, message: impl Into<String>) -> Panicked {
        Panicked { thread, message: message.into() }
    }
}

/// A thread of the engine, or a shard that a program polls itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineThread {
    /// The control plane. Without it, connections can no longer be established or accepted.
    Control,
    /// The shard with this number.
    Shard(u32),
}

impl fmt::Display for EngineThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineThread::Control => f.write_str("the control plane"),
            EngineThread::Shard(number) => write!(f, "shard {number}"),
        }
    }
}

impl HostRefusal {
    /// As [`ConnectError::is_transient`].
    pub fn is_transient(self) -> bool {
        match self {
            // Others give back what they have.
            HostRefusal::Limit { .. } | HostRefusal::Memory { .. } => true,
            HostRefusal::Invalid { .. } | HostRefusal::Unmet { .. } | HostRefusal::Config => false,
        }
    }
}

/// Why a connection could not be established.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The host answers, and no program listens on this port over RDMA.
    #[error("no listener at this address (connection refused)")]
    NoListener,
    /// The provider cannot use an address of this kind.
    #[error("{reason}")]
    WrongAddress {
        /// Which addresses the provider takes.
        reason: &'static str,
    },
    /// The peer rejected the request.
    #[error("the peer rejected the connection: {0}")]
    Rejected(Rejection),
    /// The peer did not answer in time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// There is no route from this device to the address: no route at all, or one through another
    /// device.
    #[error("no route to this address from this device (verbs.device, verbs.address)")]
    NoRoute,
    /// This host refuses to set the connection up.
    #[error("this host refuses the connection: {0}")]
    RefusedHere(#[from] HostRefusal),
    /// A call failed on this host.
    #[error("a call of this host failed while it set the connection up")]
    Failed,
    /// A call of a library failed on this host.
    #[error("{call} failed on this host: {}; {hint}", std::io::Error::from_raw_os_error(*.errno))]
    CallFailed {
        /// The function.
        call: &'static str,
        /// Its error number.
        errno: i32,
        /// The likely cause.
        hint: &'static str,
    },
    /// The engine or the shard has stopped meanwhile.
    #[error("the engine or the shard has stopped")]
    Stopped,
    /// The shard has `connections.max` connections.
    #[error("this shard has as many connections as its configuration allows (connections.max)")]
    NoRoom,
    /// The connection was lost before it could be used.
    #[error("the connection was lost before it could be used")]
    Lost,
    /// The two sides have no version of RPC-over-RDMA in common.
    #[error("the peer supports only versions {low} to {high} of RPC-over-RDMA (protocol.version)")]
    Version {
        /// Its lowest version.
        low: u32,
        /// Its highest version.
        high: u32,
    },
}

/// Why this host refuses to set a connection up: the [`SetupError`] of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostRefusal {
    /// The connection needs more than the device has.
    #[error("{what}: {needed} needed, the device has at most {limit}")]
    Limit {
        /// The resource.
        what: &'static str,
        /// The number that is needed.
        needed: u64,
        /// What there is.
        limit: u64,
    },
    /// Memory could not be allocated or registered.
    #[error("it cannot obtain memory for {what}")]
    Memory {
        /// The purpose of the memory.
        what: &'static str,
    },
    /// A value is not in the allowed range.
    #[error("{what} is not in the allowed range")]
    Invalid {
        /// The name of the value.
        what: &'static str,
    },
    /// The device or the system cannot do what a key of the configuration requires.
    #[error("the device or the system cannot do what {key} requires")]
    Unmet {
        /// The key.
        key: &'static str,
    },
    /// The configuration does not fit the device or the machine.
    #[error("the configuration does not fit the device or the machine")]
    Config,
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_what_may_pass_by_itself_is_transient() {
        let passing = [
            ConnectError::NoListener,
            ConnectError::TimedOut,
            ConnectError::NoRoute,
            ConnectError::Failed,
            ConnectError::CallFailed { call: "connect", errno: 24, hint: "" },
            ConnectError::NoRoom,
            ConnectError::Lost,
            ConnectError::Rejected(Rejection::Busy),
            HostRefusal::Limit { what: "", needed: 2, limit: 1 }.into(),
            HostRefusal::Memory { what: "" }.into(),
        ];
        let lasting = [
            ConnectError::WrongAddress { reason: "" },
            ConnectError::Stopped,
            ConnectError::Version { low: 1, high: 1 },
            ConnectError::Rejected(Rejection::NotAllowed),
            ConnectError::Rejected(Rejection::Unfit),
            HostRefusal::Invalid { what: "" }.into(),
            HostRefusal::Unmet { key: "" }.into(),
            HostRefusal::Config.into(),
        ];
        assert!(passing.iter().all(|why| why.is_transient()), "{passing:?}");
        assert!(!lasting.iter().any(|why| why.is_transient()), "{lasting:?}");
    }

    #[test]
    fn a_connection_that_cannot_be_made_keeps_the_call_that_failed() {
        let source = io::Error::from_raw_os_error(13);
        let failed = SetupError::System { call: "memfd_create", source, hint: "a hint" };
        let expected = ConnectError::CallFailed { call: "memfd_create", errno: 13, hint: "a hint" };
        assert_eq!(failed.as_connect_error(), expected);
        assert_eq!(SetupError::Stopped.as_connect_error(), ConnectError::Stopped);
        let to: Address = "127.0.0.1:1".parse().expect("an address");
        let lost = SetupError::connect(to, ConnectError::Lost);
        assert_eq!(lost.as_connect_error(), ConnectError::Lost);
    }

    #[test]
    fn a_connection_that_this_host_refuses_keeps_the_cause_and_its_numbers() {
        let (what, device) = ("queue pairs", "rxe0".to_owned());
        let limit = SetupError::Limit { what, needed: 9, limit: 8, device };
        let said = limit.as_connect_error().to_string();
        assert!(said.ends_with("queue pairs: 9 needed, the device has at most 8"), "{said}");
        let text = String::new;
        for (error, why) in [
            (SetupError::Memory { what, reason: text() }, HostRefusal::Memory { what }),
            (
                SetupError::Invalid { what, value: text(), allowed: text() },
                HostRefusal::Invalid { what },
            ),
            (
                SetupError::Unmet { key: what, given: text(), reason: text() },
                HostRefusal::Unmet { key: what },
            ),
            (SetupError::Config(text()), HostRefusal::Config),
        ] {
            assert_eq!(error.as_connect_error(), ConnectError::RefusedHere(why));
        }
    }
}
