//! The options of a device: how it is chosen, and the parameters of its connections.

use std::net::IpAddr;
use std::time::Duration;

use rpcrdma_config::Config;
use rpcrdma_config::section;

/// The choice of a device, and the parameters of its connections: `[verbs]` of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbsOptions {
    /// The device by its name, as `rdma link` and `ibv_devices` show it.
    pub device: Option<String>,
    /// An address of the device, which selects it and is the source of its connections. Without
    /// address and name, the first device with an active port is used.
    pub address: Option<IpAddr>,
    /// The port, from 1. Without it: the first active one.
    pub port: Option<u8>,
    /// An entry of the port's GID table, whose address is used if `address` is not set.
    pub gid: Option<u8>,
    /// The longest inline request of queue pairs, as far as the device supports it.
    pub inline_len: u32,
    /// Concurrent RDMA Reads of one connection, in each direction.
    pub reads: u8,
    /// The RNR NAK timer, which a peer waits when there is no Receive: the code of the attribute.
    pub rnr_timer: u8,
    /// How often an unacknowledged request is retransmitted; at most 7.
    pub retry_count: u8,
    /// The acknowledgement timeout: 4.096 us times two to the power of this.
    pub ack_timeout: u8,
    /// The traffic class of packets; the system's default if not set.
    pub traffic_class: Option<u8>,
    /// Connection requests of one listener that may wait for an answer.
    pub backlog: u32,
    /// The timeout of resolving an address or a route.
    pub resolve_timeout: Duration,
    /// The timeout of a connection request's answer.
    pub answer_timeout: Duration,
    /// The number of tries to find the peer and get its answer.
    pub attempts: u32,
    /// The pause after the first failed attempt; each further pause is twice as long.
    pub pause: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl VerbsOptions {
    /// The first configuration key that a device with these options does not meet. With `auto`, the
    /// code that opens the device chooses it.
    pub(crate) fn unmet(&self, config: &Config) -> Option<&'static str> {
        let named = VerbsOptions::from(config.verbs());
        let is_other = |named: bool, same: bool| named && !same;
        let VerbsOptions { device, address, port, gid, .. } = self;
        let VerbsOptions { inline_len, reads, rnr_timer, retry_count, ack_timeout, .. } = *self;
        let VerbsOptions { traffic_class, backlog, resolve_timeout, answer_timeout, .. } = *self;
        let VerbsOptions { attempts, pause, pause_max, .. } = *self;
        let keys = [
            ("verbs.device", is_other(named.device.is_some(), named.device == *device)),
            ("verbs.address", is_other(named.address.is_some(), named.address == *address)),
            ("verbs.port", is_other(named.port.is_some(), named.port == *port)),
            ("verbs.gid", is_other(named.gid.is_some(), named.gid == *gid)),
            ("verbs.inline", named.inline_len != inline_len),
            ("verbs.reads", named.reads != reads),
            ("verbs.rnr_timer", named.rnr_timer != rnr_timer),
            ("verbs.retry_count", named.retry_count != retry_count),
            ("verbs.ack_timeout", named.ack_timeout != ack_timeout),
            ("verbs.traffic_class", named.traffic_class != traffic_class),
            ("verbs.backlog", named.backlog != backlog),
            ("verbs.resolve_timeout", named.resolve_timeout != resolve_timeout),
            ("verbs.answer_timeout", named.answer_timeout != answer_timeout),
            ("verbs.attempts", named.attempts != attempts),
            ("verbs.pause", named.pause != pause),
            ("verbs.pause_max", named.pause_max != pause_max),
        ];
        keys.iter().find(|(_, is_unmet)| *is_unmet).map(|(key, _)| *key)
    }

    /// The requested device, for error messages.
    pub(crate) fn describe(&self) -> String {
        let mut wanted = Vec::new();
        wanted.extend(self.device.as_ref().map(|name| format!("named {name}")));
        wanted.extend(self.address.map(|address| format!("reached at {address}")));
        wanted.extend(self.gid.map(|gid| format!("with a GID {gid} in its table")));
        wanted.push(match self.port {
            Some(port) => format!("with a port {port}"),
            None => "with an active port".to_owned(),
        });
        wanted.join(", ")
    }
}

