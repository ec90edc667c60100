//! Executes a call: from the procedure number to the results.

use nfs3_types::nfs3::Nfs3Result;
use nfs3_types::xdr_codec::Pack;
use rpcrdma_engine::Loan;
use rpcrdma_engine::ulb::nfs3;
use rustix::fs::AtFlags;

use crate::arguments::Arguments;
use crate::call::{CallOutcome, CallTask, WriteData};
use crate::credentials::Identity;
use crate::data::{self, WriteHead};
use crate::export::Export;
use crate::rpc::CallDenial;
use crate::status::{Results, Status, listed};
use crate::{directory, files, names};

/// Executes a call.
pub fn execute(export: &Export, task: CallTask) -> CallOutcome {
    match results(export, task) {
        Ok(outcome) => outcome,
        Err(denial) => CallOutcome::Denied(denial),
    }
}

fn results(export: &Export, task: CallTask) -> Result<CallOutcome, CallDenial> {
    let CallTask { procedure, who, head, data, into } = task;
    let (who, head) = (&who, &head[..]);
    match procedure {
        nfs3::GETATTR => packed(procedure, files::getattr(export, &Arguments::decode(head)?)),
        nfs3::SETATTR => packed(procedure, files::setattr(export, who, &Arguments::decode(head)?)),
        nfs3::LOOKUP => packed(procedure, names::lookup(export, who, &Arguments::decode(head)?)),
        nfs3::ACCESS => packed(procedure, files::access(export, who, &Arguments::decode(head)?)),
        nfs3::READLINK => readlink(export, head, into),
        nfs3::READ => read(export, who, head, into),
        nfs3::WRITE => {
            let head: WriteHead = Arguments::decode(head)?;
            let len: usize = data.iter().map(WriteData::len).sum();
            if len < head.count as usize {
                return Err(CallDenial::Garbage);
            }
            packed(procedure, data::write(export, who, &head, &data))
        }
        nfs3::CREATE => packed(procedure, names::create(export, who, &Arguments::decode(head)?)),
        nfs3::MKDIR => packed(procedure, names::mkdir(export, who, &Arguments::decode(head)?)),
        nfs3::SYMLINK => packed(procedure, names::symlink(export, who, &Arguments::decode(head)?)),
        nfs3::MKNOD => packed(procedure, names::mknod(export, who, &Arguments::decode(head)?)),
        nfs3::REMOVE | nfs3::RMDIR => {
            let is_directory = procedure == nfs3::RMDIR;
            let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            packed(procedure, names::remove(export, who, &Arguments::decode(head)?, flags))
        }
        nfs3::RENAME => packed(procedure, names::rename(export, who, &Arguments::decode(head)?)),
        nfs3::LINK => packed(procedure, names::link(export, who, &Arguments::decode(head)?)),
        nfs3::READDIR => {
            packed(procedure, directory::readdir(export, who, &Arguments::decode(head)?))
        }
        nfs3::READDIRPLUS => {
            packed(procedure, directory::readdirplus(export, who, &Arguments::decode(head)?))
        }
        nfs3::FSSTAT => packed(procedure, files::fsstat(export, &Arguments::decode(head)?)),
        nfs3::FSINFO => packed(procedure, files::fsinfo(export, &Arguments::decode(head)?)),
        nfs3::PATHCONF => packed(procedure, files::pathconf(export, &Arguments::decode(head)?)),
        nfs3::COMMIT => packed(procedure, data::commit(export, &Arguments::decode(head)?)),
        _ => Err(CallDenial::PROCEDURE),
    }
}

fn read(
    export: &Export,
    who: &Identity,
    head: &[u8],
    into: Option<Loan>,
) -> Result<CallOutcome, CallDenial> {
    let arguments = Arguments::decode(head)?;
    let Some(mut into) = into else { return Ok(later(nfs3::READ)) };
    with_data(nfs3::READ, data::read(export, who, &arguments, &mut into), Some(into))
}

fn readlink(export: &Export, head: &[u8], into: Option<Loan>) -> Result<CallOutcome, CallDenial> {
    let arguments = Arguments::decode(head)?;
    let Some(mut into) = into else { return Ok(later(nfs3::READLINK)) };
    with_data(nfs3::READLINK, files::readlink(export, &arguments, &mut into), Some(into))
}

