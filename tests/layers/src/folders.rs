//! The folders of a crate, and which of their entries import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use crate::modules::Import;

/// One entry of a folder uses another: a file, or a folder with the file of its module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub from: String,
    pub to: String,
    pub import: Import,
}

impl Display for Link {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.import)
    }
}

/// The entries of a folder.
pub fn entries(files: &[String], folder: &str) -> BTreeSet<String> {
    let folder = parts(folder);
    let below = files.iter().map(|file| parts(file)).filter(|parts| parts.starts_with(&folder));
    below.filter_map(|parts| parts.get(folder.len()).map(|name| (*name).to_owned())).collect()
}

/// For each folder, the imports between two of its entries. The file of the folder's own module
/// (`lib.rs`, `main.rs`, `mod.rs`) is none of them.
pub fn links(imports: &[Import]) -> BTreeMap<String, Vec<Link>> {
    let mut folders: BTreeMap<String, Vec<Link>> = BTreeMap::new();
    for import in imports {
        let (from, to) = (parts(&import.from), parts(&import.to));
        let depth = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
        let (Some(one), Some(other)) = (from.get(depth), to.get(depth)) else { continue };
        let (from, other) = ((*one).to_owned(), (*other).to_owned());
        let link = Link { from, to: other, import: import.clone() };
        folders.entry(to[..depth].join("/")).or_default().push(link);
    }
    folders
}

/// The names from the root to a module: `a/b.rs` and `a/b/mod.rs` are both `a`, `b`.
fn parts(file: &str) -> Vec<&str> {
    let name = file.strip_suffix(".rs").unwrap_or(file);
    let mut parts: Vec<&str> = name.split('/').collect();
    if let Some(&("mod" | "lib" | "main")) = parts.last() {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(imports: &[(&str, &str)]) -> Vec<(String, String, String)> {
        let import = |(from, to): &(&str, &str)| Import {
            from: (*from).to_owned(),
            line: 1,
            to: (*to).to_owned(),
            name: String::new(),
        };
        let imports: Vec<Import> = imports.iter().map(import).collect();
        let plain = |(folder, links): (String, Vec<Link>)| {
            links.into_iter().map(move |link| (folder.clone(), link.from, link.to))
        };
        links(&imports).into_iter().flat_map(plain).collect()
    }

    fn one(folder: &str, from: &str, to: &str) -> Vec<(String, String, String)> {
        vec![(folder.to_owned(), from.to_owned(), to.to_owned())]
    }

    #[test]
    fn an_import_is_between_the_entries_of_the_lowest_common_folder() {
        assert_eq!(found(&[("c/src/a/x/y.rs", "c/src/b/z.rs")]), one("c/src", "a", "b"));
        assert_eq!(found(&[("c/src/a/x/y.rs", "c/src/a/z.rs")]), one("c/src/a", "x", "z"));
        assert_eq!(found(&[("c/src/a.rs", "c/src/b/mod.rs")]), one("c/src", "a", "b"));
    }

    #[test]
    fn a_module_and_what_is_below_it_are_one_entry() {
        for own in ["c/src/a.rs", "c/src/a/mod.rs", "c/src/lib.rs"] {
            assert_eq!(found(&[(own, "c/src/a/b.rs")]), [], "{own}");
            assert_eq!(found(&[("c/src/a/b.rs", own)]), [], "{own}");
        }
    }
}
