//! The search of the export for a file that is not at its recorded place.
//!
//! ```text
//!   directories that wait ──▶ opened at their newest place ──▶ names: recorded, directories wait
//!     ▲                          └─ gone, and not removed by a call: it may have been moved
//!     └── directories that a RENAME has moved meanwhile
//! ```
//! Calls and programs change the tree meanwhile. A search that may have missed what a call has moved
//! says so, and one that finds a directory gone: a file that it did not find may be there, and
//! `NFS3ERR_STALE` is final for a client. What a program moves to a directory that was listed, out
//! of one that was not, is missed.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;

use super::OpenFiles;
use crate::handles::FileId;
use crate::locks::lock;
use crate::searches::Search;
use crate::status::{Status, status};
use crate::tree::{FilePlace, Paths, SearchResult};

/// A search under way.
struct Searching {
    found: SearchResult,
    /// The directories to be listed.
    waiting: Vec<u64>,
    buffer: Vec<u8>,
}

impl OpenFiles {
    /// Searches every directory of the export, and records every name.
    ///
    /// # Errors
    /// `NFS3ERR_JUKEBOX` if a directory, or what a call has moved, may have been missed,
    /// `NFS3ERR_IO` if a directory could not be read: what was not found may be there. All others
    /// were searched.
    pub(super) fn search(&self, wanted: FileId) -> Result<(), Status> {
        let began = Instant::now();
        let mut searching = Searching {
            found: lock(&self.tree).begin_search(wanted.inode),
            waiting: vec![self.root.id().inode],
            buffer: Vec::with_capacity(LIST_LEN),
        };
        let mut outcome = Ok(());
        while let Some(directory) = self.next_directory(&mut searching) {
            outcome = outcome.and(self.list(directory, &mut searching));
        }
        let found = searching.found;
        let (has_room, has_missed) = (found.is_whole(), lock(&self.tree).end_search(found));
        if has_missed {
            outcome = outcome.and(Err(Status::NFS3ERR_JUKEBOX));
        }
        let is_whole = has_room && outcome.is_ok();
        lock(&self.searches).end(Search { began, ended: Instant::now(), is_whole });
        outcome
    }

    fn next_directory(&self, searching: &mut Searching) -> Option<u64> {
        let Searching { found, waiting, .. } = searching;
        waiting.pop().or_else(|| {
            let (moved, place) = lock(&self.tree).take_moved(found)?;
            found.directory(moved, place);
            Some(moved)
        })
    }

    /// Records the names of a directory. One that a call has removed has none.
    fn list(&self, directory: u64, searching: &mut Searching) -> Result<(), Status> {
        let Searching { found, waiting, buffer } = searching;
        let root = self.root.id().inode;
        let opened = self.at_paths(
            |tree| tree.paths_of_search(found, directory, root),
            |paths| {
                #[cfg(test)]
                tests::at(tests::Step::Opening(directory))?;
                self.open_listing(paths)
            },
        );
        let fd = match opened.map_err(unread)? {
            Some(Some(fd)) => fd,
            Some(None) => return Ok(()),
            None => return self.missed(directory),
        };
        #[cfg(test)]
        tests::at(tests::Step::Opened(directory)).map_err(|error| unread(status(error)))?;
        let mut entries = RawDir::new(&fd, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::NOENT | Errno::STALE) => return self.missed(directory),
                Err(error) => return Err(unread(status(error))),
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let place = FilePlace { parent: directory, name: name.into() };
            let is_directory = match entry.file_type() {
                // Some file systems do not return the type here.
                FileType::Unknown => is_directory(&fd, entry.file_name()),
                kind => kind == FileType::Directory,
            };
            if is_directory {
                found.directory(entry.ino(), place);
                waiting.push(entry.ino());
            } else {
                found.file(entry.ino(), place);
            }
        }
        found.listed(directory);
        Ok(())
    }

    /// Opens a directory to list it; `None` for one that is not exported: of another file system, or
    /// one that the server may not read.
    fn open_listing(&self, paths: &Paths) -> rustix::io::Result<Option<OwnedFd>> {
        let opened = self.reach(paths).and_then(|reached| {
            let from = reached.as_ref().map_or(self.root.fd(), |fd| fd.as_fd());
            openat(from, c".", LIST, Mode::empty())
        });
        match opened {
            Err(Errno::XDEV | Errno::ACCESS) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// The outcome for a directory that is gone. A program may have moved it, with all that is below
    /// it.
    fn missed(&self, directory: u64) -> Result<(), Status> {
        let was_removed = lock(&self.tree).was_removed(directory);
        if was_removed { Ok(()) } else { Err(Status::NFS3ERR_JUKEBOX) }
    }
}

/// The status of a call whose file may be in a directory that could not be read. That of the
/// directory is none of the file.
fn unread(of_directory: Status) -> Status {
    match of_directory {
        Status::NFS3ERR_JUKEBOX => Status::NFS3ERR_JUKEBOX,
        _ => Status::NFS3ERR_IO,
    }
}

fn is_directory(directory: &OwnedFd, name: &CStr) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|there| FileType::from_raw_mode(there.st_mode) == FileType::Directory)
}

