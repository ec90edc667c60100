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
    /// The calls that are moving or linking a file, and have not recorded it.
    moving: usize,
    /// What was recorded since the current search began.
    newer: Option<Newer>,
}

/// What was recorded since a search began: newer than what it finds.
#[derive(Debug, Default)]
struct Newer {
    /// The files that have a place of this time.
    places: HashSet<u64>,
    /// Directories that were moved, perhaps from where the search has not been to where it was.
    moved: BTreeSet<u64>,
    removed: BTreeSet<u64>,
    /// The number of directories that were added to one of both.
    changes: usize,
    /// Whether something was forgotten.
    has_lost: bool,
}

/// Paths from the root to a file, each short enough to be opened, and relative to the one before.
pub type Paths = Vec<Vec<u8>>;

/// The places that a search finds.
#[derive(Debug, Default)]
pub struct SearchResult {
    tree: Tree,
    /// The directories of which it has seen all names.
    listed: HashSet<u64>,
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
            if let Some(newer) = &mut self.newer {
                newer.places.clear();
                newer.has_lost = true;
            }
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
            && newer.moved.insert(inode)
        {
            newer.count();
        }
    }

    /// A call begins to move or link a file.
    pub fn begin_move(&mut self) {
        self.moving += 1;
    }

    /// It has recorded the new place, or has failed.
    pub fn end_move(&mut self) {
        self.moving -= 1;
    }

    /// Records that a directory was removed.
    pub fn directory_removed(&mut self, inode: u64) {
        if let Some(newer) = &mut self.newer {
            newer.moved.remove(&inode);
            if newer.removed.insert(inode) {
                newer.count();
            }
        }
    }

    /// Whether a directory was removed since the current search began.
    pub fn was_removed(&self, inode: u64) -> bool {
        self.newer.as_ref().is_some_and(|newer| newer.removed.contains(&inode))
    }

    /// Takes a directory that was moved since the current search began and that the search has not
    /// found. One that was not seen before it was moved has perhaps not been seen afterwards.
    pub fn take_moved(&mut self, found: &SearchResult) -> Option<(u64, FilePlace)> {
        let newer = self.newer.as_mut()?;
        while let Some(moved) = newer.moved.pop_first() {
            if found.has_directory(moved) {
                continue;
            }
            match self.places.get(&moved) {
                Some(place) => return Some((moved, place.clone())),
                None => newer.has_lost = true,
            }
        }
        None
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
            None => {
                self.places.remove(&inode);
                if let Some(newer) = &mut self.newer {
                    newer.places.remove(&inode);
                }
            }
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

    /// Merges the result of a search. Places recorded during the search are newer than the result.
    /// Those recorded before it are older: they are kept in directories that it has not listed.
    /// Returns whether it may have missed what calls have moved meanwhile.
    pub fn end_search(&mut self, found: SearchResult) -> bool {
        let newer = self.newer.take().unwrap_or_default();
        let has_missed = self.moving > 0
            || newer.has_lost
            || newer.moved.iter().any(|moved| !found.has_directory(*moved));
        let is_older = |inode: &u64| !newer.places.contains(inode);
        let older = each(
            self.places.extract_if(|inode, _| is_older(inode)),
            self.others.extract_if(|inode, _| is_older(inode)),
        );
        let is_kept = |(_, place): &(u64, FilePlace)| !found.listed.contains(&place.parent);
        let older: Vec<_> = older.filter(is_kept).collect();
        self.others_count = self.others.values().map(BTreeSet::len).sum();
        for (inode, place) in each(found.tree.places, found.tree.others) {
            self.add(inode, place);
        }
        for (inode, place) in older {
            if self.len() < PLACES_MAX {
                self.add(inode, place);
            }
        }
        has_missed
    }
}

impl Newer {
    /// Counts a change of a directory. Too many are forgotten: a client that makes and moves one
    /// directory after the other does not prolong the search without end.
    fn count(&mut self) {
        self.changes += 1;
        if self.changes > CHANGES_MAX {
            self.moved.clear();
            self.removed.clear();
            self.has_lost = true;
        }
    }
}

impl SearchResult {
    /// Records a directory. There is no limit for directories: the paths to files need them.
    pub fn directory(&mut self, inode: u64, place: FilePlace) {
        self.tree.places.insert(inode, place);
    }

