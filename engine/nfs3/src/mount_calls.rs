//! The procedures of MOUNT: NULL, MNT, DUMP, UMNT, UMNTALL and EXPORT (RFC 1813 5).

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use nfs3_types::mount::{
    dirpath, export_node, exports, fhandle3, mountbody, mountlist, mountres3, mountres3_ok,
    mountstat3, name,
};
use nfs3_types::xdr_codec::{List, Opaque, Pack, Unpack};
use rpcrdma::Origin;
use rpcrdma::onc::{CallHeader, MsgType, Reader, ReplyHeader, RpcPrefix, RpcProgram, auth_flavor};
use rustix::fs::FileType;

use crate::export::Export;
use crate::node::OpenFile;
use crate::rpc::{CallDenial, CheckedCall};
use crate::status::Status;

/// The list of mounts for DUMP. It is incomplete, and nothing else uses it.
#[derive(Debug, Default)]
pub struct Mounts(VecDeque<(IpAddr, Vec<u8>)>);

/// The answer to a call; `None` if the record is not a call.
pub fn answer(
    export: &Export,
    mounts: &mut Mounts,
    from: SocketAddr,
    record: &[u8],
) -> Option<Vec<u8>> {
    let prefix = RpcPrefix::decode(record).ok().filter(|prefix| prefix.kind == MsgType::Call)?;
    let mut reader = Reader::new(record.get(RpcPrefix::LEN..)?);
    let header = CallHeader::decode(&mut reader).map_err(CallDenial::from);
    let executed = header
        .and_then(|header| CheckedCall::of(&header, &PROGRAM))
        .and_then(|called| execute(export, mounts, from.ip(), called.procedure, reader.rest()));
    let mut reply = Vec::with_capacity(64);
    reply.extend(RpcPrefix { kind: MsgType::Reply, ..prefix }.bytes());
    match executed {
        Ok(results) => {
            reply.extend(ReplyHeader::SUCCESS);
            reply.extend(results);
        }
        Err(denial) => reply.extend(denial.reply().bytes()),
    }
    Some(reply)
}

fn execute(
    export: &Export,
    mounts: &mut Mounts,
    from: IpAddr,
    procedure: u32,
    mut arguments: &[u8],
) -> Result<Vec<u8>, CallDenial> {
    let arguments = &mut arguments;
    match procedure {
        MNT => {
            let path = path(arguments)?;
            let results = match find(export, &path) {
                Ok(node) => {
                    mounts.note(from, &path);
                    let fhandle = fhandle3(export.handle(&node).data);
                    mountres3::Ok(mountres3_ok { fhandle, auth_flavors: FLAVORS.to_vec() })
                }
                Err(status) => mountres3::Err(status),
            };
            packed(&results)
        }
        DUMP => packed(&mounts.list()),
        UMNT => {
            let path = path(arguments)?;
            mounts.forget(from, &path);
            Ok(Vec::new())
        }
        UMNTALL => {
            mounts.0.retain(|(by, _)| *by != from);
            Ok(Vec::new())
        }
        EXPORT => {
            let path = export.path().as_os_str().as_bytes();
            let ex_dir = dirpath(Opaque::borrowed(path));
            // An empty list of groups: every host may mount.
            let list: exports<'_, '_> = List(vec![export_node { ex_dir, ex_groups: List(vec![]) }]);
            packed(&list)
        }
        _ => Ok(Vec::new()),
    }
}

/// The directory that a client requests: the exported one, or one below it.
fn find(export: &Export, path: &[u8]) -> Result<Arc<OpenFile>, mountstat3> {
    let path = Path::new(OsStr::from_bytes(path));
    let below = path.strip_prefix(export.path()).map_err(|_| mountstat3::MNT3ERR_ACCES)?;
    let mut at = export.nodes().find(export.nodes().root().id()).map_err(listed)?;
    for component in below.components() {
        let Component::Normal(next) = component else { return Err(mountstat3::MNT3ERR_ACCES) };
        at = export.nodes().look_up(&at, next.as_bytes()).map_err(listed)?;
    }
    if at.kind() == FileType::Directory { Ok(at) } else { Err(mountstat3::MNT3ERR_NOTDIR) }
}

/// The status of MNT for a failure: one of those that RFC 1813 5.2.1 lists.
fn listed(status: Status) -> mountstat3 {
    match status {
        Status::NFS3ERR_NOENT | Status::NFS3ERR_STALE => mountstat3::MNT3ERR_NOENT,
        Status::NFS3ERR_NOTDIR => mountstat3::MNT3ERR_NOTDIR,
        Status::NFS3ERR_NAMETOOLONG => mountstat3::MNT3ERR_NAMETOOLONG,
        Status::NFS3ERR_ACCES | Status::NFS3ERR_PERM | Status::NFS3ERR_XDEV => {
            mountstat3::MNT3ERR_ACCES
        }
        _ => mountstat3::MNT3ERR_IO,
    }
}

