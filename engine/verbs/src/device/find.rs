//! Finds a device by its name, by its address or GID, or the first with an active port.
#![expect(unsafe_code, reason = "libibverbs and librdmacm are called")]

use std::ffi::CStr;
use std::net::IpAddr;

use rpcrdma_provider::SetupError;

use crate::cm_id::address::of_gid;
use crate::cm_id::find::device_of;
use crate::error;
use crate::options::VerbsOptions;
use crate::sys::cm::Cm;
use crate::sys::verbs as sys;

/// A device that can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceName {
    /// As `rdma link` and `ibv_devices` show it.
    pub name: String,
    /// Its active ports.
    pub active_ports: Vec<ActivePort>,
}

/// A port that messages can go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivePort {
    /// Its number, from 1.
    pub num: u8,
    /// Data bytes of its longest packet.
    pub mtu: u32,
}

/// The devices of this machine.
///
/// # Errors
/// If the libraries are missing, or the kernel denies access to the devices.
pub fn devices() -> Result<Vec<DeviceName>, SetupError> {
    let (lib, cm) = (sys::Verbs::load()?, Cm::load()?);
    Ok(Contexts::open(cm)?.names(lib))
}

/// The libraries that cannot be used on this machine, each with the reason.
pub fn missing_libraries() -> Vec<(&'static str, SetupError)> {
    let verbs = sys::Verbs::load().err().map(|error| ("libibverbs.so.1", error));
    let cm = Cm::load().err().map(|error| ("librdmacm.so.1", error));
    verbs.into_iter().chain(cm).collect()
}

/// The contexts of all devices, which librdmacm opens and keeps open: ids and queues share them.
pub(crate) struct Contexts {
    cm: &'static Cm,
    /// Null if there is no device.
    list: *mut *mut sys::ibv_context,
    count: usize,
}

/// The chosen device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub context: *mut sys::ibv_context,
    pub port_num: u8,
    /// The source address of connections, if the options name one.
    pub source: Option<IpAddr>,
}

impl Contexts {
    pub fn open(cm: &'static Cm) -> Result<Contexts, SetupError> {
        let mut count = 0;
        // SAFETY: `count` is an integer to be written.
        let list = unsafe { (cm.rdma_get_devices)(&raw mut count) };
        if list.is_null() {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            if errno == libc::ENODEV || errno == libc::ENOENT {
                return Ok(Contexts { cm, list, count: 0 });
            }
            return Err(error::code("rdma_get_devices", errno));
        }
        Ok(Contexts { cm, list, count: usize::try_from(count).unwrap_or(0) })
    }

    fn iter(&self) -> impl Iterator<Item = *mut sys::ibv_context> {
        let list = if self.list.is_null() {
            &[]
        } else {
            // SAFETY: the library has returned a list of so many contexts, which lives as long as
            // `self`.
            unsafe { std::slice::from_raw_parts(self.list, self.count) }
        };
        list.iter().copied()
    }

    /// Whether messages can go through one of them.
    pub fn have_active_port(&self, lib: &sys::Verbs) -> bool {
        self.names(lib).iter().any(|device| !device.active_ports.is_empty())
    }

    fn names(&self, lib: &sys::Verbs) -> Vec<DeviceName> {
        let described = self.iter().map(|context| DeviceName {
            name: name_of(lib, context),
            active_ports: ports(lib, context)
                .into_iter()
                .flatten()
                .filter(|port| is_active(&port.1))
                .map(|(num, attr)| ActivePort { num, mtu: mtu(attr.active_mtu) })
                .collect(),
        });
        described.collect()
    }

