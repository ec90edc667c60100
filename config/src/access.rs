//! Who may connect: the lists `connections.allow` and `connections.deny`.
//!
//! ```text
//!   named by deny ─▶ no        named by neither ─▶ yes, if allow is empty
//!   named by allow only ─▶ yes
//! ```

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::error::ConfigError;

/// Both lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    allow: Vec<Entry>,
    deny: Vec<Entry>,
}

/// An entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// The hosts of a network.
    Network(IpNet),
    /// The processes of a user of this host.
    User(u32),
    /// The processes of a group of this host.
    Group(u32),
}

/// What is known of a peer before it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Its address on a network.
    Host(IpAddr),
    /// The user and the group of its process, on this host.
    Process {
        /// The number of the user.
        uid: u32,
        /// The number of the group.
        gid: u32,
    },
    /// Nothing that a list can name.
    Unknown,
}

impl Access {
    /// The lists with these entries.
    pub(crate) fn parse(allow: &[String], deny: &[String]) -> Result<Access, ConfigError> {
        Ok(Access {
            allow: entries("connections.allow", allow)?,
            deny: entries("connections.deny", deny)?,
        })
    }

    /// Whether a peer may connect. An IPv4 address that is written as an IPv6 address counts as the
    /// IPv4 address. A list of networks names no process, and a list of users no host.
    pub fn permits(&self, who: Who) -> bool {
        let who = match who {
            Who::Host(address) => Who::Host(address.to_canonical()),
            other => other,
        };
        let is_named = |list: &[Entry]| list.iter().any(|entry| entry.names(who));
        !is_named(&self.deny) && (self.allow.is_empty() || is_named(&self.allow))
    }
}

impl Entry {
    fn parse(key: &'static str, text: &str) -> Result<Entry, ConfigError> {
        let wrong =
            |allowed: String| ConfigError::Value { key, given: format!("{text:?}"), allowed };
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            // The largest number means "no user" to the system.
            let number = digits.parse().ok().filter(|number| is_number && *number < u32::MAX);
            number.ok_or_else(|| wrong(format!("uid: or gid: and 0 to {}", u32::MAX - 1)))
        };
        if let Some(digits) = text.strip_prefix("uid:") {
            return number(digits).map(Entry::User);
        }
        if let Some(digits) = text.strip_prefix("gid:") {
            return number(digits).map(Entry::Group);
        }
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        let network = text.parse::<IpNet>().or_else(|_| address());
        let network = network.map_err(|_| wrong(ENTRY_EXPECTED.to_owned()))?;
        if network != network.trunc() {
            let (whole, one) = (network.trunc(), network.addr());
            return Err(wrong(format!(
                "\"{whole}\", the network, or \"{one}\", one address of it"
            )));
        }
        Ok(Entry::Network(canonical(network)))
    }

    fn names(self, who: Who) -> bool {
        match (self, who) {
            (Entry::Network(network), Who::Host(address)) => network.contains(&address),
            (Entry::User(number), Who::Process { uid, .. }) => number == uid,
            (Entry::Group(number), Who::Process { gid, .. }) => number == gid,
            _ => false,
        }
    }
}

/// A network of IPv4 addresses that are written as IPv6 addresses, as IPv4.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(written) = network else { return network };
    let prefix_len = written.prefix_len().checked_sub(MAPPED_LEN);
    let mapped = written.addr().to_ipv4_mapped().zip(prefix_len);
    let inner = mapped.and_then(|(address, len)| Ipv4Net::new(address, len).ok());
    inner.map_or(network, IpNet::V4)
}

fn entries(key: &'static str, texts: &[String]) -> Result<Vec<Entry>, ConfigError> {
    if texts.len() > ENTRIES_MAX {
        let (given, allowed) =
            (format!("{} entries", texts.len()), format!("at most {ENTRIES_MAX}"));
        return Err(ConfigError::Value { key, given, allowed });
    }
    texts.iter().map(|text| Entry::parse(key, text)).collect()
}

/// What an entry can be.
const ENTRY_EXPECTED: &str = "a network such as \"10.0.0.0/8\" or \"fe80::/10\", \
    an address, \"uid:1000\" or \"gid:100\"";
