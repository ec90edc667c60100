//! The places of each file: the directories and the names under which its inode was seen. A file
//! with several hard links has several.

use std::collections::{BTreeSet, HashMap, HashSet};

use rustix::fs::FileType;

/// A place of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePlace {
    /// The inode number of its directory.
    pub parent: u64,
    /// Its name in the directory.
    pub name: Box<[u8]>,
}

/// The places of files, by inode number.
#[derive(Debug, Default)]
pub struct Tree {
    /// Where each file was last seen.
    places: HashMap<u64, FilePlace>,
    /// The other places of files with several.
    others: HashMap<u64, BTreeSet<FilePlace>>,
    /// The number of other places.
    others_count: usize,
    /// What was recorded since the current search began.
    newer: Option<Newer>,
}

/// What was recorded since a search began: newer than what it finds.
#[derive(Debug, Default)]
struct Newer {
    places: HashSet<u64>,
    /// Directories that were moved, perhaps from where the search has not been to where it was.
    moved: Vec<u64>,
    removed: HashSet<u64>,
}

/// Paths from the root to a file, each short enough to be opened, and relative to the one before.
pub type Paths = Vec<Vec<u8>>;

/// The places that a search finds.
#[derive(Debug, Default)]
pub struct SearchResult {
    tree: Tree,
    /// The file that is searched for: its place is always recorded.
    wanted: u64,
    has_left_out: bool,
}

impl Tree {
    /// Records the place where a file was seen now.
    pub fn note(&mut self, inode: u64, place: FilePlace) {
        if self.len() >= PLACES_MAX && self.places.get(&inode) != Some(&place) {
            // A search finds them again when they are needed.
            (self.places, self.others, self.others_count) = Default::default();
        }
        self.forget_other(inode, &place);
        if let Some(before) = self.places.insert(inode, place.clone())
            && before != place
        {
            self.add_other(inode, before);
        }
        if let Some(newer) = &mut self.newer {
            newer.places.insert(inode);
            newer.removed.remove(&inode);
        }
    }

    /// Records that a file was moved from one place to another.
    pub fn moved(&mut self, inode: u64, from: &FilePlace, to: FilePlace, kind: FileType) {
        self.note(inode, to);
        self.forget(inode, from);
        if let Some(newer) = &mut self.newer
            && kind == FileType::Directory
        {
            newer.moved.push(inode);
        }
    }

    /// Records that a directory was removed.
    pub fn directory_removed(&mut self, inode: u64) {
        if let Some(newer) = &mut self.newer {
            newer.removed.insert(inode);
        }
    }

    /// Whether a directory was removed since the current search began.
    pub fn was_removed(&self, inode: u64) -> bool {
        self.newer.as_ref().is_some_and(|newer| newer.removed.contains(&inode))
    }

    /// Takes a directory that was moved since the current search began.
    pub fn take_moved(&mut self) -> Option<u64> {
        self.newer.as_mut()?.moved.pop()
    }

    /// Removes a place; other places of the file are kept.
    pub fn forget(&mut self, inode: u64, place: &FilePlace) {
        if self.places.get(&inode) != Some(place) {
            return self.forget_other(inode, place);
        }
        match self.others.get(&inode).and_then(BTreeSet::first).cloned() {
            Some(other) => {
                self.forget_other(inode, &other);
                self.places.insert(inode, other);
            }
            None => drop(self.places.remove(&inode)),
        }
    }

    /// Removes a place where a file is no longer, if the file has others. Returns whether it has.
    pub fn try_another(&mut self, inode: u64, place: &FilePlace) -> bool {
        let has_others = self.others.contains_key(&inode);
        if has_others {
            self.forget(inode, place);
        }
        has_others
    }

    /// The number of places.
    fn len(&self) -> usize {
        self.places.len() + self.others_count
    }

    /// Adds a place behind those that are known.
    fn add(&mut self, inode: u64, place: FilePlace) {
        match self.places.get(&inode) {
            None => drop(self.places.insert(inode, place)),
            Some(known) if *known == place => {}
            Some(_) => self.add_other(inode, place),
        }
    }

    fn add_other(&mut self, inode: u64, place: FilePlace) {
        self.others_count += usize::from(self.others.entry(inode).or_default().insert(place));
    }

    fn forget_other(&mut self, inode: u64, place: &FilePlace) {
        let Some(others) = self.others.get_mut(&inode) else { return };
        self.others_count -= usize::from(others.remove(place));
        if others.is_empty() {
            self.others.remove(&inode);
        }
    }

    /// The place where a file was last seen.
    pub fn place(&self, inode: u64) -> Option<&FilePlace> {
        self.places.get(&inode)
    }

    /// The path from the root to a file, divided into paths that are short enough to be opened one
    /// after the other. `None` if it is not known.
    pub fn paths(&self, inode: u64, root: u64) -> Option<Paths> {
        paths(inode, root, |at| self.places.get(&at))
    }

