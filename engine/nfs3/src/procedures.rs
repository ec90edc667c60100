//! The procedures, each in one row, and how they are executed.

use nfs3_types::nfs3::Nfs3Result;
use nfs3_types::nfs3::nfsstat3::*;
use nfs3_types::xdr_codec::{Pack, Unpack};
use rpcrdma::Loan;
use rpcrdma::ulb::nfs3;
use rustix::fs::AtFlags;

use crate::arguments::ArgumentField::{self, *};
use crate::arguments::Arguments;
use crate::call::{CallOutcome, CallTask, WriteData};
use crate::data::{self, WriteHead};
use crate::export::Export;
use crate::rpc::CallDenial;
use crate::status::{self, Results, Status, listed};
use crate::{directory, files, names};

/// A procedure of NFS. What DDP-eligible items it has is in `rpcrdma::ulb::nfs3`.
pub struct Procedure {
    number: u32,
    /// The fields of its arguments.
    pub arguments: &'static [ArgumentField],
    /// The statuses that RFC 1813 3.3 lists for it, without those that all procedures have.
    failures: &'static [Status],
    /// The words of a failure behind its status if it has no attributes.
    failed_words: usize,
    pub kind: Kind,
    execute: fn(&Export, CallTask) -> Result<CallOutcome, CallDenial>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It can be executed any number of times.
    Asks,
    /// A second execution does harm: its answer is kept. A late WRITE would replace newer data.
    Changes,
    /// As `Asks`, and its last result is read into registered memory.
    Reads,
}

/// Declares the procedures, by number.
macro_rules! procedures {
    ($(
        $name:ident $arguments:expr, $kind:ident, $failures:expr, $words:literal, $execute:expr;
    )*) => {
        /// By number.
        pub static PROCEDURES: [Procedure; 22] = [$(Procedure {
            number: nfs3::$name,
            arguments: &$arguments,
            failures: $failures,
            failed_words: $words,
            kind: Kind::$kind,
            execute: $execute,
        },)*];
    };
}

procedures! {
    // The fields of the arguments, the kind, the listed failures, the words of a failure without
    // attributes, and what executes it.
    NULL [], Asks, &[], 0, |_, _| Ok(CallOutcome::Results { head: Vec::new(), data: None });
    GETATTR [Handle], Asks, &[NFS3ERR_IO], 0,
        |export, task| packed(task.procedure, files::getattr(export, &decode(&task)?));
    SETATTR [Handle, Attributes, Guard], Changes,
        &[NFS3ERR_PERM, NFS3ERR_IO, NFS3ERR_ACCES, NFS3ERR_INVAL, NFS3ERR_NOSPC, NFS3ERR_ROFS,
          NFS3ERR_DQUOT, NFS3ERR_NOT_SYNC], 2,
        |export, task| packed(task.procedure, files::setattr(export, &task.who, &decode(&task)?));
    LOOKUP [Handle, Name], Asks,
        &[NFS3ERR_IO, NFS3ERR_NOENT, NFS3ERR_ACCES, NFS3ERR_NOTDIR, NFS3ERR_NAMETOOLONG], 1,
        |export, task| packed(task.procedure, names::lookup(export, &task.who, &decode(&task)?));
    ACCESS [Handle, Fixed(4)], Asks, &[NFS3ERR_IO], 1,
        |export, task| packed(task.procedure, files::access(export, &task.who, &decode(&task)?));
    READLINK [Handle], Reads, &[NFS3ERR_IO, NFS3ERR_INVAL, NFS3ERR_ACCES, NFS3ERR_NOTSUPP], 1,
        readlink;
    READ [Handle, Fixed(12)], Reads, &[NFS3ERR_IO, NFS3ERR_NXIO, NFS3ERR_ACCES, NFS3ERR_INVAL], 1,
        read;
    WRITE [Handle, Fixed(16), Data], Changes,
        &[NFS3ERR_IO, NFS3ERR_ACCES, NFS3ERR_FBIG, NFS3ERR_DQUOT, NFS3ERR_NOSPC, NFS3ERR_ROFS,
          NFS3ERR_INVAL], 2,
        write;
    CREATE [Handle, Name, How], Changes, status::MADE, 2,
        |export, task| packed(task.procedure, names::create(export, &task.who, &decode(&task)?));
    MKDIR [Handle, Name, Attributes], Changes, status::MADE, 2,
        |export, task| packed(task.procedure, names::mkdir(export, &task.who, &decode(&task)?));
    SYMLINK [Handle, Name, Attributes, Path], Changes, status::MADE, 2,
        |export, task| packed(task.procedure, names::symlink(export, &task.who, &decode(&task)?));
    MKNOD [Handle, Name, OpenFile], Changes, &status::MKNOD, 2,
        |export, task| packed(task.procedure, names::mknod(export, &task.who, &decode(&task)?));
    REMOVE [Handle, Name], Changes,
        &[NFS3ERR_NOENT, NFS3ERR_IO, NFS3ERR_ACCES, NFS3ERR_NOTDIR, NFS3ERR_NAMETOOLONG,
          NFS3ERR_ROFS], 2,
        |export, task| remove(export, task, AtFlags::empty());
    RMDIR [Handle, Name], Changes,
        &[NFS3ERR_NOENT, NFS3ERR_IO, NFS3ERR_ACCES, NFS3ERR_INVAL, NFS3ERR_EXIST, NFS3ERR_NOTDIR,
          NFS3ERR_NAMETOOLONG, NFS3ERR_ROFS, NFS3ERR_NOTEMPTY, NFS3ERR_NOTSUPP], 2,
        |export, task| remove(export, task, AtFlags::REMOVEDIR);
    RENAME [Handle, Name, Handle, Name], Changes,
        &[NFS3ERR_NOENT, NFS3ERR_IO, NFS3ERR_ACCES, NFS3ERR_EXIST, NFS3ERR_XDEV, NFS3ERR_NOTDIR,
          NFS3ERR_ISDIR, NFS3ERR_INVAL, NFS3ERR_NOSPC, NFS3ERR_ROFS, NFS3ERR_MLINK,
          NFS3ERR_NAMETOOLONG, NFS3ERR_NOTEMPTY, NFS3ERR_DQUOT, NFS3ERR_NOTSUPP], 4,
        |export, task| packed(task.procedure, names::rename(export, &task.who, &decode(&task)?));
    LINK [Handle, Handle, Name], Changes,
        &[NFS3ERR_IO, NFS3ERR_ACCES, NFS3ERR_EXIST, NFS3ERR_XDEV, NFS3ERR_NOTDIR, NFS3ERR_INVAL,
          NFS3ERR_NOSPC, NFS3ERR_ROFS, NFS3ERR_MLINK, NFS3ERR_NAMETOOLONG, NFS3ERR_DQUOT,
          NFS3ERR_NOTSUPP], 3,
        |export, task| packed(task.procedure, names::link(export, &task.who, &decode(&task)?));
    READDIR [Handle, Fixed(20)], Asks,
        &[NFS3ERR_IO, NFS3ERR_ACCES, NFS3ERR_NOTDIR, NFS3ERR_BAD_COOKIE, NFS3ERR_TOOSMALL], 1,
        |export, task|
            packed(task.procedure, directory::readdir(export, &task.who, &decode(&task)?));
    READDIRPLUS [Handle, Fixed(24)], Asks,
        &[NFS3ERR_IO, NFS3ERR_ACCES, NFS3ERR_NOTDIR, NFS3ERR_BAD_COOKIE, NFS3ERR_TOOSMALL,
          NFS3ERR_NOTSUPP], 1,
        |export, task|
            packed(task.procedure, directory::readdirplus(export, &task.who, &decode(&task)?));
    FSSTAT [Handle], Asks, &[NFS3ERR_IO], 1,
        |export, task| packed(task.procedure, files::fsstat(export, &decode(&task)?));
    FSINFO [Handle], Asks, &[], 1,
        |export, task| packed(task.procedure, files::fsinfo(export, &decode(&task)?));
    PATHCONF [Handle], Asks, &[], 1,
        |export, task| packed(task.procedure, files::pathconf(export, &decode(&task)?));
    COMMIT [Handle, Fixed(12)], Asks, &[NFS3ERR_IO], 2,
        |export, task| packed(task.procedure, data::commit(export, &decode(&task)?));
}

