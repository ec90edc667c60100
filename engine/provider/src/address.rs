//! Addresses: where a provider listens, where it connects to, and where a peer is.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

/// The address of a listener or of a peer.
///
/// A provider takes the kinds that lead somewhere in its network, and refuses the others with an
/// error that says which it takes. As text:
///
/// ```text
///   10.0.0.1:20049   [fd00::1]:20049   an IP address and a port
///   shm:/run/store.sock                a Unix socket with a path
///   shm:@store                         a Unix socket with an abstract name
/// ```
/// This text is parsed, and displayed again. [`Address::Process`] is displayed only: a provider
/// reports it, and no program can listen on it or connect to it.
///
/// ```
/// use rpcrdma_provider::Address;
///
/// let device: Address = "10.0.0.1:7777".parse()?;
/// assert!(matches!(device, Address::Ip(_)));
/// let socket: Address = "shm:/run/store.sock".parse()?;
/// assert_eq!(socket.to_string(), "shm:/run/store.sock");
/// assert!("10.0.0.1".parse::<Address>().is_err(), "the port is missing");
/// # Ok::<(), rpcrdma_provider::AddressError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An IP address and a port, of a device, of TCP or of the software fabric. To listen on port 0
    /// selects a free port.
    Ip(SocketAddr),
    /// A Unix socket of this host.
    Shm(ShmName),
    /// A process of this host that connected through a Unix socket.
    Process(Credentials),
}

/// What the connections of one host, socket or user have in common: see [`Address::origin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The host with this address.
    Host(IpAddr),
    /// The process that listens on this Unix socket.
    Socket(ShmName),
    /// The user of this host with this number.
    User(u32),
}

/// The name of a Unix socket: an absolute path, or `@` and an abstract name.
///
/// A relative path is refused, because it names another socket in another working directory. `@`
/// alone stands for any unused abstract name, as port 0 stands for any free port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShmName {
    // In the order of comparison: the zeros behind a name are less than any byte of one.
    bytes: [u8; ShmName::LEN_MAX],
    len: u8,
}

/// A process and its user, as the kernel states them when the process connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credentials {
    /// The number of the process; 0 if the process is not visible here.
    pub pid: u32,
    /// The number of its user.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
}

/// Why a text is not an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It has none of the forms.
    #[error("an address is ADDR:PORT, [ADDR]:PORT, shm:/PATH or shm:@NAME")]
    Form,
    /// The name of the socket is neither an absolute path nor abstract.
    #[error(
        "the name of a Unix socket begins with `/` (an absolute path) or `@` (an abstract name)"
    )]
    Relative,
    /// The name of the socket is too long.
    #[error("the name of a Unix socket has at most {} bytes; this one has {len}", ShmName::LEN_MAX)]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The name of the socket contains a NUL byte.
    #[error("the name of a Unix socket contains a NUL byte")]
    Nul,
}

impl Address {
    /// The IP address and the port, if it has them.
    pub fn as_ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(*address),
            Address::Shm(_) | Address::Process(_) => None,
        }
    }

    /// The subject of quotas: the host without the port, the socket, or the user without the
    /// process. The same host or user connects again from a different port or process.
    pub fn origin(&self) -> Origin {
        match self {
            // An IPv4 host has one origin, however the listener writes its address.
            Address::Ip(address) => Origin::Host(address.ip().to_canonical()),
            Address::Shm(name) => Origin::Socket(*name),
            Address::Process(process) => Origin::User(process.uid),
        }
    }
}

impl Origin {
    /// The origin that shares are counted by: of an IPv6 host its network of 64 bits, because the
    /// host has any address of it that it wants.
    pub fn network(self) -> Origin {
        match self {
            Origin::Host(IpAddr::V6(host)) => {
                Origin::Host(IpAddr::V6(Ipv6Addr::from_bits(host.to_bits() & NETWORK)))
            }
            other => other,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Ip(address)
    }
}

impl From<ShmName> for Address {
    fn from(name: ShmName) -> Address {
        Address::Shm(name)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        match text.strip_prefix(SHM) {
            Some(name) => ShmName::new(name).map(Address::Shm),
            None => text.parse().map(Address::Ip).map_err(|_| AddressError::Form),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Shm(name) => write!(f, "{SHM}{name}"),
            Address::Process(process) => process.fmt(f),
        }
    }
}

impl ShmName {
    /// The longest name in bytes, with the `@` of an abstract one: the system's limit of a path.
    pub const LEN_MAX: usize = 107;