    /// As [`Tree::paths`], during a search: by its places, and those that are newer.
    pub fn paths_of_search(&self, found: &SearchResult, inode: u64, root: u64) -> Option<Paths> {
        let newer = self.newer.as_ref();
        let is_newer = |at: &u64| newer.is_some_and(|newer| newer.places.contains(at));
        let place = |at| self.places.get(&at).filter(|_| is_newer(&at));
        paths(inode, root, |at| place(at).or_else(|| found.tree.places.get(&at)))
    }

    /// Begins a search for a file.
    pub fn begin_search(&mut self, wanted: u64) -> SearchResult {
        self.newer = Some(Newer::default());
        SearchResult { wanted, ..SearchResult::default() }
    }

    /// Merges the result of a search. Places recorded during the search are newer than the result,
    /// those recorded before it are older.
    pub fn end_search(&mut self, found: SearchResult) {
        let newer = self.newer.take().unwrap_or_default().places;
        self.places.retain(|inode, _| newer.contains(inode));
        self.others.retain(|inode, _| newer.contains(inode));
        self.others_count = self.others.values().map(BTreeSet::len).sum();
        let Tree { places, others, .. } = found.tree;
        let others = others
            .into_iter()
            .flat_map(|(inode, places)| places.into_iter().map(move |place| (inode, place)));
        for (inode, place) in places.into_iter().chain(others) {
            self.add(inode, place);
        }
    }
}

impl SearchResult {
    /// Records a directory. There is no limit for directories: the paths to files need them.
    pub fn directory(&mut self, inode: u64, place: FilePlace) {
        self.tree.places.insert(inode, place);
    }

    /// Records another file, if there is room.
    pub fn file(&mut self, inode: u64, place: FilePlace) {
        if inode == self.wanted || self.tree.len() < PLACES_MAX {
            self.tree.add(inode, place);
        } else {
            self.has_left_out = true;
        }
    }

    /// Whether all files were recorded.
    pub fn is_whole(&self) -> bool {
        !self.has_left_out
    }

    /// Whether a directory was recorded.
    pub fn has_directory(&self, inode: u64) -> bool {
        self.tree.places.contains_key(&inode)
    }
}

fn paths<'a>(inode: u64, root: u64, place: impl Fn(u64) -> Option<&'a FilePlace>) -> Option<Paths> {
    let mut names = Vec::new();
    let mut at = inode;
    while at != root {
        let place = place(at)?;
        names.push(&place.name);
        at = place.parent;
        // Places recorded at different times may form a cycle.
        if names.len() > DEPTH_MAX {
            return None;
        }
    }
    let mut paths = Paths::new();
    for name in names.into_iter().rev() {
        match paths.last_mut().filter(|path| path.len() + name.len() < PATH_MAX) {
            Some(path) => {
                path.push(b'/');
                path.extend_from_slice(name);
            }
            None => paths.push(name.to_vec()),
        }
    }
    Some(paths)
}

