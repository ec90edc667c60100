//! The rights of the last callers to an open file, as long as its attributes do not change.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;

use crate::attributes::{Attributes, RightsStamp};
use crate::credentials::Identity;
use crate::locks::lock;
use crate::status::Status;

/// The kernel's answers for a file and a caller.
#[derive(Debug, Clone, Copy)]
pub struct Rights {
    /// Whether the caller may read it.
    pub read: Result<(), Status>,
    /// Whether the caller may write it, or change the names in it if it is a directory.
    pub write: Result<(), Status>,
    /// Whether the caller may execute it, or search it if it is a directory.
    pub search: Result<(), Status>,
}

/// The rights of the last callers to an open file.
#[derive(Debug, Default)]
pub struct KeptRights(Mutex<ArrayVec<Kept, KEPT_MAX>>);

#[derive(Debug)]
struct Kept {
    who: Identity,
    stamp: RightsStamp,
    since: Instant,
    rights: Rights,
}

impl KeptRights {
    /// The rights of a caller, if they are known and the file has not changed. Does not wait.
    pub fn find(&self, who: &Identity, now: &Attributes) -> Option<Rights> {
        let kept = self.0.try_lock().ok()?;
        let found = kept.iter().find(|kept| kept.who == *who)?;
        let is_valid = found.stamp == now.rights_stamp() && found.since.elapsed() < KEPT_FOR;
        is_valid.then_some(found.rights)
    }

    /// Keeps the rights of a caller.
    pub fn keep(&self, who: &Identity, now: &Attributes, rights: Rights) {
        let new =
            Kept { who: who.clone(), stamp: now.rights_stamp(), since: Instant::now(), rights };
        let mut kept = lock(&self.0);
        kept.retain(|kept| kept.who != *who);
        if kept.is_full() {
            kept.remove(0);
        }
        kept.push(new);
    }
}

/// The number of callers whose rights to one file are kept.
const KEPT_MAX: usize = 4;
/// A change of an ACL that is too quick for the clock of the file system, and a change of the
/// mount, are seen after this time.
const KEPT_FOR: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_kept_for_some_callers_and_some_seconds() {
        let now = Attributes::of(std::io::stderr()).expect("it is open");
        let caller = |uid| {
            let groups = ArrayVec::new();
            Identity::Other(crate::credentials::Credentials { uid, gid: 1, groups })
        };
        let rights = Rights { read: Ok(()), write: Ok(()), search: Ok(()) };
        let kept = KeptRights::default();
        (0..=KEPT_MAX as u32).for_each(|uid| kept.keep(&caller(uid), &now, rights));
        assert!(kept.find(&caller(0), &now).is_none(), "the oldest made room");
        assert!(kept.find(&caller(1), &now).is_some());
        for kept in lock(&kept.0).iter_mut() {
            kept.since -= KEPT_FOR;
        }
        assert!(kept.find(&caller(1), &now).is_none());
    }

    #[test]
    fn rights_are_asked_for_again_when_an_acl_may_have_changed() {
        let folder = rpcrdma_tests::folder::Folder::new();
        let file = std::fs::File::create(folder.join("file")).expect("ours");
        let attributes = || Attributes::of(&file).expect("it is open");
        let (before, who) = (attributes(), Identity::Server);
        let kept = KeptRights::default();
        kept.keep(&who, &before, Rights { read: Ok(()), write: Ok(()), search: Ok(()) });
        assert!(kept.find(&who, &attributes()).is_some());
        // As a change of an ACL that leaves the mode as it is. The clock of the file system is slow.
        while attributes().changed() == before.changed() {
            let mode = file.metadata().expect("it is open").permissions();
            file.set_permissions(mode).expect("ours");
        }
        assert!(kept.find(&who, &attributes()).is_none());
    }
}
