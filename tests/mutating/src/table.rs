//! The tables of mutations that are kept, each with the test that notices it.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;

use crate::names;

/// The mutations that break the rules of docs/conformance.md.
pub const ROWS: &str = "tests/mutations/rows.toml";

/// Other mutations that once survived all tests.
pub const SURVIVORS: &str = "tests/mutations/survivors.toml";

/// Mutants that no test can notice.
pub const EQUIVALENT: &str = "tests/mutations/equivalent.toml";

/// A text of a file, another one, and the test that fails with it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// The name that rows cite.
    pub id: String,
    /// The file, from the root of the workspace.
    pub file: String,
    /// The function that has the text, if the file has it elsewhere, too.
    #[serde(rename = "in")]
    pub function: Option<String>,
    /// What is there once, apart from spaces and ends of lines.
    pub text: String,
    /// What takes its place.
    pub other: String,
    /// Whether no test, or none that a row named, noticed it once.
    #[serde(default)]
    pub survived: bool,
    /// The test that fails then, as docs/conformance.md names it.
    pub test: String,
}

impl Mutation {
    /// Where the text is in the file.
    ///
    /// # Errors
    /// If it is not there, or more than once.
    pub fn find(&self, source: &str) -> Result<Range<usize>, String> {
        let places = match &self.function {
            None => occurrences(source, &self.text),
            Some(name) => bodies(source, name)?
                .into_iter()
                .flat_map(|body| {
                    let found = occurrences(&source[body.clone()], &self.text).into_iter();
                    found.map(move |place| body.start + place.start..body.start + place.end)
                })
                .collect(),
        };
        match places.as_slice() {
            [place] => Ok(place.clone()),
            [] => Err("its text is not there".into()),
            more => Err(format!("its text is there {} times", more.len())),
        }
    }

    /// All that can be said without a compiler.
    fn check(&self, root: &Path) -> Result<(), String> {
        let read = fs::read_to_string(root.join(&self.file));
        let source = read.map_err(|error| format!("{}: {error}", self.file))?;
        self.find(&source)?;
        if squeezed(&self.text) == squeezed(&self.other) {
            return Err("the other text is the same".into());
        }
        names::find(root, &self.test).map_err(|why| format!("{}: {why}", self.test)).map(drop)
    }
}

/// A mutant that no test can notice.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equivalent {
    /// The file, from the root of the workspace.
    pub file: String,
    /// As cargo-mutants describes it.
    pub change: String,
    /// The line where it begins, without the spaces around it.
    pub code: String,
    /// Why nothing differs.
    pub reason: String,
}

impl Equivalent {
    /// All that can be said without cargo-mutants.
    ///
    /// # Errors
    /// If it has no reason, or the file has no such line.
    pub fn check(&self, root: &Path) -> Result<(), String> {
        let Equivalent { file, change, code, reason } = self;
        if reason.trim().is_empty() {
            return Err(format!("{file}: {change}: no reason"));
        }
        let read = fs::read_to_string(root.join(file));
        let source = read.map_err(|error| format!("{file}: {error}"))?;
        let is_there = source.lines().any(|line| line.trim() == code);
        is_there.then_some(()).ok_or(format!("{file}: {change}: no line is {code}"))
    }
}

#[derive(Deserialize)]
struct Table {
    #[serde(default)]
    mutation: Vec<Mutation>,
    #[serde(default)]
    equivalent: Vec<Equivalent>,
}

/// The mutations of a table, whose path is from the root of the workspace.
///
/// # Errors
/// If it cannot be read.
pub fn read(root: &Path, path: &str) -> Result<Vec<Mutation>, String> {
    Ok(table(root, path)?.mutation)
}

/// The mutants that no test can notice.
///
/// # Errors
/// If their table cannot be read.
pub fn equivalent(root: &Path) -> Result<Vec<Equivalent>, String> {
    Ok(table(root, EQUIVALENT)?.equivalent)
}

fn table(root: &Path, path: &str) -> Result<Table, String> {
    let text = fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
    toml::from_str(&text).map_err(|error| format!("{path}: {error}"))
}