const _: () = {
    let mut at = 0;
    while at < PROCEDURES.len() {
        assert!(PROCEDURES[at].number as usize == at, "a row is in another place");
        at += 1;
    }
};

/// The procedure of this number.
///
/// # Errors
/// If there is none.
pub fn of(number: u32) -> Result<&'static Procedure, CallDenial> {
    PROCEDURES.get(number as usize).ok_or(CallDenial::PROCEDURE)
}

/// Executes a call.
pub fn execute(export: &Export, task: CallTask) -> CallOutcome {
    let done = of(task.procedure).and_then(|procedure| (procedure.execute)(export, task));
    done.unwrap_or_else(CallOutcome::Denied)
}

fn decode<T: Unpack>(task: &CallTask) -> Result<T, CallDenial> {
    Arguments::decode(&task.head)
}

fn remove(export: &Export, task: CallTask, flags: AtFlags) -> Result<CallOutcome, CallDenial> {
    packed(task.procedure, names::remove(export, &task.who, &decode(&task)?, flags))
}

fn write(export: &Export, task: CallTask) -> Result<CallOutcome, CallDenial> {
    let head: WriteHead = decode(&task)?;
    let len: usize = task.data.iter().map(WriteData::len).sum();
    if len < head.count as usize {
        return Err(CallDenial::Garbage);
    }
    packed(task.procedure, data::write(export, &task.who, &head, &task.data))
}

fn read(export: &Export, mut task: CallTask) -> Result<CallOutcome, CallDenial> {
    let arguments = decode(&task)?;
    let Some(mut into) = task.into.take() else { return Ok(later(task.procedure)) };
    let done = data::read(export, &task.who, &arguments, &mut into);
    with_data(task.procedure, done, Some(into))
}

fn readlink(export: &Export, mut task: CallTask) -> Result<CallOutcome, CallDenial> {
    let arguments = decode(&task)?;
    let Some(mut into) = task.into.take() else { return Ok(later(task.procedure)) };
    with_data(task.procedure, files::readlink(export, &arguments, &mut into), Some(into))
}

/// NFS3ERR_JUKEBOX without attributes: no memory is free now, and the client repeats the call.
pub fn later(procedure: u32) -> CallOutcome {
    let words = of(procedure).map_or(0, |procedure| procedure.failed_words);
    let mut head = (NFS3ERR_JUKEBOX as u32).to_be_bytes().to_vec();
    head.resize(4 * (1 + words), 0);
    CallOutcome::Results { head, data: None }
}

/// The statuses that are listed for a procedure.
pub fn failures(procedure: u32) -> &'static [Status] {
    of(procedure).map_or(&[], |procedure| procedure.failures)
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
        Err((status, failed)) => {
            (Nfs3Result::Err((listed(failures(procedure), status), failed)), None)
        }
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

    #[test]
    fn only_answers_of_calls_that_change_something_are_kept() {
        let remembered: Vec<u32> =
            PROCEDURES.iter().filter(|it| it.kind == Kind::Changes).map(|it| it.number).collect();
        assert_eq!(remembered, [2, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    }
}
