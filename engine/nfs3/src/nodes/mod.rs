//! Finds files by their identity, below the exported directory only.
//!
//! ```text
//!   FileId ──▶ cached? ─▶ OpenFile             (an open descriptor, kept for some seconds)
//!               │ no
//!               ├──▶ place known? ──▶ openat2(root, path, BENEATH | NO_SYMLINKS | NO_XDEV)
//!               │                       └─ the same inode, made at the same time? ──▶ OpenFile
//!               └──▶ the export is searched once, and then: found, or stale
//! ```
//! The server records the directory and name of each file that is looked up, listed or created.
//! After a restart there are no records: the first handle causes a search of the tree.
//! `open_by_handle_at` would need no records, but it needs a privilege and a file system that
//! supports it, and it would open a file that a program on the server has moved out of the export.

mod search;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

use crate::attributes::Attributes;
use crate::descriptors;
use crate::handles::FileId;
use crate::held::HeldFiles;
use crate::listings::Listings;
use crate::locks::lock;
use crate::medium::Medium;
use crate::node::OpenFile;
use crate::searches::Searches;
use crate::status::{Status, status};
use crate::tree::{FilePlace, Paths, Tree};

/// The open files of the export, and the recorded places of the others.
#[derive(Debug)]
pub struct OpenFiles {
    root: Arc<OpenFile>,
    device: (u32, u32),
    medium: Medium,
    held: HeldFiles,
    listings: Listings,
    tree: Mutex<Tree>,
    searches: Mutex<Searches>,
    /// Locked during a search.
    search: Mutex<()>,
}

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
pub struct NameIn<'a> {
    /// The directory.
    pub directory: &'a OpenFile,
    /// The name.
    pub name: &'a [u8],
}

impl NameIn<'_> {
    fn place(self) -> FilePlace {
        FilePlace { parent: self.directory.id().inode, name: self.name.into() }
    }
}

/// A call moves or links a file.
#[derive(Debug)]
pub struct Moving<'a> {
    nodes: &'a OpenFiles,
}

impl Moving<'_> {
    /// Records that a file, with these attributes, has got another name.
    pub fn moved(self, file: &Attributes, from: NameIn<'_>, to: NameIn<'_>) {
        let inode = file.id().inode;
        lock(&self.nodes.tree).moved(inode, &from.place(), to.place(), file.kind());
    }

    /// Records that a file has one more name.
    pub fn linked(self, file: &OpenFile, to: NameIn<'_>) {
        self.nodes.note(file.id().inode, to.directory, to.name);
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        lock(&self.nodes.tree).end_move();
    }
}

impl OpenFiles {
    /// Opens the exported directory. Raises the limit of descriptors of the process.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a directory.
    pub fn open(directory: &std::path::Path) -> rustix::io::Result<OpenFiles> {
        let descriptors = descriptors::raise();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(directory, flags, Mode::empty())?;
        let attributes = Attributes::of(&fd)?;
        let medium = Medium::of(&fd);
        let root = Arc::new(OpenFile::new(fd, &attributes));
        Ok(OpenFiles {
            root,
            device: attributes.device(),
            medium,
            held: HeldFiles::new(descriptors),
            listings: Listings::new(descriptors),
            tree: Mutex::default(),
            searches: Mutex::default(),
            search: Mutex::default(),
        })
    }

    /// The device number of the exported file system.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// The storage of the exported file system.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// The directories that are being listed.
    pub fn listings(&self) -> &Listings {
        &self.listings
    }

    /// The exported directory.
    pub fn root(&self) -> &Arc<OpenFile> {
        &self.root
    }

    /// Finds the file with this identity.
    ///
    /// # Errors
    /// `NFS3ERR_STALE` if it is no longer in the export, `NFS3ERR_JUKEBOX` if that is not known
    /// now, or an error of the file system.
    pub fn find(&self, id: FileId) -> Result<Arc<OpenFile>, Status> {
        if id == self.root.id() {
            let is_there = self.root.attributes()?.links() > 0;
            return if is_there { Ok(self.root.clone()) } else { Err(Status::NFS3ERR_STALE) };
        }
        if let Some(node) = self.held.get(id) {
            return Ok(node);
        }
        if let Some(node) = self.at_its_place(id)? {
            return Ok(node);
        }
        lock(&self.searches).check(id, Instant::now())?;
        // One search at a time: a thread that waited for another search may find the file in its
        // result.
        let _searching = lock(&self.search);
        if let Some(node) = self.at_its_place(id)? {
            return Ok(node);
        }
        lock(&self.searches).check(id, Instant::now())?;
        let searched = self.search(id);
        // Whatever happened in other directories.
        if let Some(node) = self.at_its_place(id)? {
            return Ok(node);
        }
        searched?;
        lock(&self.searches).was_not_found(id, Instant::now());
        Err(Status::NFS3ERR_STALE)
    }

