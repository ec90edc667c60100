//! Figures of the sources: what they weigh, and what a reader has to keep apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::process::Command;

use syn::visit::{self, Visit};

use crate::names;

/// Prints the figures of each crate, or each name that is counted of one.
pub fn print(root: &Path, chosen: &[String]) -> Result<(), String> {
    let crates = of_crates(root)?;
    if let Some(folder) = chosen.first() {
        let figures = crates.get(folder).ok_or_else(|| format!("no such crate: {folder}"))?;
        for (name, files) in figures.ambiguous() {
            println!("{name}: {}", Vec::from_iter(files.iter().map(String::as_str)).join(", "));
        }
        figures.tuples.iter().for_each(|function| println!("{function}"));
        return Ok(());
    }
    let mut all = Figures::default();
    for (folder, figures) in crates {
        println!("{folder:<24} {figures}");
        all.lines += figures.lines;
        all.tuples.extend(figures.tuples);
        figures.types.into_iter().for_each(|(name, files)| {
            all.types.entry(name).or_default().extend(files);
        });
    }
    println!("{:<24} {all}", "all");
    for place in PLACES {
        println!("{:<24} {:>7} files name {}", place.what, place.count(root)?, place.word);
    }
    Ok(())
}

/// What one more of a kind has to be written into, shown by one that is there.
struct Places {
    what: &'static str,
    /// A word that every file about it has.
    word: &'static str,
    /// Its own files.
    own: &'static str,
}

const PLACES: [Places; 4] = [
    Places { what: "a provider", word: "Tcp", own: "engine/iwarp/" },
    Places { what: "a property", word: "BackwardSupport|backward_support", own: "-" },
    Places { what: "an NFS procedure", word: "Readlink|READLINK|readlink", own: "-" },
    Places {
        what: "a mode of the bench",
        word: "Distance|distance",
        own: "bench/src/modes/distance",
    },
];

impl Places {
    /// The files outside of tests that name it, but for its own ones.
    fn count(&self, root: &Path) -> Result<usize, String> {
        let arguments = ["grep", "-lwE", self.word, "--", "*.rs"];
        let is_other = |name: &&str| !is_of_tests(name) && !name.starts_with(self.own);
        Ok(git(root, &arguments)?.lines().filter(is_other).count())
    }
}

/// What git prints.
fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(root).output();
    let output = output.map_err(|why| format!("git: {why}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// By the folders of the crates. A file belongs to the lowest folder above it with a manifest.
fn of_crates(root: &Path) -> Result<BTreeMap<String, Figures>, String> {
    let mut crates: BTreeMap<String, Figures> = BTreeMap::new();
    for name in git(root, &["ls-files", "*.rs"])?.lines() {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else { continue };
        let is_crate = |folder: &&Path| root.join(folder).join("Cargo.toml").exists();
        let folder = Path::new(name).ancestors().skip(1).find(is_crate).unwrap_or(Path::new(""));
        crates.entry(folder.display().to_string()).or_default().add(name, &text)?;
    }
    Ok(crates)
}

/// Of one crate.
#[derive(Debug, Default)]
pub struct Figures {
    /// Lines of all its Rust files, tests as well.
    pub lines: usize,
    /// The files in which each type is defined that is compiled without `test`.
    pub types: BTreeMap<String, BTreeSet<String>>,
    /// Functions, outside of tests, with a tuple among their arguments, each with its file.
    pub tuples: Vec<String>,
}

impl Figures {
    /// Adds a file.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), String> {
        self.lines += text.lines().count();
        if is_of_tests(name) {
            return Ok(());
        }
        let parsed = syn::parse_file(text).map_err(|why| format!("{name}: {why}"))?;
        Reader { figures: self, file: name }.visit_file(&parsed);
        Ok(())
    }

    /// The types of more than one meaning.
    pub fn ambiguous(&self) -> impl Iterator<Item = (&String, &BTreeSet<String>)> {
        self.types.iter().filter(|(_, files)| files.len() > 1)
    }
}

impl Display for Figures {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (names, tuples) = (self.ambiguous().count(), self.tuples.len());
        write!(f, "{:>7} lines {names:>4} ambiguous types {tuples:>4} tuple arguments", self.lines)
    }
}

/// Whether a file is compiled for tests only, by its place.
fn is_of_tests(name: &str) -> bool {
    let is_folder = |part: &str| matches!(part, "tests" | "examples" | "benches" | "fuzz");
    let mut parts = Path::new(name).iter().filter_map(|part| part.to_str());
    parts.any(is_folder) || name.ends_with("/tests.rs") || name.ends_with("/testing.rs")
}

struct Reader<'a> {
    figures: &'a mut Figures,
    file: &'a str,
}

impl Reader<'_> {
    fn add_type(&mut self, name: &syn::Ident) {
        let files = self.figures.types.entry(name.to_string()).or_default();
        files.insert(self.file.to_owned());
    }

    fn add_function(&mut self, of: &syn::Signature) {
        let is_tuple = |argument: &syn::FnArg| match argument {
            syn::FnArg::Typed(typed) => has_tuple(&typed.ty),
            syn::FnArg::Receiver(_) => false,
        };
        if of.inputs.iter().any(is_tuple) {
            self.figures.tuples.push(format!("{}: {}", self.file, of.ident));
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if names::is_for_tests(names::attributes(item)) {
            return;
        }
        match item {
            syn::Item::Struct(it) => self.add_type(&it.ident),
            syn::Item::Enum(it) => self.add_type(&it.ident),
            syn::Item::Union(it) => self.add_type(&it.ident),
            syn::Item::Trait(it) => self.add_type(&it.ident),
            syn::Item::Type(it) => self.add_type(&it.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add_function(&function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !names::is_for_tests(&function.attrs) {
            self.add_function(&function.sig);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.add_function(&function.sig);
        visit::visit_trait_item_fn(self, function);
    }

    // An implementation of a trait takes what the trait says.
    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        if block.trait_.is_none() {
            visit::visit_item_impl(self, block);
        }
    }
}

/// Whether a type is a tuple of two or more, or a reference to one.
fn has_tuple(of: &syn::Type) -> bool {
    match of {
        syn::Type::Tuple(tuple) => tuple.elems.len() > 1,
        syn::Type::Reference(reference) => has_tuple(&reference.elem),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_one_name_and_tuple_arguments_are_found() {
        let mut figures = Figures::default();
        let one = "pub struct State; fn f(_: (u32, u32), _: ()) {} fn g(_: &(u8, u8)) {}";
        let two = "enum State {} #[cfg(test)] mod tests { struct Other; } struct Other;
                   impl State { fn h(self, _: (u8, u8)) {} } fn i(_: Vec<(u8, u8)>) {}";
        figures.add("a/src/one.rs", one).expect("it parses");
        figures.add("a/src/two.rs", two).expect("it parses");
        figures
            .add("a/src/tests/three.rs", "struct Other;\nfn f(_: (u8, u8)) {}")
            .expect("it does");
        assert_eq!(figures.lines, 5);
        assert_eq!(figures.ambiguous().map(|(name, _)| &**name).collect::<Vec<_>>(), ["State"]);
        assert_eq!(figures.tuples, ["a/src/one.rs: f", "a/src/one.rs: g", "a/src/two.rs: h"]);
        assert!(figures.add("a/src/four.rs", "struct").is_err());
    }
}