/// Entries of a list: each connection request is compared with all of them.
const ENTRIES_MAX: usize = 1024;
/// Bits in front of an IPv4 address that is written as an IPv6 address.
const MAPPED_LEN: u8 = 96;

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(allow: &[&str], deny: &[&str]) -> Access {
        let owned = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        Access::parse(&owned(allow), &owned(deny)).expect("both lists are valid")
    }

    fn host(text: &str) -> Who {
        Who::Host(text.parse().expect("an address"))
    }

    fn process(uid: u32, gid: u32) -> Who {
        Who::Process { uid, gid }
    }

    fn refusal(text: &str) -> String {
        let error = Access::parse(&[], &[text.to_owned()]).expect_err(text);
        assert_eq!(error.key(), Some("connections.deny"));
        error.to_string()
    }

    #[test]
    fn without_lists_all_may_connect() {
        let access = Access::default();
        for who in [host("10.0.0.1"), host("fd00::1"), process(0, 0), Who::Unknown] {
            assert!(access.permits(who), "{who:?}");
        }
    }

    #[test]
    fn allow_admits_only_what_it_names() {
        let access = lists(&["10.0.0.0/8", "fe80::/10", "192.0.2.7", "fd00::7"], &[]);
        for text in ["10.0.0.0", "10.255.255.255", "fe80::1", "febf::1", "192.0.2.7", "fd00::7"] {
            assert!(access.permits(host(text)), "{text}");
        }
        for text in ["9.255.255.255", "11.0.0.0", "fec0::1", "192.0.2.6", "192.0.2.8", "fd00::8"] {
            assert!(!access.permits(host(text)), "{text}");
        }
        assert!(!access.permits(Who::Unknown));
    }

    #[test]
    fn deny_wins() {
        let access = lists(&["10.0.0.0/8", "uid:1000"], &["10.1.0.0/16", "gid:100"]);
        assert!(access.permits(host("10.0.255.255")) && access.permits(host("10.2.0.0")));
        assert!(!access.permits(host("10.1.0.0")) && !access.permits(host("10.1.255.255")));
        assert!(access.permits(process(1000, 101)));
        assert!(!access.permits(process(1000, 100)), "also for a user that is named");
        let same = lists(&["10.0.0.1"], &["10.0.0.1/32"]);
        assert!(!same.permits(host("10.0.0.1")));
    }

    #[test]
    fn a_list_of_one_kind_names_none_of_the_other() {
        let networks = lists(&["0.0.0.0/0", "::/0"], &[]);
        assert!(!networks.permits(process(0, 0)), "no process is in a network");
        let users = lists(&["uid:0", "gid:100"], &[]);
        assert!(!users.permits(host("127.0.0.1")), "no host is a user");
        assert!(users.permits(process(0, 7)) && users.permits(process(7, 100)));
        assert!(!users.permits(process(7, 7)));
        let denied = lists(&[], &["0.0.0.0/0", "::/0"]);
        assert!(denied.permits(process(0, 0)));
        let denied = lists(&[], &["uid:0"]);
        assert!(denied.permits(host("127.0.0.1")) && !denied.permits(process(0, 1)));
    }

    #[test]
    fn a_mapped_address_is_checked_as_ipv4() {
        let mapped = host("::ffff:10.0.0.1");
        assert!(!lists(&[], &["10.0.0.0/8"]).permits(mapped));
        assert!(lists(&["10.0.0.1"], &[]).permits(mapped));
        // And so is a network that is written in this way.
        for text in ["::ffff:10.0.0.0/104", "::ffff:10.0.0.1", "::ffff:0.0.0.0/96"] {
            let access = lists(&[], &[text]);
            assert!(!access.permits(mapped) && !access.permits(host("10.0.0.1")), "{text}");
            assert!(access.permits(host("fd00::1")), "{text}");
        }
        assert!(lists(&[], &["::ffff:10.0.0.0/104"]).permits(host("11.0.0.1")));
    }

    #[test]
    fn the_shortest_prefix_names_all_of_its_version_and_the_longest_one_address() {
        let no_four = lists(&[], &["0.0.0.0/0"]);
        assert!(!no_four.permits(host("255.255.255.255")) && !no_four.permits(host("0.0.0.0")));
        assert!(!no_four.permits(host("::ffff:1.2.3.4")) && no_four.permits(host("::1")));
        let no_six = lists(&[], &["::/0"]);
        assert!(!no_six.permits(host("::")) && no_six.permits(host("10.0.0.1")));
        assert!(no_six.permits(host("::ffff:1.2.3.4")), "it is an IPv4 address");
        let one = lists(&[], &["fd00::1/128", "10.0.0.1/32"]);
        assert!(!one.permits(host("fd00::1")) && one.permits(host("fd00::2")));
        assert!(!one.permits(host("10.0.0.1")) && one.permits(host("10.0.0.0")));
    }

    #[test]
    fn host_bits_are_an_error_that_says_what_may_be_meant() {
        let error = refusal("10.1.2.3/8");
        assert!(error.contains("\"10.1.2.3/8\""), "{error}");
        assert!(error.contains("\"10.0.0.0/8\"") && error.contains("\"10.1.2.3\""), "{error}");
        assert!(refusal("fd00::1/64").contains("\"fd00::/64\""));
        assert!(refusal("::1/0").contains("\"::/0\""));
        assert!(refusal("::ffff:10.0.0.1/104").contains("\"::ffff:10.0.0.0/104\""));
    }

    #[test]
    fn what_is_no_entry_is_an_error_that_says_what_is() {
        for text in ["", " ", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "host", "10.0.0.1:7", "*"] {
            let error = refusal(text);
            assert!(error.contains(&format!("{text:?}")), "{error}");
            assert!(error.contains("such as \"10.0.0.0/8\""), "{error}");
        }
        for text in ["uid:", "uid:root", "uid:-1", "uid:+1", "gid: 1", "gid:4294967295"] {
            assert!(refusal(text).contains("0 to 4294967294"), "{text}");
        }
        assert!(refusal("user:1").contains("\"uid:1000\""));
    }

    #[test]
    fn a_list_has_a_longest_length() {
        let many = |count: usize| vec!["10.0.0.1".to_owned(); count];
        assert!(Access::parse(&many(ENTRIES_MAX), &[]).is_ok());
        let error = Access::parse(&many(ENTRIES_MAX + 1), &[]).expect_err("one more");
        assert_eq!(error.to_string(), "connections.allow = 1025 entries; allowed: at most 1024");
    }
}
