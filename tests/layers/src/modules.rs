//! The modules of a crate, and which file imports which.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use syn::Item;
use syn::visit::Visit;

use crate::names::{self, Name, Names};

/// A file uses what another defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    pub from: String,
    pub line: usize,
    pub to: String,
    /// As it is written.
    pub name: String,
}

impl Display for Import {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Import { from, line, to, name } = self;
        write!(f, "{from}:{line} imports {name} of {to}")
    }
}

/// The modules that are compiled without `test`.
#[derive(Debug, Default)]
pub struct Crate {
    files: Vec<String>,
    /// The first is the root.
    modules: Vec<Module>,
    /// Macros that `#[macro_export]` puts into the root, with their files.
    macros: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Module {
    file: usize,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// Names of what is defined here.
    items: BTreeSet<String>,
    names: Names,
}

/// Where a name is defined.
#[derive(Clone, Copy, Debug)]
enum Place {
    Module(usize),
    File(usize),
    OtherCrate,
}

/// How files are read: nothing for one that does not exist.
pub type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

impl Crate {
    /// The crate whose root is this file, and all files that its modules are in.
    pub fn read(root: &Path, read: Read<'_>) -> Result<Crate, String> {
        let mut this = Crate::default();
        let text = read(root).ok_or_else(|| format!("{} cannot be read", root.display()))?;
        let module = this.add_module(0, root);
        this.add_file(module, &text, root, root.parent().unwrap_or(root), read)?;
        Ok(this)
    }

    /// The files of all modules.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// What the files import of each other, each in the order of its lines.
    pub fn imports(&self) -> Vec<Import> {
        let mut imports = Vec::new();
        for (index, module) in self.modules.iter().enumerate() {
            let bindings = module.names.bindings.iter();
            let bound = bindings.map(|binding| (&binding.name, binding.local.is_none()));
            let used = module.names.paths.iter().filter(|name| !self.is_by_binding(index, name));
            for (name, is_glob) in bound.chain(used.map(|name| (name, false))) {
                let file = match self.resolve(index, &name.segments, &mut BTreeSet::new()) {
                    Some(Place::File(file)) => file,
                    // A module's name alone is no import of its file; what is used through it is.
                    Some(Place::Module(other)) if is_glob => self.modules[other].file,
                    _ => continue,
                };
                if file != module.file {
                    imports.push(self.import(module.file, name, file));
                }
            }
        }
        imports.sort_by(|one, other| {
            (&one.from, one.line, &one.to).cmp(&(&other.from, other.line, &other.to))
        });
        imports.dedup();
        imports
    }

    /// Whether the `use` of the first name is the import: what it binds is no module.
    fn is_by_binding(&self, module: usize, name: &Name) -> bool {
        let first = &name.segments[..1];
        self.modules[module].names.binding(&first[0]).is_some()
            && !matches!(self.resolve(module, first, &mut BTreeSet::new()), Some(Place::Module(_)))
    }

    fn import(&self, from: usize, name: &Name, to: usize) -> Import {
        let files = &self.files;
        Import {
            from: files[from].clone(),
            line: name.line,
            to: files[to].clone(),
            name: name.segments.join("::"),
        }
    }

    fn add_module(&mut self, parent: usize, path: &Path) -> usize {
        let name = path.display().to_string();
        let file = self.files.iter().position(|file| *file == name).unwrap_or(self.files.len());
        if file == self.files.len() {
            self.files.push(name);
        }
        let (children, items) = (BTreeMap::new(), BTreeSet::new());
        self.modules.push(Module { file, parent, children, items, names: Names::default() });
        self.modules.len() - 1
    }

    /// `folder` is where the files of child modules are.
    fn add_file(
        &mut self,
        module: usize,
        text: &str,
        path: &Path,
        folder: &Path,
        read: Read<'_>,
    ) -> Result<(), String> {
        let parsed = syn::parse_file(text).map_err(|why| format!("{}: {why}", path.display()))?;
        self.add_items(module, &parsed.items, path, folder, read)
    }