/// The section of the default configuration.
impl Default for VerbsOptions {
    fn default() -> VerbsOptions {
        VerbsOptions::from(Config::default().verbs())
    }
}

impl From<&section::VerbsSection> for VerbsOptions {
    fn from(given: &section::VerbsSection) -> VerbsOptions {
        // All values are in the range of their types: the section checks them.
        let byte = |value: u32| u8::try_from(value).unwrap_or(u8::MAX);
        VerbsOptions {
            device: given.device.clone(),
            address: given.address,
            port: given.port.map(|port| byte(port.value())),
            gid: given.gid.map(|gid| byte(gid.value())),
            inline_len: given.inline_len.value(),
            reads: byte(given.reads.value()),
            rnr_timer: given.rnr_timer.code(),
            retry_count: byte(given.retry_count.value()),
            ack_timeout: byte(given.ack_timeout.value()),
            traffic_class: given.traffic_class.map(|class| byte(class.value())),
            backlog: given.backlog.value(),
            resolve_timeout: given.resolve_timeout,
            answer_timeout: given.answer_timeout,
            attempts: given.attempts.value(),
            pause: given.pause,
            pause_max: given.pause_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_a_file_is_an_option() {
        let config = Config::parse(
            "[verbs]\ndevice = \"mlx5_0\"\naddress = \"10.0.0.1\"\nport = 2\ngid = 3\n\
             inline = \"64B\"\nreads = 4\nrnr_timer = \"640us\"\nretry_count = 5\nack_timeout = 14\n\
             traffic_class = 104\nbacklog = 9\nresolve_timeout = \"10ms\"\nanswer_timeout = \"11ms\"\n\
             attempts = 12\npause = \"13ms\"\npause_max = \"14ms\"",
        );
        let millis = Duration::from_millis;
        let expected = VerbsOptions {
            device: Some("mlx5_0".to_owned()),
            address: Some("10.0.0.1".parse().expect("an address")),
            port: Some(2),
            gid: Some(3),
            inline_len: 64,
            reads: 4,
            rnr_timer: 12,
            retry_count: 5,
            ack_timeout: 14,
            traffic_class: Some(104),
            backlog: 9,
            resolve_timeout: millis(10),
            answer_timeout: millis(11),
            attempts: 12,
            pause: millis(13),
            pause_max: millis(14),
        };
        assert_eq!(VerbsOptions::from(config.expect("it is right").verbs()), expected);
    }

    #[test]
    fn every_key_that_the_options_contradict_is_named() {
        let config = |section: &str| Config::parse(section).expect("it is right");
        let options = VerbsOptions { device: Some("rxe0".to_owned()), ..VerbsOptions::default() };
        assert_eq!(options.unmet(&Config::default()), None, "any device does");
        assert_eq!(options.unmet(&config("[verbs]\ndevice = \"rxe0\"")), None);
        for line in [
            "device = \"mlx5_0\"",
            "address = \"10.0.0.1\"",
            "port = 2",
            "gid = 3",
            "inline = \"64B\"",
            "reads = 4",
            "rnr_timer = \"640us\"",
            "retry_count = 5",
            "ack_timeout = 14",
            "traffic_class = 104",
            "backlog = 9",
            "resolve_timeout = \"10ms\"",
            "answer_timeout = \"11ms\"",
            "attempts = 12",
            "pause = \"13ms\"",
            "pause_max = \"14s\"",
        ] {
            let key = format!("verbs.{}", line.split(' ').next().expect("a key"));
            let config = config(&format!("[verbs]\n{line}"));
            assert_eq!(options.unmet(&config), Some(key.as_str()), "{line}");
            assert_eq!(VerbsOptions::from(config.verbs()).unmet(&config), None, "{line}");
        }
        let keys = rpcrdma_config::keys();
        assert_eq!(keys.iter().filter(|key| key.starts_with("verbs.")).count(), 16);
    }

    #[test]
    fn without_options_any_device_is_used() {
        let any = VerbsOptions::default();
        assert_eq!((any.device.as_ref(), any.address, any.port, any.gid), (None, None, None, None));
        assert_eq!(any.describe(), "with an active port");
    }
}
