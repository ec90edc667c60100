//! MOUNT version 3 over TCP: gets the handle of the exported directory.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nfs3_types::mount::{self, MOUNT_PROGRAM, dirpath, mountres3};
use nfs3_types::nfs3::nfs_fh3;
use nfs3_types::rpc::{
    RPC_VERSION_2, accept_stat_data, auth_unix, call_body, fragment_header, msg_body, opaque_auth,
    reply_body, rpc_msg,
};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack, Void};

use super::rpc::packed;

/// Asks the MOUNT service at `at` for the handle of a directory that it exports.
///
/// # Errors
/// A network error, or the status of the service.
pub fn mount(at: SocketAddr, path: &[u8]) -> io::Result<nfs_fh3> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let nothing = call(&mut stream, 1, MOUNT_PROGRAM::MOUNTPROC3_NULL, &Void)?;
    if !nothing.is_empty() {
        return Err(foreign("NULL has results"));
    }
    let path = dirpath(Opaque::borrowed(path));
    let results = call(&mut stream, 2, MOUNT_PROGRAM::MOUNTPROC3_MNT, &path)?;
    match mountres3::unpack(&mut results.as_slice()).map_err(foreign)?.0 {
        mountres3::Ok(found) => Ok(nfs_fh3 { data: Opaque::owned(found.fhandle.0.into_owned()) }),
        mountres3::Err(status) => Err(foreign(status)),
    }
}

/// One call: returns its results.
fn call(
    stream: &mut TcpStream,
    xid: u32,
    procedure: MOUNT_PROGRAM,
    arguments: &impl Pack,
) -> io::Result<Vec<u8>> {
    let body = call_body {
        rpcvers: RPC_VERSION_2,
        prog: mount::PROGRAM,
        vers: mount::VERSION,
        proc: procedure as u32,
        cred: opaque_auth::auth_unix(&auth_unix::default()),
        verf: opaque_auth::default(),
    };
    let mut message = packed(&rpc_msg { xid, body: msg_body::CALL(body) });
    message.extend(packed(arguments));
    let mark = fragment_header::new(message.len() as u32, true);
    stream.write_all(&[&mark.into_xdr_buf(), message.as_slice()].concat())?;
    let record = record(stream)?;
    let mut rest = record.as_slice();
    let (reply, _) = rpc_msg::unpack(&mut rest).map_err(foreign)?;
    match reply.body {
        msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted)) if reply.xid == xid => {
            match accepted.reply_data {
                accept_stat_data::SUCCESS => Ok(rest.to_vec()),
                other => Err(foreign(format!("{other:?}"))),
            }
        }
        other => Err(foreign(format!("{other:?}"))),
    }
}

/// A record, of however many fragments.
fn record(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut record = Vec::new();
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mark = fragment_header::from(mark);
        let len = mark.fragment_length() as usize;
        if len > RECORD_MAX {
            return Err(foreign(format!("a fragment of {len} bytes")));
        }
        let start = record.len();
        record.resize(start + len, 0);
        stream.read_exact(&mut record[start..])?;
        if mark.eof() {
            return Ok(record);
        }
    }
}

fn foreign(what: impl ToString) -> io::Error {
    io::Error::other(what.to_string())
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than any answer of this program that a test asks for.
const RECORD_MAX: usize = 1 << 20;
