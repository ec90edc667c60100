//! Where files are: for every inode the directory and the name that it was seen under last.

use std::collections::{HashMap, HashSet};

/// Where a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The inode of its directory.
    pub parent: u64,
    /// Its name there.
    pub name: Box<[u8]>,
}

/// The places of files, by inode.
#[derive(Debug, Default)]
pub struct Tree {
    places: HashMap<u64, Place>,
    /// What was seen since a search has begun: newer than what that finds.
    newer: Option<HashSet<u64>>,
}

/// What a search finds.
#[derive(Debug, Default)]
pub struct Found {
    tree: Tree,
    /// The file that is searched for: there is always room for that.
    wanted: u64,
    has_left_out: bool,
}

impl Tree {
    /// Takes note of a place that was seen.
    pub fn note(&mut self, inode: u64, place: Place) {
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(&inode) {
            // They are found again when they are needed.
            self.places.clear();
        }
        self.places.insert(inode, place);
        if let Some(newer) = &mut self.newer {
            newer.insert(inode);
        }
    }

    /// Takes note that a place is empty now; other places of the file stay.
    pub fn forget(&mut self, inode: u64, parent: u64, name: &[u8]) {
        let is_there = |place: &Place| place.parent == parent && *place.name == *name;
        if self.places.get(&inode).is_some_and(is_there) {
            self.places.remove(&inode);
        }
    }

    /// Where a file was seen last.
    pub fn place(&self, inode: u64) -> Option<&Place> {
        self.places.get(&inode)
    }

    /// The way from the root to a file, cut into paths that are short enough to be opened one from
    /// the other. `None` if it is not known.
    pub fn paths(&self, inode: u64, root: u64) -> Option<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let mut at = inode;
        while at != root {
            let place = self.places.get(&at)?;
            names.push(&place.name);
            at = place.parent;
            // What was seen at different times may go round in a circle.
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        let mut paths: Vec<Vec<u8>> = Vec::new();
        for name in names.into_iter().rev() {
            match paths.last_mut().filter(|path| path.len() + name.len() < PATH_MAX) {
                Some(path) => {
                    path.push(b'/');
                    path.extend_from_slice(name);
                }
                None => paths.push(name.to_vec()),
            }
        }
        (!paths.is_empty()).then_some(paths)
    }

    /// Begins a search for a file.
    pub fn begin_search(&mut self, wanted: u64) -> Found {
        self.newer = Some(HashSet::new());
        Found { wanted, ..Found::default() }
    }

    /// Takes over what a search has found. What was seen meanwhile is newer, what was seen before
    /// is older.
    pub fn end_search(&mut self, found: Found) {
        let newer = self.newer.take().unwrap_or_default();
        self.places.retain(|inode, _| newer.contains(inode));
        for (inode, place) in found.tree.places {
            self.places.entry(inode).or_insert(place);
        }
    }
}

impl Found {
    /// Takes note of a directory. There is room for all of them: they are the way to the files.
    pub fn directory(&mut self, inode: u64, place: Place) {
        self.tree.places.insert(inode, place);
    }

    /// Takes note of something else, if there is room.
    pub fn file(&mut self, inode: u64, place: Place) {
        if inode == self.wanted || self.tree.places.len() < PLACES_MAX {
            self.tree.places.insert(inode, place);
        } else {
            self.has_left_out = true;
        }
    }

    /// Whether there was room for all.
    pub fn is_whole(&self) -> bool {
        !self.has_left_out
    }

    /// As [`Tree::paths`], of a directory that was found.
    pub fn paths(&self, inode: u64, root: u64) -> Option<Vec<Vec<u8>>> {
        self.tree.paths(inode, root)
    }
}

/// Files whose places are remembered.
const PLACES_MAX: usize = 1 << 20;
/// Directories above a file.
const DEPTH_MAX: usize = 4096;
/// Bytes of a path; the kernel takes 4096 with the zero at the end.
const PATH_MAX: usize = 4000;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(parent: u64, name: &str) -> Place {
        Place { parent, name: name.as_bytes().into() }
    }

    #[test]
    fn a_path_leads_from_the_root() {
        let mut tree = Tree::default();
        tree.note(2, place(1, "a"));
        tree.note(3, place(2, "b"));
        assert_eq!(tree.paths(3, 1), Some(vec![b"a/b".to_vec()]));
        assert_eq!(tree.paths(4, 1), None);
        // A rename above changes the path of all below.
        tree.note(2, place(1, "c"));
        assert_eq!(tree.paths(3, 1), Some(vec![b"c/b".to_vec()]));
    }

    #[test]
    fn a_circle_is_no_path() {
        let mut tree = Tree::default();
        tree.note(2, place(3, "a"));
        tree.note(3, place(2, "b"));
        assert_eq!(tree.paths(2, 1), None);
    }

    #[test]
    fn a_long_way_is_cut_where_names_end() {
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
    fn what_is_seen_during_a_search_is_newer_than_what_it_finds() {
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
    fn only_the_name_that_went_is_forgotten() {
        let mut tree = Tree::default();
        tree.note(2, place(1, "second"));
        tree.forget(2, 1, b"first");
        assert!(tree.place(2).is_some());
        tree.forget(2, 1, b"second");
        assert!(tree.place(2).is_none());
    }
}
