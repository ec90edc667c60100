//! How a device is chosen, and how its connections behave.

/// How a device is chosen, and how its connections behave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerbsOptions {
    /// The device by its name, as `rdma link` and `ibv_devices` show it.
    pub device: Option<String>,
    /// The device by an address of it. Without it and without a name: the first that has an active
    /// port.
    pub address: Option<std::net::IpAddr>,
    /// The port, from 1. Without it: the first that is active.
    pub port: Option<u8>,
    /// The device by one of its GIDs.
    pub gid: Option<[u8; 16]>,
}

impl VerbsOptions {
    /// What is asked for, for people.
    pub(crate) fn describe(&self) -> String {
        let mut wanted = Vec::new();
        wanted.extend(self.device.as_ref().map(|name| format!("named {name}")));
        wanted.extend(self.address.map(|address| format!("reached at {address}")));
        wanted
            .extend(self.gid.map(|gid| format!("known as GID {}", std::net::Ipv6Addr::from(gid))));
        wanted.push(match self.port {
            Some(port) => format!("one with a port {port}"),
            None => "one with an active port".to_owned(),
        });
        wanted.join(", ")
    }
}
