//! Where files are: for every inode the directory and the name that it was seen under last.

use std::collections::HashMap;

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
}

impl Tree {
    /// Takes note of a place that was seen.
    pub fn note(&mut self, inode: u64, place: Place) {
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(&inode) {
            // They are found again when they are needed.
            self.places.clear();
        }
        self.places.insert(inode, place);
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

    /// An empty tree, to be filled by a search.
    pub fn begin_search(&self) -> Tree {
        Tree::default()
    }

    /// Takes over what a search has found. What was seen meanwhile is newer.
    pub fn end_search(&mut self, found: Tree) {
        for (inode, place) in found.places {
            self.note(inode, place);
        }
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
    fn only_the_name_that_went_is_forgotten() {
        let mut tree = Tree::default();
        tree.note(2, place(1, "second"));
        tree.forget(2, 1, b"first");
        assert!(tree.place(2).is_some());
        tree.forget(2, 1, b"second");
        assert!(tree.place(2).is_none());
    }
}