    /// Records that all names of a directory were seen.
    pub fn listed(&mut self, inode: u64) {
        self.listed.insert(inode);
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

/// All places, the other ones last.
fn each(
    places: impl IntoIterator<Item = (u64, FilePlace)>,
    others: impl IntoIterator<Item = (u64, BTreeSet<FilePlace>)>,
) -> impl Iterator<Item = (u64, FilePlace)> {
    let others = others.into_iter();
    let others = others.flat_map(|(inode, places)| places.into_iter().map(move |it| (inode, it)));
    places.into_iter().chain(others)
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
/// The maximum number of directories that are moved or removed during a search, and recorded.
const CHANGES_MAX: usize = 64 << 10;
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
        found.listed(1);
        assert!(!tree.end_search(found));
        assert_eq!((tree.place(4), tree.len()), (Some(&place(1, "meanwhile")), 3));
        assert_eq!(tree.place(2), Some(&place(1, "now")));
        assert_eq!(tree.place(3), None, "it was not found");
        let mut found = tree.begin_search(4);
        found.file(4, place(1, "later"));
        found.listed(1);
        tree.end_search(found);
        assert_eq!(
            (tree.place(4), tree.len()),
            (Some(&place(1, "later")), 1),
            "of the search before"
        );
    }

    #[test]
    fn places_in_a_directory_that_was_not_listed_are_kept_behind_those_that_were_found() {
        let mut tree = Tree::default();
        for (inode, parent) in [(3, 2), (4, 1), (4, 2), (5, 2), (6, 1)] {
            tree.note(inode, place(parent, "older"));
        }
        let mut found = tree.begin_search(3);
        found.directory(2, place(1, "unread"));
        found.file(4, place(1, "now"));
        tree.note(5, place(1, "meanwhile"));
        found.listed(1);
        tree.end_search(found);
        assert_eq!(tree.place(3), Some(&place(2, "older")));
        let mut places = |inode| {
            let first = tree.place(inode).cloned().expect("it has one");
            tree.forget(inode, &first);
            [Some(first), tree.place(inode).cloned()]
        };
        assert_eq!(places(4), [Some(place(1, "now")), Some(place(2, "older"))]);
        assert_eq!(places(5), [Some(place(1, "meanwhile")), Some(place(2, "older"))]);
        assert_eq!(tree.place(6), None);
        // There is room for so many.
        let mut found = tree.begin_search(3);
        for inode in 0..PLACES_MAX as u64 {
            found.file(inode + 10, place(1, ""));
        }
        tree.end_search(found);
        assert_eq!((tree.place(3), tree.len()), (None, PLACES_MAX));
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
        assert_eq!(tree.take_moved(&found), None, "it has found the directory");
        tree.moved(5, &place(1, "x"), place(1, "z"), FileType::Directory);
        assert_eq!(tree.take_moved(&found), Some((5, place(1, "z"))));
        assert_eq!(tree.take_moved(&found), None);
        tree.directory_removed(3);
        assert!(tree.was_removed(3) && !tree.was_removed(2));
        tree.note(3, place(1, "another with its number"));
        assert!(!tree.was_removed(3));
        assert_eq!(tree.paths_of_search(&found, 1, 1), Some(Vec::new()), "the root");
    }

    /// The tree during a search, after so many moves of the directory that `which` names.
    fn moved(count: usize, which: impl Fn(usize) -> u64) -> (Tree, SearchResult) {
        let mut tree = Tree::default();
        let found = tree.begin_search(9);
        for number in 0..count {
            let inode = which(number);
            tree.moved(inode, &place(1, "a"), place(1, "b"), FileType::Directory);
        }
        (tree, found)
    }

    #[test]
    fn a_directory_that_is_moved_to_and_fro_is_recorded_once() {
        let (mut tree, mut found) = moved(CHANGES_MAX + 1, |_| 2);
        assert_eq!(tree.take_moved(&found).map(|it| it.0), Some(2));
        assert_eq!(tree.take_moved(&found), None);
        found.directory(2, place(1, "b"));
        tree.moved(2, &place(1, "b"), place(1, "a"), FileType::Directory);
        assert!(!tree.end_search(found));
    }

    #[test]
    fn a_directory_that_was_moved_and_removed_is_not_missed() {
        let (mut tree, found) = moved(2, |number| number as u64 + 10);
        tree.forget(10, &place(1, "b"));
        tree.directory_removed(10);
        assert_eq!(tree.take_moved(&found), Some((11, place(1, "b"))));
        assert_eq!(tree.take_moved(&found), None);
        assert!(!tree.end_search(found));
    }

    #[test]
    fn a_search_ends_however_many_directories_are_moved_and_may_have_missed_some() {
        for (count, more) in [(CHANGES_MAX, false), (CHANGES_MAX + 1, true)] {
            let (mut tree, found) = moved(0, |_| 0);
            for inode in 10..count as u64 + 10 {
                tree.moved(inode, &place(1, "a"), place(1, "b"), FileType::Directory);
                let is_last = more && inode == count as u64 + 9;
                assert_eq!(tree.take_moved(&found).is_none(), is_last);
            }
            assert_eq!(tree.end_search(found), more);
            // They are removed.
            let (mut tree, found) = moved(0, |_| 0);
            (10..count as u64 + 10).for_each(|inode| tree.directory_removed(inode));
            assert_eq!(tree.was_removed(10), !more);
            assert_eq!(tree.end_search(found), more);
        }
    }

    #[test]
    fn a_search_may_have_missed_what_is_moved_at_its_end_or_was_forgotten() {
        let (mut tree, found) = moved(0, |_| 0);
        tree.begin_move();
        assert!(tree.end_search(found));
        let found = tree.begin_search(9);
        tree.end_move();
        assert!(!tree.end_search(found));
        // A directory that was not listed.
        let (mut tree, found) = moved(1, |_| 2);
        assert!(tree.end_search(found));
        // Its place is forgotten.
        let (mut tree, found) = moved(1, |_| 2);
        tree.forget(2, &place(1, "b"));
        assert_eq!(tree.take_moved(&found), None);
        assert!(tree.end_search(found));
        // So are all.
        let (mut tree, found) = moved(0, |_| 0);
        tree.others_count = PLACES_MAX;
        tree.note(2, place(1, "one more"));
        assert!(tree.end_search(found));
    }

    #[test]
    fn files_that_are_made_and_removed_during_a_search_take_no_room() {
        let (mut tree, found) = moved(0, |_| 0);
        for inode in 10..20 {
            tree.note(inode, place(1, "a"));
            tree.forget(inode, &place(1, "a"));
        }
        assert!(tree.newer.as_ref().is_some_and(|newer| newer.places.is_empty()));
        tree.end_search(found);
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
