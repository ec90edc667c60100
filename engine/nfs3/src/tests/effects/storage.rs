//! What is on stable storage when a call is answered: the files that were synced behind its last
//! change.

use rpcrdma_testing::denied::{Made, Watched};

use super::*;

const SYNC: Mode = Mode { is_async: false, is_known: true };

/// What changes something, apart from opening a file that does not exist.
const CHANGES: [c_long; 12] = [
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_ftruncate,
    libc::SYS_linkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_pwritev,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
];

impl Files {
    /// The syncs of a call behind its last change: the system call, and the file.
    fn syncs(&self, call: &Call) -> Vec<(c_long, String)> {
        self.syncs_of(|| self.execute(call, &Identity::Server))
    }

    /// As [`Files::syncs`], of a call that is not in the list.
    fn syncs_of_task(&self, task: CallTask) -> Vec<(c_long, String)> {
        self.syncs_of(|| status_of(&procedures::execute(&self.export, task)))
    }

    fn syncs_of(&self, act: impl FnOnce() -> Status + Send) -> Vec<(c_long, String)> {
        let calls = [&CHANGES[..], &SYNCS].concat();
        let (status, made) = Watched { calls: &calls }.run(act);
        assert_eq!(status, Status::NFS3_OK);
        let changed = made.iter().rposition(|made| CHANGES.contains(&made.call));
        let behind = changed.map_or(0, |last| last + 1);
        let base = self.folder.join("");
        let name = |made: &Made| {
            let path = made.file.as_ref().expect("a descriptor of a file");
            path.strip_prefix(&base).expect("it is exported").display().to_string()
        };
        made[behind..].iter().map(|made| (made.call, name(made))).collect()
    }
}

fn file(name: &str) -> (c_long, String) {
    (libc::SYS_fsync, name.to_owned())
}

fn file_system() -> (c_long, String) {
    (libc::SYS_syncfs, "export".to_owned())
}

#[test]
fn a_call_is_answered_when_what_it_changed_is_on_stable_storage() {
    let made = || vec![file("export/new"), file("export")];
    let special = || vec![file_system(), file("export")];
    for call in &CALLS {
        let expected = match call {
            Call::Create | Call::CreateGuarded | Call::CreateExclusive => made(),
            Call::MakeDirectory => made(),
            Call::CreateExisting => vec![file("export/file"), file("export")],
            Call::MakeLink | Call::MakeFifo => special(),
            Call::Remove | Call::RemoveDirectory => vec![file("export")],
            Call::Rename | Call::RenameOver => vec![file("export"), file("export/dir")],
            Call::Link => vec![file("export/dir")],
            Call::SetAttributes | Call::Write(stable_how::FILE_SYNC) => vec![file("export/file")],
            Call::Write(stable_how::DATA_SYNC) => {
                vec![(libc::SYS_fdatasync, "export/file".to_owned())]
            }
            Call::Ask(nfs3::COMMIT) => vec![file("export/file")],
            Call::Write(stable_how::UNSTABLE) | Call::Ask(_) => Vec::new(),
        };
        assert_eq!(Files::new(SYNC).syncs(call), expected, "{call:?}");
        // Data wait for stable storage in any case.
        let waits = matches!(call, Call::Write(_) | Call::Ask(_));
        let expected = if waits { expected } else { Vec::new() };
        assert_eq!(Files::new(KNOWN).syncs(call), expected, "{call:?}, asynchronous");
    }
}

/// Its directory has all of it.
#[test]
fn a_file_that_is_made_with_no_attribute_but_its_mode_is_not_synced() {
    let mode = || sattr3 { mode: Nfs3Option::Some(0o600), ..sattr3::default() };
    let empty = || sattr3 { size: Nfs3Option::Some(0), ..mode() };
    for number in 0..6 {
        let files = Files::new(SYNC);
        let root = &files.root;
        let where_ = at(root, b"new");
        let create = |how| CREATE3args { where_: at(root, b"new"), how };
        let task = match number {
            0 => task(nfs3::CREATE, &create(createhow3::UNCHECKED(mode()))),
            1 => task(nfs3::CREATE, &create(createhow3::UNCHECKED(empty()))),
            2 => task(nfs3::CREATE, &create(createhow3::GUARDED(empty()))),
            3 => task(nfs3::MKDIR, &MKDIR3args { where_, attributes: mode() }),
            4 => {
                let symlink_data = nfspath3(Opaque::borrowed(b"target"));
                let symlink = symlinkdata3 { symlink_attributes: mode(), symlink_data };
                task(nfs3::SYMLINK, &SYMLINK3args { where_, symlink })
            }
            _ => task(nfs3::MKNOD, &MKNOD3args { where_, what: mknoddata3::NF3SOCK(mode()) }),
        };
        assert_eq!(files.syncs_of_task(task), [file("export")], "{number}");
    }
}

#[test]
fn a_rename_within_a_directory_syncs_it_once() {
    let files = Files::new(SYNC);
    let (from, to) = (at(&files.root, b"file"), at(&files.root, b"renamed"));
    let rename = task(nfs3::RENAME, &RENAME3args { from, to });
    assert_eq!(files.syncs_of_task(rename), [file("export")]);
}

#[test]
fn an_exclusive_create_that_is_repeated_syncs_the_file_again() {
    let files = Files::new(SYNC);
    files.syncs(&Call::CreateExclusive);
    assert_eq!(files.syncs(&Call::CreateExclusive), [file("export/new"), file("export")]);
}

#[test]
fn attributes_of_what_cannot_be_opened_reach_stable_storage_with_the_file_system() {
    let files = Files::new(SYNC);
    files.syncs(&Call::MakeFifo);
    let id = files.export.nodes().root().attributes_of(b"new").expect("it was made").id();
    for object in [files.link.clone(), files.export.key().handle(id)] {
        let new_attributes =
            sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(TIME), ..sattr3::default() };
        let guard = Nfs3Option::None;
        let set = task(nfs3::SETATTR, &SETATTR3args { object, new_attributes, guard });
        assert_eq!(files.syncs_of_task(set), [file_system()]);
    }
}