const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Bytes of one getdents call.
const LIST_LEN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::PathBuf;
    use std::rc::Rc;

    use super::*;
    use crate::nodes::NameIn;
    use crate::tests::{Scratch, not_as_root};

    /// A step of a search, for the directory with this inode number.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Step {
        Opening(u64),
        Opened(u64),
    }

    type Hook = Box<dyn FnMut(Step) -> rustix::io::Result<()>>;

    thread_local! {
        /// What happens during the steps of the searches of this thread.
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// Calls the hook; its error is that of the directory.
    pub fn at(step: Step) -> rustix::io::Result<()> {
        HOOK.with_borrow_mut(|hook| hook.as_mut().map_or(Ok(()), |hook| hook(step)))
    }

    /// An export that was served before: `a/below/file` and `b/below/file`, and `aside`, which is
    /// empty. Nothing is recorded.
    struct Tested {
        scratch: Scratch,
        nodes: Rc<OpenFiles>,
    }

    impl Tested {
        fn new() -> Tested {
            let scratch = Scratch::new();
            for name in ["a/below", "b/below", "aside"] {
                fs::create_dir_all(scratch.export().join(name)).expect("ours");
            }
            for name in ["a/below/file", "b/below/file"] {
                fs::write(scratch.export().join(name), "").expect("ours");
            }
            let nodes = OpenFiles::open(&scratch.export()).expect("a directory");
            Tested { scratch, nodes: Rc::new(nodes) }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.scratch.export().join(name)
        }

        fn inode(&self, name: &str) -> u64 {
            fs::metadata(self.path(name)).expect("it is there").ino()
        }

        fn id(&self, name: &str) -> FileId {
            use crate::attributes::Attributes;
            let file = fs::File::open(self.path(name)).expect("ours");
            Attributes::of(&file).expect("it is open").id()
        }

        /// Finds a file while, once, at this step, something happens.
        fn find_while(
            &self,
            id: FileId,
            step: Step,
            happens: impl FnOnce() -> rustix::io::Result<()> + 'static,
        ) -> Result<FileId, Status> {
            let mut happens = Some(happens);
            let hook: Hook = Box::new(move |now| match happens.take_if(|_| now == step) {
                Some(happens) => happens(),
                None => Ok(()),
            });
            HOOK.set(Some(hook));
            let found = self.nodes.find(id).map(|node| node.id());
            HOOK.set(None);
            found
        }

        /// As [`OpenFiles::find`], after the pause behind a long search.
        fn find_later(&self, id: FileId) -> Result<FileId, Status> {
            lock(&self.nodes.searches).last = None;
            self.nodes.find(id).map(|node| node.id())
        }

        /// A change that a call makes of `name` in a directory.
        fn call(&self, call: Call, directory: &str, name: &'static str) -> impl FnOnce() + 'static {
            let nodes = self.nodes.clone();
            let (from, above) = (self.path(directory), self.path(""));
            let directory = directory.to_owned();
            move || {
                let root = nodes.root().clone();
                let directory = match &directory[..] {
                    "" => root.clone(),
                    below => nodes.look_up(&root, below.as_bytes()).expect("it is there"),
                };
                let there = directory.attributes_of(name.as_bytes()).expect("it is there");
                let old = NameIn { directory: &directory, name: name.as_bytes() };
                match call {
                    Call::Rename { to } => {
                        let moving = nodes.moving();
                        fs::rename(from.join(name), above.join(to)).expect("ours");
                        let to = NameIn { directory: &root, name: to.as_bytes() };
                        moving.moved(&there, old, to);
                    }
                    Call::Remove => {
                        fs::remove_dir(from.join(name)).expect("ours");
                        nodes.forget(&there, &directory, name.as_bytes());
                    }
                }
            }
        }

        fn was_whole(&self) -> bool {
            lock(&self.nodes.searches).last.expect("there was a search").is_whole
        }
    }

    #[derive(Clone, Copy)]
    enum Call {
        /// To this name in the root.
        Rename {
            to: &'static str,
        },
        Remove,
    }

    fn done(change: impl FnOnce() + 'static) -> impl FnOnce() -> rustix::io::Result<()> + 'static {
        move || {
            change();
            Ok(())
        }
    }

    const GONE: FileId = FileId { inode: u64::MAX, birth: 1 };
    const STALE: Result<FileId, Status> = Err(Status::NFS3ERR_STALE);
    const LATER: Result<FileId, Status> = Err(Status::NFS3ERR_JUKEBOX);

    #[test]
    fn a_directory_that_a_call_removes_meanwhile_is_not_missed() {
        for step in [Step::Opening, Step::Opened] {
            let it = Tested::new();
            let (id, aside) = (it.id("a/below/file"), it.inode("aside"));
            let removal = it.call(Call::Remove, "", "aside");
            assert_eq!(it.find_while(id, step(aside), done(removal)), Ok(id));
            assert!(it.was_whole());
            let other = it.id("b/below/file");
            assert_eq!(it.nodes.find(other).map(|node| node.id()), Ok(other));
            assert!(!it.path("aside").exists());
        }
        let it = Tested::new();
        let removal = it.call(Call::Remove, "", "aside");
        assert_eq!(it.find_while(GONE, Step::Opened(it.inode("aside")), done(removal)), STALE);
    }

    #[test]
    fn what_a_program_has_removed_meanwhile_may_have_been_moved() {
        for step in [Step::Opening, Step::Opened] {
            let it = Tested::new();
            let (aside, path) = (it.inode("aside"), it.path("aside"));
            let removal = move || fs::remove_dir(path).expect("ours");
            assert_eq!(it.find_while(GONE, step(aside), done(removal)), LATER);
            assert_eq!(it.find_later(GONE), STALE);
        }
    }

    #[test]
    fn a_directory_that_a_call_moves_meanwhile_is_searched_where_it_is() {
        for (directory, name) in [("", "a"), ("a", "below")] {
            // It has waited, or its name was not seen yet and is then in a directory that was.
            for step in [Step::Opening, Step::Opened] {
                let it = Tested::new();
                let (id, a) = (it.id("a/below/file"), it.inode("a"));
                let rename = it.call(Call::Rename { to: "moved" }, directory, name);
                assert_eq!(it.find_while(id, step(a), done(rename)), Ok(id), "{directory}/{name}");
                assert!(it.was_whole() && it.path("moved").exists());
                let other = it.id("b/below/file");
                assert_eq!(it.nodes.find(other).map(|node| node.id()), Ok(other));
            }
        }
    }

    #[test]
    fn a_moved_directory_is_searched_beside_one_that_was_removed_afterwards() {
        let it = Tested::new();
        fs::create_dir(it.path("a/other")).expect("ours");
        let (id, a) = (it.id("a/below/file"), it.inode("a"));
        let changes = [
            it.call(Call::Rename { to: "moved" }, "a", "below"),
            it.call(Call::Rename { to: "removed" }, "a", "other"),
            it.call(Call::Remove, "", "removed"),
        ];
        let change = move || changes.into_iter().for_each(|change| change());
        assert_eq!(it.find_while(id, Step::Opening(a), done(change)), Ok(id));
        assert!(it.was_whole() && !it.path("removed").exists());
    }

    #[test]
    fn a_file_that_a_call_is_moving_when_the_search_ends_may_be_there() {
        let it = Tested::new();
        let (id, a) = (it.id("a/below/file"), it.inode("a"));
        let moving = it.nodes.clone();
        let (from, to) = (it.path("a/below"), it.path("moved"));
        let rename = move || {
            // As if the thread had not come to record it.
            std::mem::forget(moving.moving());
            fs::rename(from, to).expect("ours");
        };
        assert_eq!(it.find_while(id, Step::Opening(a), done(rename)), LATER);
        assert!(!it.was_whole());
        lock(&it.nodes.tree).end_move();
        assert_eq!(it.find_later(id), Ok(id));
        assert!(it.was_whole());
    }

    #[test]
    fn a_file_in_a_directory_that_a_search_cannot_list_keeps_its_place() {
        let looked_up = |it: &Tested| {
            let mut node = it.nodes.root().clone();
            for name in ["a", "below", "file"] {
                node = it.nodes.look_up(&node, name.as_bytes()).expect("it is there");
            }
            while it.nodes.give_back() {}
            node.id()
        };
        let is_known = |it: &Tested, id| {
            lock(&it.nodes.searches).last = None;
            let found = it.nodes.find(id).map(|node| node.id());
            found == Ok(id) && lock(&it.nodes.searches).last.is_none()
        };
        let steps: [fn(u64) -> Step; 2] = [Step::Opening, Step::Opened];
        for (damaged, step) in ["a", "a/below"].into_iter().zip(steps) {
            let it = Tested::new();
            let (id, step) = (looked_up(&it), step(it.inode(damaged)));
            let failed = it.find_while(GONE, step, || Err(Errno::IO));
            assert_eq!(failed, Err(Status::NFS3ERR_IO));
            assert!(is_known(&it, id), "{damaged}");
        }
        not_as_root(move || {
            let it = Tested::new();
            let id = looked_up(&it);
            let mode =
                |mode| fs::set_permissions(it.path("a/below"), fs::Permissions::from_mode(mode));
            mode(0o300).expect("ours");
            assert_eq!(it.nodes.find(GONE).map(|node| node.id()), STALE);
            assert!(is_known(&it, id));
            mode(0o700).expect("ours");
        });
    }

    #[test]
    fn a_file_in_a_directory_that_a_program_moves_meanwhile_is_found_later() {
        let it = Tested::new();
        let (id, a, from, to) =
            (it.id("a/below/file"), it.inode("a"), it.path("a"), it.path("moved"));
        let rename = move || fs::rename(from, to).expect("ours");
        assert_eq!(it.find_while(id, Step::Opening(a), done(rename)), LATER);
        assert!(!it.was_whole());
        assert_eq!(it.find_later(id), Ok(id));
    }

    #[test]
    fn a_damaged_directory_hides_only_what_is_in_it() {
        for (damaged, sound) in [("a", "b"), ("b", "a")] {
            for step in [Step::Opening, Step::Opened] {
                for errno in [Errno::IO, Errno::PERM, Errno::LOOP] {
                    let it = Tested::new();
                    let id = it.id(&format!("{sound}/below/file"));
                    let step = step(it.inode(damaged));
                    assert_eq!(it.find_while(id, step, move || Err(errno)), Ok(id));
                    assert!(!it.was_whole());
                    // The search has failed, and counts.
                    lock(&it.nodes.searches).last = None;
                    let failed = it.find_while(GONE, step, move || Err(errno));
                    let is_moved = errno == Errno::LOOP && step == Step::Opening(it.inode(damaged));
                    let expected = if is_moved { LATER } else { Err(Status::NFS3ERR_IO) };
                    assert_eq!(failed, expected, "{errno}");
                    assert!(!it.was_whole());
                }
            }
        }
    }
}