/// The maximum number of recorded places.
const PLACES_MAX: usize = 1 << 20;
/// The maximum depth of a file.
const DEPTH_MAX: usize = 4096;
/// Bytes of a path; the kernel accepts 4096 with the terminating zero.
const PATH_MAX: usize = 4000;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(parent: u64, name: &str) -> FilePlace {
        FilePlace { parent, name: name.as_bytes().into() }
    }

    #[test]
    fn a_path_leads_from_the_root() {
        let mut tree = Tree::default();
        tree.note(2, place(1, "a"));
        tree.note(3, place(2, "b"));
        assert_eq!(tree.paths(3, 1), Some(vec![b"a/b".to_vec()]));
        assert_eq!(tree.paths(4, 1), None);
        // A rename of a directory changes the path of all files below it.
        tree.note(2, place(1, "c"));
        assert_eq!(tree.paths(3, 1), Some(vec![b"c/b".to_vec()]));
    }

    #[test]
    fn a_circle_has_no_path() {
        let mut tree = Tree::default();
        tree.note(2, place(3, "a"));
        tree.note(3, place(2, "b"));
        assert_eq!(tree.paths(2, 1), None);
    }

    #[test]
    fn a_long_path_is_cut_between_names() {
        let mut tree = Tree::default();
        let name = "n".repeat(255);
        for inode in 2..100 {
            tree.note(inode, place(inode - 1, &name));
        }
        let paths = tree.paths(99, 1).expect("it is known");
        assert!(paths.len() > 1 && paths.iter().all(|path| path.len() <= PATH_MAX));
        let joined = paths.join(&b'/');
        assert_eq!(joined, vec![name.as_bytes(); 98].join(&b'/'));
    }

    #[test]
    fn entries_noted_during_a_search_replace_its_results() {
        let mut tree = Tree::default();
        tree.note(2, place(1, "long ago"));
        tree.note(3, place(1, "gone"));
        let mut found = tree.begin_search(2);
        found.file(4, place(1, "before"));
        tree.note(4, place(1, "meanwhile"));
        found.file(2, place(1, "now"));
        tree.end_search(found);
        assert_eq!(tree.place(4), Some(&place(1, "meanwhile")));
        assert_eq!(tree.place(2), Some(&place(1, "now")));
        assert_eq!(tree.place(3), None, "it was not found");
        let mut found = tree.begin_search(4);
        found.file(4, place(1, "later"));
        tree.end_search(found);
        assert_eq!(tree.place(4), Some(&place(1, "later")), "of the search before");
    }

    #[test]
    fn a_search_has_room_for_directories_and_for_what_is_wanted() {
        let mut tree = Tree::default();
        let mut found = tree.begin_search(7);
        for inode in 0..PLACES_MAX as u64 {
            found.file(inode + 10, place(1, ""));
        }
        assert!(found.is_whole());
        let more = PLACES_MAX as u64 + 10;
        found.file(more, place(1, "one too many"));
        assert!(!found.is_whole());
        found.directory(more + 1, place(1, "a"));
        found.file(7, place(more + 1, "b"));
        tree.end_search(found);
        assert_eq!(tree.place(more), None);
        assert_eq!(tree.paths(7, 1), Some(vec![b"a/b".to_vec()]));
    }

    #[test]
    fn only_the_removed_name_is_forgotten() {
        let mut tree = Tree::default();
        tree.note(2, place(1, "second"));
        tree.forget(2, &place(1, "first"));
        assert!(tree.place(2).is_some());
        tree.forget(2, &place(1, "second"));
        assert!(tree.place(2).is_none());
    }

    #[test]
    fn a_search_goes_by_newer_places_and_learns_what_was_moved_or_removed() {
        let mut tree = Tree::default();
        tree.note(2, place(1, "long ago"));
        let mut found = tree.begin_search(9);
        found.directory(2, place(1, "a"));
        found.directory(3, place(2, "b"));
        let path = |tree: &Tree, found: &SearchResult| tree.paths_of_search(found, 3, 1);
        assert_eq!(path(&tree, &found), Some(vec![b"a/b".to_vec()]));
        tree.moved(2, &place(1, "a"), place(1, "c"), FileType::Directory);
        tree.moved(4, &place(1, "x"), place(1, "y"), FileType::RegularFile);
        assert_eq!(path(&tree, &found), Some(vec![b"c/b".to_vec()]));
        assert_eq!((tree.take_moved(), tree.take_moved()), (Some(2), None));
        assert!(found.has_directory(2) && !found.has_directory(4));
        tree.directory_removed(3);
        assert!(tree.was_removed(3) && !tree.was_removed(2));
        tree.note(3, place(1, "another with its number"));
        assert!(!tree.was_removed(3));
        assert_eq!(tree.paths_of_search(&found, 1, 1), Some(Vec::new()), "the root");
    }

    #[test]
    fn what_is_moved_has_the_new_place_alone() {
        let mut tree = Tree::default();
        tree.note(2, place(1, "link"));
        tree.note(2, place(1, "old"));
        tree.moved(2, &place(1, "old"), place(3, "new"), FileType::RegularFile);
        assert_eq!((tree.place(2), tree.len()), (Some(&place(3, "new")), 2));
        tree.forget(2, &place(3, "new"));
        assert_eq!(tree.place(2), Some(&place(1, "link")));
    }

    #[test]
    fn every_link_of_a_file_has_its_place() {
        let mut tree = Tree::default();
        for link in ["a", "b", "c", "b"] {
            tree.note(2, place(1, link));
        }
        assert_eq!((tree.place(2), tree.len()), (Some(&place(1, "b")), 3));
        tree.forget(2, &place(1, "c"));
        tree.forget(2, &place(1, "b"));
        assert_eq!((tree.place(2), tree.len()), (Some(&place(1, "a")), 1));
        assert!(!tree.try_another(2, &place(1, "a")), "it is the only one");
        assert_eq!(tree.place(2), Some(&place(1, "a")));
        // A link that a program has removed.
        tree.note(2, place(1, "d"));
        assert!(tree.try_another(2, &place(1, "d")));
        assert_eq!((tree.place(2), tree.len()), (Some(&place(1, "a")), 1));
    }

    #[test]
    fn a_search_finds_all_links_and_links_count() {
        let mut tree = Tree::default();
        let mut found = tree.begin_search(2);
        for link in ["a", "b", "c"] {
            found.file(2, place(1, link));
        }
        tree.note(2, place(1, "new"));
        tree.end_search(found);
        assert_eq!((tree.place(2), tree.len()), (Some(&place(1, "new")), 4));
        // As if the file had so many.
        tree.others_count = PLACES_MAX;
        tree.note(2, place(1, "one more"));
        assert_eq!(tree.len(), 1, "the records begin anew");
    }
}