    /// The device that the options choose, and its port.
    pub fn choose(
        &self,
        lib: &'static sys::Verbs,
        options: &VerbsOptions,
    ) -> Result<Found, SetupError> {
        let by_address = match options.address {
            Some(address) => Some(device_of(lib, self.cm, address)?),
            None => None,
        };
        let fits = |context: *mut sys::ibv_context, (port, attr): &(u8, sys::ibv_port_attr)| {
            options.device.as_ref().is_none_or(|name| *name == name_of(lib, context))
                && by_address.is_none_or(|at| at == (context, *port))
                && options.port.map_or(is_active(attr), |wanted| wanted == *port)
                && options.gid.is_none_or(|gid| gid_at(lib, context, *port, gid).is_some())
        };
        let mut failure = None;
        for context in self.iter() {
            let ports = ports(lib, context).unwrap_or_else(|error| {
                failure.get_or_insert(error);
                Vec::new()
            });
            if let Some((port_num, _)) = ports.into_iter().find(|port| fits(context, port)) {
                let gid = options.gid.and_then(|gid| gid_at(lib, context, port_num, gid));
                let source = options.address.or(gid.map(of_gid));
                return Ok(Found { context, port_num, source });
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let found = self.names(lib).iter().map(DeviceName::describe).collect::<Vec<_>>().join(", ");
        let found = if found.is_empty() { NONE.to_owned() } else { found };
        Err(SetupError::NoDevice { wanted: options.describe(), found })
    }
}

impl DeviceName {
    fn describe(&self) -> String {
        let ports: Vec<u8> = self.active_ports.iter().map(|port| port.num).collect();
        match ports.as_slice() {
            [] => format!("{} (no active port)", self.name),
            ports => format!("{} (active ports {ports:?})", self.name),
        }
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        if !self.list.is_null() {
            // SAFETY: the list came from `rdma_get_devices` and is given back once.
            unsafe { (self.cm.rdma_free_devices)(self.list) };
        }
    }
}

/// The ports of a device, which has one at least: those before the first that it does not have.
fn ports(
    lib: &sys::Verbs,
    context: *mut sys::ibv_context,
) -> Result<Vec<(u8, sys::ibv_port_attr)>, SetupError> {
    let mut found = vec![(1, port_attr(lib, context, 1)?)];
    let others = (2..=u8::MAX).map_while(|port| Some((port, port_attr(lib, context, port).ok()?)));
    found.extend(others);
    Ok(found)
}

/// The attributes of a port.
pub(super) fn port_attr(
    lib: &sys::Verbs,
    context: *mut sys::ibv_context,
    port: u8,
) -> Result<sys::ibv_port_attr, SetupError> {
    // SAFETY: all members are integers, for which zeros are values.
    let mut attr: sys::ibv_port_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open and `attr` is as the header has it.
    let code = unsafe { (lib.ibv_query_port)(context, port, &raw mut attr) };
    if code == 0 { Ok(attr) } else { Err(error::code("ibv_query_port", code)) }
}

fn is_active(attr: &sys::ibv_port_attr) -> bool {
    attr.state == sys::IBV_PORT_ACTIVE
}

/// The bytes that an MTU code of the header means: 1 is 256, 5 is 4096; 0 for an unknown code.
fn mtu(code: u32) -> u32 {
    if (1..=5).contains(&code) { 128 << code } else { 0 }
}

/// An entry of a port's GID table, if it is not empty.
fn gid_at(
    lib: &sys::Verbs,
    context: *mut sys::ibv_context,
    port: u8,
    index: u8,
) -> Option<sys::ibv_gid> {
    let mut gid = [0; 16];
    // SAFETY: the context is open, and a GID has sixteen bytes.
    let code = unsafe { (lib.ibv_query_gid)(context, port, index.into(), &raw mut gid) };
    (code == 0 && gid != [0; 16]).then_some(gid)
}

/// The name of a device.
pub(super) fn name_of(lib: &sys::Verbs, context: *mut sys::ibv_context) -> String {
    // SAFETY: the context is open, and has its device.
    let device = unsafe { (*context).device };
    // SAFETY: the device is that of an open context.
    let name = unsafe { (lib.ibv_get_device_name)(device) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: the library returns a string that lives as long as the device.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// The message when there is no device.
const NONE: &str = "none (is the driver loaded? `rdma link` shows devices)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verbs;

    #[test]
    fn the_codes_of_the_mtu_are_those_of_the_header() {
        assert_eq!([1, 2, 3, 4, 5].map(mtu), [256, 512, 1024, 2048, 4096]);
        assert_eq!([0, 6].map(mtu), [0, 0]);
    }

    #[test]
    fn devices_are_described_with_the_numbers_of_their_ports() {
        let port = ActivePort { num: 1, mtu: 1024 };
        let device = DeviceName { name: "rxe0".to_owned(), active_ports: vec![port] };
        assert_eq!(device.describe(), "rxe0 (active ports [1])");
        let down = DeviceName { active_ports: Vec::new(), ..device };
        assert_eq!(down.describe(), "rxe0 (no active port)");
    }

    #[test]
    fn missing_libraries_are_those_that_devices_require() {
        let missing = missing_libraries();
        assert_eq!(matches!(devices(), Err(SetupError::Library { .. })), !missing.is_empty());
    }

    #[test]
    fn a_missing_device_is_an_error_that_names_it() {
        let options =
            VerbsOptions { device: Some("nosuch0".to_owned()), ..VerbsOptions::default() };
        let error = Verbs::open(&options).expect_err("there is no such device");
        match error {
            SetupError::NoDevice { wanted, .. } => assert!(wanted.contains("nosuch0"), "{wanted}"),
            // There are no libraries, or no device at all.
            SetupError::Library { .. } | SetupError::System { .. } => {}
            other => panic!("{other}"),
        }
    }
}