/// NFS3ERR_JUKEBOX without attributes: no memory is free now, and the client repeats the call.
pub fn later(procedure: u32) -> CallOutcome {
    let unsaid = match procedure {
        nfs3::GETATTR => 0,
        nfs3::SETATTR | nfs3::WRITE..=nfs3::RMDIR | nfs3::COMMIT => 2,
        nfs3::RENAME => 4,
        nfs3::LINK => 3,
        _ => 1,
    };
    let mut head = (Status::NFS3ERR_JUKEBOX as u32).to_be_bytes().to_vec();
    head.resize(4 * (1 + unsaid), 0);
    CallOutcome::Results { head, data: None }
}

/// Encodes results without data.
///
/// # Errors
/// If they cannot be encoded.
pub fn packed<T: Pack, F: Pack>(
    procedure: u32,
    done: Results<T, F>,
) -> Result<CallOutcome, CallDenial> {
    with_data(procedure, done.map(|results| (results, 0)), None)
}

/// Encodes results, followed by `len` bytes of a buffer.
///
/// # Errors
/// If they cannot be encoded.
pub fn with_data<T: Pack, F: Pack>(
    procedure: u32,
    done: Results<(T, usize), F>,
    into: Option<Loan>,
) -> Result<CallOutcome, CallDenial> {
    let (results, len) = match done {
        Ok((results, len)) => (Nfs3Result::Ok(results), Some(len)),
        Err((status, failed)) => (Nfs3Result::Err((listed(procedure, status), failed)), None),
    };
    let mut head = Vec::with_capacity(results.packed_size());
    // Encoding fails only for lengths beyond 32 bits, and lists are limited.
    results.pack(&mut head).map_err(|_| CallDenial::Garbage)?;
    let data = len.zip(into).map(|(len, mut into)| {
        into.truncate(len);
        into
    });
    Ok(CallOutcome::Results { head, data })
}

#[cfg(test)]
mod tests {
    use nfs3_types::nfs3::{
        ACCESS3resfail, COMMIT3resfail, CREATE3resfail, FSINFO3resfail, FSSTAT3resfail,
        LINK3resfail, LOOKUP3resfail, MKDIR3resfail, MKNOD3resfail, PATHCONF3resfail, READ3resfail,
        READDIR3resfail, READDIRPLUS3resfail, READLINK3resfail, REMOVE3resfail, RENAME3resfail,
        RMDIR3resfail, SETATTR3resfail, SYMLINK3resfail, WRITE3resfail,
    };
    use nfs3_types::xdr_codec::Unpack;

    use super::*;

    fn is<T: Unpack>(results: &[u8]) -> bool {
        T::unpack(&mut &results[..]).is_ok_and(|(_, len)| len == results.len())
    }

    #[test]
    fn every_procedure_can_be_answered_with_jukebox() {
        let failures: [fn(&[u8]) -> bool; 21] = [
            <[u8]>::is_empty,
            is::<SETATTR3resfail>,
            is::<LOOKUP3resfail>,
            is::<ACCESS3resfail>,
            is::<READLINK3resfail>,
            is::<READ3resfail>,
            is::<WRITE3resfail>,
            is::<CREATE3resfail>,
            is::<MKDIR3resfail>,
            is::<SYMLINK3resfail>,
            is::<MKNOD3resfail>,
            is::<REMOVE3resfail>,
            is::<RMDIR3resfail>,
            is::<RENAME3resfail>,
            is::<LINK3resfail>,
            is::<READDIR3resfail>,
            is::<READDIRPLUS3resfail>,
            is::<FSSTAT3resfail>,
            is::<FSINFO3resfail>,
            is::<PATHCONF3resfail>,
            is::<COMMIT3resfail>,
        ];
        for (procedure, is_failure) in (nfs3::GETATTR..).zip(failures) {
            let outcome = later(procedure);
            assert!(!outcome.was_executed());
            let CallOutcome::Results { head, .. } = outcome else { panic!("{outcome:?}") };
            assert!(is_failure(&head[4..]), "procedure {procedure}: {head:?}");
        }
    }
}