    /// The socket with this name.
    ///
    /// # Errors
    /// If the text does not name a socket.
    pub fn new(name: &str) -> Result<ShmName, AddressError> {
        let len = name.len();
        if !name.starts_with(['/', '@']) {
            return Err(AddressError::Relative);
        }
        if name.contains('\0') {
            return Err(AddressError::Nul);
        }
        let mut bytes = [0; ShmName::LEN_MAX];
        let room = bytes.get_mut(..len).ok_or(AddressError::TooLong { len })?;
        room.copy_from_slice(name.as_bytes());
        Ok(ShmName { bytes, len: len as u8 })
    }

    /// The name: the path, or `@` and the abstract name.
    pub fn as_str(&self) -> &str {
        let bytes = &self.bytes[..usize::from(self.len)];
        std::str::from_utf8(bytes).expect("the bytes were copied from a str")
    }

    /// The path, unless the name is abstract.
    pub fn path(&self) -> Option<&Path> {
        match self.abstract_name() {
            Some(_) => None,
            None => Some(Path::new(self.as_str())),
        }
    }

    /// The abstract name without its `@`, if the name is abstract; empty for any unused name.
    pub fn abstract_name(&self) -> Option<&str> {
        self.as_str().strip_prefix('@')
    }
}

impl fmt::Display for ShmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Debug for ShmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Credentials { pid, uid, gid } = self;
        write!(f, "process {pid} (uid {uid}, gid {gid})")
    }
}

/// What the text of a Unix socket's address begins with.
const SHM: &str = "shm:";

