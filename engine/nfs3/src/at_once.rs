//! Answers on the thread of the shard, for calls that do not wait for a disk: two changes of
//! threads would cost more than most of these calls.
//!
//! ```text
//!   GETATTR           of a file that is held        statx
//!   ACCESS            of a file that is held        statx, and the rights that are kept with it
//!   LOOKUP by root    in a directory that is held   openat2, if the kernel has it in its cache
//!   READ              of a file that is open        preadv2, if the kernel has it in its cache
//! ```
//! The thread never assumes the identity of a caller: the kernel refuses commands to a device by a
//! thread whose credentials have changed since it was opened, also after they have changed back.
//! `None` is always correct: a call that may wait goes to the worker threads (`work`), which
//! execute it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nfs3_types::nfs3::{
    ACCESS3args, GETATTR3args, LOOKUP3args, LOOKUP3resfail, LOOKUP3resok, READ3args, nfs_fh3,
};
use nfs3_types::xdr_codec::Unpack;
use rpcrdma::ulb::nfs3;

use crate::arguments::Arguments;
use crate::attributes::some;
use crate::call::{CallOutcome, CallTask};
use crate::credentials::Identity;
use crate::export::Export;
use crate::node::OpenFile;
use crate::procedures::{packed, with_data};
use crate::ranges::FileRange;
use crate::rights::Rights;
use crate::status::Results;
use crate::{data, files, names};

/// Executes a call if it does not wait; returns `None` if it may wait.
pub fn execute(export: &Export, task: &mut CallTask) -> Option<CallOutcome> {
    if !export.nodes().medium().caches_attributes() {
        return None;
    }
    // A panic here is left to the worker threads to repeat and report: the shard has other calls.
    catch_unwind(AssertUnwindSafe(|| outcome(export, task))).ok()?
}

fn outcome(export: &Export, task: &mut CallTask) -> Option<CallOutcome> {
    let (who, head) = (&task.who, &task.head);
    match task.procedure {
        nfs3::GETATTR => {
            let arguments: GETATTR3args = decode(head)?;
            let attributes = at_hand(export, &arguments.object, OpenFile::linked_attributes)?;
            packed(task.procedure, files::attributes_of(&attributes)).ok()
        }
        nfs3::ACCESS => {
            let arguments: ACCESS3args = decode(head)?;
            let (now, rights) = at_hand(export, &arguments.object, |node| {
                let now = node.linked_attributes()?;
                let rights = Rights::at_once(node, who, &now)?;
                Some((now, rights))
            })?;
            packed(task.procedure, files::granted(&now, rights, arguments.access)).ok()
        }
        nfs3::LOOKUP => packed(task.procedure, lookup(export, who, &decode(head)?)?).ok(),
        nfs3::READ => read(export, task),
        _ => None,
    }
}

fn lookup(
    export: &Export,
    who: &Identity,
    arguments: &LOOKUP3args<'_>,
) -> Option<Results<LOOKUP3resok, LOOKUP3resfail>> {
    if *who != Identity::Server {
        return None;
    }
    let name = arguments.what.name.as_ref();
    let (found, dir_attributes) = at_hand(export, &arguments.what.dir, |directory| {
        names::ordinary(name).ok()?;
        let found = export.nodes().look_up_cached(directory, name)?;
        Some((found, directory.linked_attributes()?))
    })?;
    let dir_attributes = some(Some(dir_attributes.fattr()));
    Some(match found {
        Ok((node, attributes)) => {
            let object = export.handle(&node);
            export.nodes().hold_at_once(node);
            let obj_attributes = some(Some(attributes.fattr()));
            Ok(LOOKUP3resok { object, obj_attributes, dir_attributes })
        }
        Err(status) => Err((status, LOOKUP3resfail { dir_attributes })),
    })
}

fn read(export: &Export, task: &mut CallTask) -> Option<CallOutcome> {
    let into = task.into.as_mut()?;
    let arguments: READ3args = decode(&task.head)?;
    let len = (arguments.count as usize).min(into.len());
    if len > READ_MAX {
        return None;
    }
    let (who, medium) = (&task.who, export.nodes().medium());
    let range = FileRange::cut(arguments.offset, len);
    let done = at_hand(export, &arguments.file, |node| {
        let count = medium.read(node.open_data(false)?, into, range)?;
        let attributes = node.linked_attributes()?;
        let is_whole = count == len || range.at(count) >= attributes.size();
        let found = Rights::at_once(node, who, &attributes)?.may_read(who, &attributes);
        let found = found.map(|()| count);
        is_whole.then(|| data::results_of(found, Some(attributes), arguments.offset))
    })?;
    with_data(task.procedure, done, task.into.take()).ok()
}

fn at_hand<T>(
    export: &Export,
    handle: &nfs_fh3,
    look: impl FnOnce(&OpenFile) -> Option<T>,
) -> Option<T> {
    export.nodes().at_hand(export.key().open(handle)?, look)
}

fn decode<T: Unpack>(head: &[u8]) -> Option<T> {
    Arguments::decode(head).ok()
}

/// The longest READ that is copied on the shard, while other calls wait.
const READ_MAX: usize = 64 << 10;