    fn add_items(
        &mut self,
        module: usize,
        items: &[Item],
        path: &Path,
        folder: &Path,
        read: Read<'_>,
    ) -> Result<(), String> {
        for item in items.iter().filter(|item| !names::is_for_tests(names::attributes(item))) {
            let Item::Mod(child) = item else {
                self.add_item(module, item);
                continue;
            };
            let name = child.ident.to_string();
            let below = folder.join(&name);
            let (file, text) = match &child.content {
                Some(_) => (path.to_owned(), None),
                None => {
                    let (file, text) = find_file(&below, read)
                        .ok_or_else(|| format!("{}: no file for `mod {name}`", path.display()))?;
                    (file, Some(text))
                }
            };
            let added = self.add_module(module, &file);
            self.modules[module].children.insert(name, added);
            match (&child.content, text) {
                (Some((_, items)), _) => self.add_items(added, items, path, &below, read)?,
                (None, text) => {
                    self.add_file(added, &text.unwrap_or_default(), &file, &below, read)?
                }
            }
        }
        Ok(())
    }

    fn add_item(&mut self, module: usize, item: &Item) {
        let file = self.modules[module].file;
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(item) => match &item.ident {
                Some(name) => name,
                None => return self.modules[module].names.visit_item_macro(item),
            },
            other => return self.modules[module].names.visit_item(other),
        };
        if names::attributes(item).iter().any(|attribute| attribute.path().is_ident("macro_export"))
        {
            self.macros.insert(name.to_string(), file);
        }
        self.modules[module].items.insert(name.to_string());
        self.modules[module].names.visit_item(item);
    }

    /// Nothing if the first name is neither known here nor of another crate that is bound here.
    fn resolve<'a>(
        &'a self,
        from: usize,
        segments: &'a [String],
        seen: &mut BTreeSet<(usize, &'a str)>,
    ) -> Option<Place> {
        let (first, rest) = segments.split_first()?;
        let mut place = match self.step(from, first) {
            Some(place) => place,
            None => self.find(from, first, seen)?,
        };
        for name in rest {
            let Place::Module(module) = place else { break };
            let found = self.step(module, name).or_else(|| self.find(module, name, seen));
            // Not found: a macro makes it there.
            place = found.unwrap_or(Place::File(self.modules[module].file));
        }
        Some(place)
    }

    /// The words that name a module by its place.
    fn step(&self, from: usize, word: &str) -> Option<Place> {
        match word {
            "crate" => Some(Place::Module(0)),
            "self" => Some(Place::Module(from)),
            "super" => Some(Place::Module(self.modules[from].parent)),
            _ => None,
        }
    }

    /// What a name is in a module. What a module re-exports is where it is defined.
    fn find<'a>(
        &'a self,
        module: usize,
        name: &'a str,
        seen: &mut BTreeSet<(usize, &'a str)>,
    ) -> Option<Place> {
        if !seen.insert((module, name)) {
            return None;
        }
        let there = &self.modules[module];
        if let Some(child) = there.children.get(name) {
            return Some(Place::Module(*child));
        }
        if there.items.contains(name) {
            return Some(Place::File(there.file));
        }
        if let Some(binding) = there.names.binding(name) {
            let place = self.resolve(module, &binding.name.segments, seen);
            return Some(place.unwrap_or(Place::OtherCrate));
        }
        for glob in there.names.bindings.iter().filter(|binding| binding.local.is_none()) {
            if let Some(Place::Module(other)) = self.resolve(module, &glob.name.segments, seen)
                && let Some(place) = self.find(other, name, seen)
            {
                return Some(place);
            }
        }
        self.macros.get(name).filter(|_| module == 0).map(|file| Place::File(*file))
    }
}