/// The bits of an IPv6 address that name its network.
const NETWORK: u128 = !(u64::MAX as u128);

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Address {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> AddressError {
        text.parse::<Address>().expect_err(text)
    }

    fn named(address: Address) -> ShmName {
        match address {
            Address::Shm(name) => name,
            other => panic!("{other} is not a socket"),
        }
    }

    #[test]
    fn text_is_displayed_as_it_was_parsed() {
        for text in [
            "10.0.0.1:20049",
            "0.0.0.0:0",
            "[fd00::1]:65535",
            "[fe80::1%3]:7",
            "shm:/run/store.sock",
            "shm:/run/a folder:1/ü.sock",
            "shm:@store",
            "shm:@",
            "shm:@10.0.0.1:7",
        ] {
            assert_eq!(parsed(text).to_string(), text);
        }
    }

    #[test]
    fn the_addresses_of_an_ipv6_network_have_one_share() {
        let share = |text: &str| parsed(text).origin().network();
        assert_eq!(share("[fd00::1]:7"), share("[fd00::ffff:1:2:3]:8"));
        assert_ne!(share("[fd00::1]:7"), share("[fd00:0:0:1::1]:7"));
        assert_ne!(parsed("[fd00::1]:7").origin(), parsed("[fd00::2]:7").origin());
        assert_eq!(share("10.0.0.1:7"), share("[::ffff:10.0.0.1]:8"));
        assert_ne!(share("10.0.0.1:7"), share("[::ffff:10.0.0.2]:7"));
        assert_ne!(share("shm:@one"), share("shm:@two"));
    }

    #[test]
    fn an_ip_address_of_either_version_is_one() {
        let socket = |text: &str| text.parse::<SocketAddr>().expect("an IP address");
        for text in ["10.0.0.1:20049", "[fd00::1]:7", "[fe80::1%3]:7"] {
            assert_eq!(parsed(text), Address::from(socket(text)));
            assert_eq!(parsed(text).as_ip(), Some(socket(text)));
        }
        assert_eq!(parsed("shm:/run/store.sock").as_ip(), None);
    }

    #[test]
    fn a_path_and_an_abstract_name_differ() {
        let path = named(parsed("shm:/run/store.sock"));
        assert_eq!(path.path(), Some(Path::new("/run/store.sock")));
        assert_eq!(path.abstract_name(), None);
        let name = named(parsed("shm:@/run/store.sock"));
        assert_eq!(name.path(), None);
        assert_eq!(name.abstract_name(), Some("/run/store.sock"));
        assert_eq!(named(parsed("shm:@")).abstract_name(), Some(""));
        assert!(path != name && Address::from(path) != Address::from(name));
    }

    #[test]
    fn a_text_without_a_form_is_refused() {
        for text in ["", "10.0.0.1", "fd00::1:7", "[fd00::1]", "10.0.0.1:65536", "/run/store.sock"]
        {
            assert_eq!(refused(text), AddressError::Form, "{text}");
        }
        for text in ["localhost:7", " 10.0.0.1:7", "SHM:@store", "process 1 (uid 2, gid 3)"] {
            assert_eq!(refused(text), AddressError::Form, "{text}");
        }
    }

    #[test]
    fn an_empty_name_and_a_relative_path_are_refused() {
        for text in ["shm:", "shm:store.sock", "shm:./store.sock", "shm: /run/store.sock"] {
            assert_eq!(refused(text), AddressError::Relative, "{text}");
        }
    }

    #[test]
    fn a_nul_byte_is_refused_wherever_it_is() {
        for text in ["shm:/run\0/a", "shm:/run/a\0", "shm:@\0", "shm:@a\0b"] {
            assert_eq!(refused(text), AddressError::Nul, "{text:?}");
        }
        assert_eq!(refused("shm:\0a"), AddressError::Relative);
    }

    #[test]
    fn a_name_has_at_most_107_bytes() {
        for first in ["/", "@"] {
            let longest = format!("{first}{}", "a".repeat(ShmName::LEN_MAX - 1));
            assert_eq!(parsed(&format!("shm:{longest}")).to_string(), format!("shm:{longest}"));
            let error = refused(&format!("shm:{longest}a"));
            assert_eq!(error, AddressError::TooLong { len: 108 });
            assert!(error.to_string().contains("at most 107 bytes; this one has 108"), "{error}");
        }
        // Bytes count, not characters.
        let error = refused(&format!("shm:/{}", "ü".repeat(54)));
        assert_eq!(error, AddressError::TooLong { len: 109 });
    }

    #[test]
    fn names_compare_as_their_text() {
        let texts = ["/", "/a", "/a/b", "/ab", "/b", "@", "@a", "@aa"];
        let names = texts.map(|text| ShmName::new(text).expect("a name"));
        assert!(names.is_sorted_by(|a, b| a < b) && texts.is_sorted());
        assert_eq!(names[1], ShmName::new("/a").expect("a name"));
    }

    #[test]
    fn a_process_is_displayed_with_its_user() {
        let process = Credentials { pid: 123, uid: 1000, gid: 100 };
        let said = Address::Process(process).to_string();
        assert_eq!(said, "process 123 (uid 1000, gid 100)");
    }

    #[test]
    fn an_origin_has_many_ports_and_processes() {
        let origin = |text: &str| parsed(text).origin();
        assert_eq!(origin("10.0.0.1:7"), origin("10.0.0.1:8"));
        assert_ne!(origin("10.0.0.1:7"), origin("10.0.0.2:7"));
        assert_eq!(origin("[fd00::1]:7"), origin("[fd00::1]:8"));
        assert_eq!(origin("[::ffff:10.0.0.1]:7"), origin("10.0.0.1:8"));
        assert_ne!(origin("shm:@a"), origin("shm:@b"));
        let process = |pid, uid| Address::Process(Credentials { pid, uid, gid: 100 }).origin();
        assert_eq!(process(1, 1000), process(2, 1000));
        assert_ne!(process(1, 1000), process(1, 1001));
    }
}