fn path(arguments: &mut &[u8]) -> Result<Vec<u8>, CallDenial> {
    // The decoder does not limit the length.
    let len = arguments.first_chunk().map(|len| u32::from_be_bytes(*len));
    if len.is_none_or(|len| len > PATH_MAX) {
        return Err(CallDenial::Garbage);
    }
    let (path, _) = dirpath::unpack(arguments).map_err(|_| CallDenial::Garbage)?;
    Ok(path.0.into_owned())
}

fn packed(results: &impl Pack) -> Result<Vec<u8>, CallDenial> {
    let mut bytes = Vec::new();
    results.pack(&mut bytes).map_err(|_| CallDenial::Busy)?;
    Ok(bytes)
}

impl Mounts {
    /// Adds a mount; if the host has its maximum, the oldest is removed.
    pub fn note(&mut self, from: IpAddr, path: &[u8]) {
        self.forget(from, path);
        let share = |host: IpAddr| Origin::Host(host.to_canonical()).network();
        let is_its = |(by, _): &(IpAddr, _)| share(*by) == share(from);
        if let Some(oldest) = oldest_of_full(self.0.iter().map(is_its), MOUNTS_OF_HOST_MAX) {
            self.0.remove(oldest);
        }
        if self.0.len() == MOUNTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((from, path.to_vec()));
    }

    fn forget(&mut self, from: IpAddr, path: &[u8]) {
        self.0.retain(|(by, what)| (*by, &what[..]) != (from, path));
    }

    fn list(&self) -> mountlist<'static, 'static> {
        let bodies = self.0.iter().map(|(from, path)| mountbody {
            ml_hostname: name(Opaque::owned(from.to_string().into_bytes())),
            ml_directory: dirpath(Opaque::owned(path.clone())),
        });
        List(bodies.collect())
    }
}

/// The index of the oldest entry of a host that has its maximum of `max`. `are_its` states for each
/// entry, the oldest first, whether it is of that host.
pub fn oldest_of_full(are_its: impl Iterator<Item = bool>, max: usize) -> Option<usize> {
    let mut its = are_its.enumerate().filter(|(_, is_its)| *is_its).map(|(at, _)| at);
    let oldest = its.next()?;
    (1 + its.count() == max).then_some(oldest)
}

/// MOUNT version 3.
const PROGRAM: RpcProgram = RpcProgram { number: 100_005, version: 3, procedures: EXPORT + 1 };
const MNT: u32 = 1;
const DUMP: u32 = 2;
const UMNT: u32 = 3;
const UMNTALL: u32 = 4;
const EXPORT: u32 = 5;
/// AUTH_SYS and AUTH_NONE.
const FLAVORS: [u32; 2] = [auth_flavor::SYS, auth_flavor::NONE];
/// MNTPATHLEN
const PATH_MAX: u32 = 1024;
/// The maximum number of mounts in the list.
const MOUNTS_MAX: usize = 256;
/// The maximum number of mounts of one host.
const MOUNTS_OF_HOST_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use mountstat3::*;
    use rustix::io::Errno;

    use super::*;
    use crate::status::status;

    #[test]
    fn a_network_has_its_share_of_the_list() {
        let mut mounts = Mounts::default();
        let from = |text: &str| text.parse::<IpAddr>().expect("an address");
        mounts.note(from("10.0.0.1"), b"/a");
        for host in 0..300 {
            mounts.note(from(&format!("fd00::{host:x}")), b"/a");
        }
        assert_eq!(mounts.0.len(), 1 + MOUNTS_OF_HOST_MAX);
        assert_eq!(mounts.0[0].0, from("10.0.0.1"));
    }

    #[test]
    fn every_error_of_mnt_has_a_status_of_its_list() {
        let list = [MNT3ERR_NOENT, MNT3ERR_IO, MNT3ERR_ACCES, MNT3ERR_NOTDIR, MNT3ERR_NAMETOOLONG];
        let list = list.map(|status| status as u32);
        let answer = |error| listed(status(error)) as u32;
        for error in 1..4096 {
            let answer = answer(Errno::from_raw_os_error(error));
            assert!(list.contains(&answer), "error {error} became {answer}");
        }
        // In the order of the list; XDEV is of a mount point.
        let errors = [Errno::STALE, Errno::IO, Errno::XDEV, Errno::NOTDIR, Errno::NAMETOOLONG];
        assert_eq!(errors.map(answer), list);
    }
}