/// The file of a module, in one of the two places.
fn find_file(below: &Path, read: Read<'_>) -> Option<(PathBuf, String)> {
    let places = [below.with_extension("rs"), below.join("mod.rs")];
    places.into_iter().find_map(|place| read(&place).map(|text| (place, text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of a crate of these files: from, to, name.
    fn imports(files: &[(&str, &str)]) -> Vec<(String, String, String)> {
        let read = |path: &Path| {
            let text = files.iter().find(|(name, _)| path == Path::new(name))?.1;
            Some(text.to_owned())
        };
        let krate = Crate::read(Path::new("lib.rs"), &read).expect("it can be read");
        let plain = |import: Import| (import.from, import.to, import.name);
        krate.imports().into_iter().map(plain).collect()
    }

    fn one(from: &str, to: &str, name: &str) -> Vec<(String, String, String)> {
        vec![(from.to_owned(), to.to_owned(), name.to_owned())]
    }

    #[test]
    fn a_re_exported_name_is_where_it_is_defined() {
        let found = imports(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod inner; pub mod same { pub use super::inner::*; }"),
            ("a/inner.rs", "pub struct Thing;"),
            ("b.rs", "use crate::a::same::Thing;"),
        ]);
        let expected = ("a/mod.rs", "a/inner.rs", "super::inner");
        assert_eq!(found[0], one(expected.0, expected.1, expected.2)[0]);
        assert_eq!(found[1..], one("b.rs", "a/inner.rs", "crate::a::same::Thing"));
    }

    #[test]
    fn paths_in_code_and_in_macros_and_in_attributes_are_imports() {
        for code in [
            "fn f() { crate::a::g(); }",
            "fn f() { assert!(crate::a::g()); }",
            "fn f(_: Vec<super::a::T>) {}",
            "use crate::a; fn f() { a::g(); }",
            "use super::a as other; fn f() { vec![other::g()]; }",
            "#[serde(with = \"crate::a::g\")] struct S;",
            "fn f() { use crate::a::{self, g}; }",
            "use crate::a::made_by_a_macro;",
            "use super::a::{*};",
            "fn f() { crate::exported!(); }",
        ] {
            let a =
                "pub struct T; pub fn g() {} #[macro_export] macro_rules! exported { () => {} }";
            let found = imports(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", code)]);
            assert_eq!(found.len(), 1, "{code}: {found:?}");
            assert_eq!((&*found[0].0, &*found[0].1), ("b.rs", "a.rs"), "{code}");
        }
    }

    #[test]
    fn tests_and_other_crates_and_names_of_modules_are_not_imported() {
        for code in [
            "#[cfg(test)] mod tests { use crate::a::T; }",
            "#[cfg(all(test, not(loom)))] use crate::a::T;",
            "#[cfg(doc)] use crate::a::T;",
            "struct S { #[cfg(test)] t: crate::a::T }",
            "use std::fmt::{self, Debug}; fn f() { fmt::format(); }",
            "use crate::elsewhere::Provider;",
            "use crate::a;",
            "pub(in crate::a) fn f() {}",
            "mod inner { use super::S; } struct S; enum E { A } use self::E::A;",
        ] {
            let root = "mod a; mod b; pub use other_crate as elsewhere;";
            let found = imports(&[("lib.rs", root), ("a.rs", "pub struct T;"), ("b.rs", code)]);
            assert_eq!(found, [], "{code}");
        }
    }

    #[test]
    fn code_with_and_without_cfg_test_counts() {
        for condition in ["not(test)", "any(test, unix)", "unix", "not(all(test, unix))"] {
            let code = format!("#[cfg({condition})] use crate::a::T;");
            let found =
                imports(&[("lib.rs", "mod a; mod b;"), ("a.rs", "pub struct T;"), ("b.rs", &code)]);
            assert_eq!(found, one("b.rs", "a.rs", "crate::a::T"), "{condition}");
        }
    }

    #[test]
    fn a_module_without_a_file_is_an_error() {
        let read = |path: &Path| (path == Path::new("lib.rs")).then(|| "mod a;".to_owned());
        let error = Crate::read(Path::new("lib.rs"), &read).expect_err("there is no a.rs");
        assert_eq!(error, "lib.rs: no file for `mod a`");
    }
}