/// The mutations of the table of survivors, and those of the rules that survived, too.
///
/// # Errors
/// If a table cannot be read.
pub fn survivors(root: &Path) -> Result<Vec<Mutation>, String> {
    let rows = read(root, ROWS)?.into_iter().filter(|mutation| mutation.survived);
    Ok(read(root, SURVIVORS)?.into_iter().chain(rows).collect())
}

/// Everything that is wrong with these, without compiling them.
#[must_use]
pub fn faults(root: &Path, mutations: &[Mutation]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for mutation in mutations {
        if !seen.insert(&mutation.id) {
            faults.push(format!("{}: the id is there twice", mutation.id));
        }
        if let Err(why) = mutation.check(root) {
            faults.push(format!("{}: {why}", mutation.id));
        }
    }
    faults
}

fn squeezed(text: &str) -> String {
    text.chars().filter(|char| !char.is_whitespace()).collect()
}

/// Where a text is in a source, whatever the spaces and ends of lines in either.
fn occurrences(source: &str, text: &str) -> Vec<Range<usize>> {
    let letters: Vec<(usize, char)> =
        source.char_indices().filter(|(_, char)| !char.is_whitespace()).collect();
    let wanted: Vec<char> = squeezed(text).chars().collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let is_here =
        |window: &&[(usize, char)]| window.iter().map(|(_, letter)| letter).eq(wanted.iter());
    let places = letters.windows(wanted.len()).filter(is_here);
    let range = |window: &[(usize, char)]| {
        let (first, (last, letter)) = (window.first()?.0, window.last()?);
        Some(first..last + letter.len_utf8())
    };
    places.filter_map(range).collect()
}

/// The functions of that name, from their heads to their ends.
fn bodies(source: &str, name: &str) -> Result<Vec<Range<usize>>, String> {
    struct Functions<'a> {
        name: &'a str,
        found: Vec<Range<usize>>,
    }
    impl Functions<'_> {
        fn add(&mut self, head: &syn::Signature, body: &syn::Block) {
            if head.ident == self.name {
                let start = head.fn_token.span.byte_range().start;
                self.found.push(start..body.brace_token.span.close().byte_range().end);
            }
        }
    }
    impl<'ast> syn::visit::Visit<'ast> for Functions<'_> {
        fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
            self.add(&item.sig, &item.block);
            syn::visit::visit_item_fn(self, item);
        }

        fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
            self.add(&item.sig, &item.block);
            syn::visit::visit_impl_item_fn(self, item);
        }

        fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
            if let Some(body) = &item.default {
                self.add(&item.sig, body);
            }
            syn::visit::visit_trait_item_fn(self, item);
        }
    }
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut functions = Functions { name, found: Vec::new() };
    syn::visit::Visit::visit_file(&mut functions, &file);
    match functions.found.is_empty() {
        true => Err(format!("no function {name}")),
        false => Ok(functions.found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutation(function: Option<&str>, text: &str) -> Mutation {
        Mutation {
            id: "id".into(),
            file: "file".into(),
            function: function.map(str::to_owned),
            text: text.into(),
            other: "other".into(),
            survived: false,
            test: "test".into(),
        }
    }

    #[test]
    fn a_text_is_found_once_and_within_its_function() {
        let source = "fn a() { f(1,\n    2) }\nfn b() { f(1, 2); g(ä) }";
        let find = |function, text| mutation(function, text).find(source);
        assert_eq!(find(None, "g( ä )").map(|place| &source[place]), Ok("g(ä)"));
        assert_eq!(find(Some("a"), "f(1, 2)").map(|place| &source[place]), Ok("f(1,\n    2)"));
        assert_eq!(find(None, "f(1, 2)"), Err("its text is there 2 times".into()));
        assert_eq!(find(Some("a"), "g(ä)"), Err("its text is not there".into()));
        assert_eq!(find(Some("c"), "g(ä)"), Err("no function c".into()));
        assert_eq!(find(None, " "), Err("its text is not there".into()));
    }
}