    /// Looks a name up in a directory; a symbolic link is not followed. The rights are those of the
    /// calling thread.
    ///
    /// # Errors
    /// If the name does not exist, or is not on the exported file system.
    pub fn look_up(&self, directory: &OpenFile, name: &[u8]) -> Result<Arc<OpenFile>, Status> {
        let look_up = || openat2(directory.fd(), name, HOLD, Mode::empty(), INSIDE);
        let fd = self.opening(|| look_up().map_err(status))?;
        self.admit(fd, directory, name)
    }

    /// Opens a file for its data, as [`OpenFile::data`].
    ///
    /// # Errors
    /// If it has another type, or the server may not open it.
    pub fn data<'a>(&self, node: &'a OpenFile, to_write: bool) -> Result<BorrowedFd<'a>, Status> {
        self.opening(|| node.data(to_write))
    }

    /// A descriptor to bring a file to stable storage, as [`OpenFile::syncable`].
    ///
    /// # Errors
    /// If it can be opened neither to read nor to write.
    pub fn syncable<'a>(&self, node: &'a OpenFile) -> Result<BorrowedFd<'a>, Status> {
        self.opening(|| node.syncable())
    }

    /// Calls `open`, which needs a descriptor. If none is free, closes the older half of the cached
    /// files and of the lists, and tries again, until none is left.
    pub fn opening<T>(&self, open: impl Fn() -> Result<T, Status>) -> Result<T, Status> {
        loop {
            match open() {
                Err(Status::NFS3ERR_JUKEBOX) if self.give_back() => {}
                opened => return opened,
            }
        }
    }

    /// Calls `look` with a file if it is open: for a shard, which must not wait. The file may have
    /// been removed: its attributes show that.
    pub fn at_hand<T>(&self, id: FileId, look: impl FnOnce(&OpenFile) -> Option<T>) -> Option<T> {
        if id == self.root.id() { look(&self.root) } else { self.held.with(id, look) }
    }

    /// As [`OpenFiles::look_up`], from the kernel's cache only: `None` if that does not have the
    /// name. The file is not added to the open files.
    pub fn look_up_cached(
        &self,
        directory: &OpenFile,
        name: &[u8],
    ) -> Option<Result<(OpenFile, Attributes), Status>> {
        // At the end of a search the lock is held for long.
        drop(self.tree.try_lock().ok()?);
        let inside = INSIDE | ResolveFlags::CACHED;
        let fd = match openat2(directory.fd(), name, HOLD, Mode::empty(), inside) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Some(Err(Status::NFS3ERR_NOENT)),
            Err(_) => return None,
        };
        let attributes = Attributes::of(&fd).ok()?;
        if attributes.device() != self.device {
            return Some(Err(Status::NFS3ERR_ACCES));
        }
        self.note(attributes.id().inode, directory, name);
        Some(Ok((OpenFile::new(fd, &attributes), attributes)))
    }

    /// Adds a file to the open files, if that does not wait.
    pub fn hold_at_once(&self, node: OpenFile) {
        if let Ok(mut searches) = self.searches.try_lock() {
            searches.was_found(node.id());
            drop(searches);
            self.held.keep_at_once(node);
        }
    }

    fn give_back(&self) -> bool {
        let (files, lists) = (self.held.give_back(), self.listings.give_back());
        files || lists
    }

    /// The parent of a directory.
    ///
    /// # Errors
    /// If it is no longer in the export.
    pub fn above(&self, directory: &OpenFile) -> Result<Arc<OpenFile>, Status> {
        if directory.id() == self.root.id() {
            return Ok(self.root.clone());
        }
        let place = lock(&self.tree).place(directory.id().inode).map(|place| place.parent);
        let above = place.ok_or(Status::NFS3ERR_STALE)?;
        if above == self.root.id().inode {
            return Ok(self.root.clone());
        }
        let fd = self.open_place(above)?.ok_or(Status::NFS3ERR_STALE)?;
        let attributes = Attributes::of(&fd).map_err(status)?;
        // The name may now be of another file.
        let is_same = attributes.id().inode == above
            && attributes.kind() == FileType::Directory
            && attributes.device() == self.device;
        if !is_same {
            return Err(Status::NFS3ERR_STALE);
        }
        Ok(self.hold(OpenFile::new(fd, &attributes)))
    }

    /// Records the place of a file.
    pub fn note(&self, inode: u64, directory: &OpenFile, name: &[u8]) {
        if inode != self.root.id().inode {
            lock(&self.tree).note(inode, NameIn { directory, name }.place());
        }
    }

    /// Announces that a call moves or links a file: until that is recorded, the file may have a place
    /// that a search has not seen.
    pub fn moving(&self) -> Moving<'_> {
        lock(&self.tree).begin_move();
        Moving { nodes: self }
    }

    /// Records that a name was removed; `there` are the attributes of its file.
    pub fn forget(&self, there: &Attributes, directory: &OpenFile, name: &[u8]) {
        let id = there.id();
        let mut tree = lock(&self.tree);
        tree.forget(id.inode, &NameIn { directory, name }.place());
        if there.kind() == FileType::Directory {
            tree.directory_removed(id.inode);
        }
        drop(tree);
        if there.kind() == FileType::Directory || there.links() == 1 {
            lock(&self.searches).was_removed(id);
            self.held.forget(id);
        }
    }

    /// Checks and records a file that was opened by its name.
    fn admit(
        &self,
        fd: OwnedFd,
        directory: &OpenFile,
        name: &[u8],
    ) -> Result<Arc<OpenFile>, Status> {
        let attributes = Attributes::of(&fd).map_err(status)?;
        if attributes.device() != self.device {
            return Err(Status::NFS3ERR_ACCES);
        }
        let id = attributes.id();
        self.note(id.inode, directory, name);
        if let Some(node) = self.held.get(id) {
            return Ok(node);
        }
        Ok(self.hold(OpenFile::new(fd, &attributes)))
    }

    fn hold(&self, node: OpenFile) -> Arc<OpenFile> {
        lock(&self.searches).was_found(node.id());
        self.held.keep(node)
    }

    /// Opens a file at one of its recorded places, if it is still there.
    fn at_its_place(&self, id: FileId) -> Result<Option<Arc<OpenFile>>, Status> {
        loop {
            let Some(place) = lock(&self.tree).place(id.inode).cloned() else { return Ok(None) };
            if let Some(fd) = self.open_place(id.inode)? {
                let attributes = Attributes::of(&fd).map_err(status)?;
                if attributes.id() == id && attributes.device() == self.device {
                    return Ok(Some(self.hold(OpenFile::new(fd, &attributes))));
                }
            }
            if !lock(&self.tree).try_another(id.inode, &place) {
                return Ok(None);
            }
        }
    }

    fn open_place(&self, inode: u64) -> Result<Option<OwnedFd>, Status> {
        let root = self.root.id().inode;
        let opened = self.at_paths(|tree| tree.paths(inode, root), |paths| self.reach(paths))?;
        Ok(opened.flatten())
    }

    /// Opens what is at recorded paths. If it is gone, and the record has changed meanwhile, opens
    /// what is at the new ones.
    fn at_paths<T>(
        &self,
        paths: impl Fn(&Tree) -> Option<Paths>,
        open: impl Fn(&Paths) -> rustix::io::Result<T>,
    ) -> Result<Option<T>, Status> {
        let mut last = None;
        loop {
            let now = paths(&lock(&self.tree));
            let Some(now) = now.filter(|now| last.as_ref() != Some(now)) else { return Ok(None) };
            match self.opening(|| open(&now).map_err(status)) {
                Err(status) if is_gone(status) => last = Some(now),
                opened => return opened.map(Some),
            }
        }
    }

    /// Opens a sequence of paths, each relative to the one before, the first relative to the root.
    fn reach(&self, paths: &Paths) -> rustix::io::Result<Option<OwnedFd>> {
        let mut reached: Option<OwnedFd> = None;
        for path in paths {
            let from = reached.as_ref().map_or(self.root.fd(), |fd| fd.as_fd());
            reached = Some(openat2(from, &path[..], HOLD, Mode::empty(), INSIDE)?);
        }
        Ok(reached)
    }
}

/// Whether there is no such file any more, or none that the server can reach.
fn is_gone(status: Status) -> bool {
    let gone = [
        Status::NFS3ERR_NOENT,
        Status::NFS3ERR_NOTDIR,
        Status::NFS3ERR_STALE,
        Status::NFS3ERR_XDEV,
        Status::NFS3ERR_ACCES,
    ];
    gone.contains(&status)
}

const HOLD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Stay below the starting directory and on its file system, and follow no link.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;
    use crate::tests::{Scratch, not_as_root};

    /// A file with many links is found by the ones that are left, without a search of the export.
    #[test]
    fn a_file_whose_links_are_removed_is_found_by_the_others() {
        const LINKS: usize = 300;
        let scratch = Scratch::new();
        let path = |name: &str| scratch.export().join(name);
        fs::write(path("file"), "").expect("written");
        let nodes = OpenFiles::open(&scratch.export()).expect("a directory");
        let id = nodes.look_up(nodes.root(), b"file").expect("it is there").id();
        let names: Vec<String> = (0..LINKS).map(|number| format!("link-{number}")).collect();
        for name in &names {
            fs::hard_link(path("file"), path(name)).expect("made");
            nodes.note(id.inode, nodes.root(), name.as_bytes());
        }
        for (number, name) in names.iter().chain([&"file".to_owned()]).enumerate() {
            let there = nodes.root().attributes_of(name.as_bytes()).expect("it is there");
            fs::remove_file(path(name)).expect("ours");
            // Every other one is removed by a program on the server.
            if number.is_multiple_of(2) {
                nodes.forget(&there, nodes.root(), name.as_bytes());
            }
            nodes.held.forget(id);
            let found = nodes.find(id).map(|node| node.id());
            assert!(lock(&nodes.searches).last.is_none() || number == LINKS, "{name}");
            assert_eq!(found, if number < LINKS { Ok(id) } else { Err(Status::NFS3ERR_STALE) });
        }
    }

    #[test]
    fn only_a_directory_is_exported() {
        not_as_root(|| {
            let scratch = Scratch::new();
            fs::write(scratch.export().join("file"), "").expect("written");
            let opened = OpenFiles::open(&scratch.export().join("file")).map(drop);
            assert_eq!(opened, Err(Errno::NOTDIR));
            // One that the server may not list.
            let mode =
                |mode| fs::set_permissions(scratch.export(), fs::Permissions::from_mode(mode));
            mode(0o300).expect("ours");
            let nodes = OpenFiles::open(&scratch.export());
            mode(0o700).expect("ours");
            let flags = fcntl_getfd(nodes.expect("a directory").root().fd()).expect("it is open");
            assert!(flags.contains(FdFlags::CLOEXEC), "programs do not inherit it");
        });
    }

    #[test]
    fn the_parent_of_a_directory_is_what_it_is_in() {
        let scratch = Scratch::new();
        let path = |name: &str| scratch.export().join(name);
        fs::create_dir_all(path("above/below")).expect("made");
        let nodes = OpenFiles::open(&scratch.export()).expect("a directory");
        let above = nodes.look_up(nodes.root(), b"above").expect("it is there");
        let below = nodes.look_up(&above, b"below").expect("it is there");
        let parent = |node| nodes.above(node).map(|node| node.id());
        let root = nodes.root();
        assert_eq!(
            [&below, &above, root].map(|it| parent(it)),
            [&above, root, root].map(|it| Ok(it.id()))
        );
        // Programs move it away, and put another in its place.
        fs::rename(path("above"), path("moved")).expect("ours");
        assert_eq!(parent(&below), Err(Status::NFS3ERR_STALE));
        fs::create_dir(path("above")).expect("made");
        assert_eq!(parent(&below), Err(Status::NFS3ERR_STALE));
    }

    #[test]
    fn cached_files_are_closed_when_no_descriptor_is_free() {
        let scratch = Scratch::new();
        let nodes = OpenFiles::open(&scratch.export()).expect("a directory");
        for number in 0..9 {
            let name = format!("file-{number}");
            fs::write(scratch.export().join(&name), "").expect("written");
            nodes.look_up(nodes.root(), name.as_bytes()).expect("it is there");
        }
        let tries = std::cell::Cell::new(0);
        let open = |enough| {
            tries.set(0);
            nodes.opening(|| {
                tries.set(tries.get() + 1);
                if tries.get() < enough { Err(Status::NFS3ERR_JUKEBOX) } else { Ok(tries.get()) }
            })
        };
        assert_eq!(open(2), Ok(2));
        assert_eq!(nodes.held.count(), 4, "half of them are closed");
        assert_eq!(open(u32::MAX), Err(Status::NFS3ERR_JUKEBOX));
        assert_eq!((nodes.held.count(), tries.get()), (0, 3), "with 4, with 1 and with none");
    }

    #[test]
    fn a_file_stays_open_while_it_has_names() {
        let scratch = Scratch::new();
        fs::write(scratch.export().join("file"), "").expect("written");
        let nodes = OpenFiles::open(&scratch.export()).expect("a directory");
        let node = nodes.look_up(nodes.root(), b"file").expect("it is there");
        // The server does not know of this one.
        fs::hard_link(scratch.export().join("file"), scratch.export().join("other")).expect("made");
        let there = node.attributes().expect("it is there");
        fs::remove_file(scratch.export().join("file")).expect("ours");
        nodes.forget(&there, nodes.root(), b"file");
        assert!(nodes.at_hand(node.id(), |node| node.linked_attributes()).is_some());
        assert_eq!(nodes.find(node.id()).map(|node| node.id()), Ok(node.id()));
        assert!(lock(&nodes.searches).last.is_none(), "without a search");
    }
}
