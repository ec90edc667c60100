//! What crates.io asks of a crate, and docs/releasing.md of ours: each is published whole or not at all.

use std::fs;
use std::path::PathBuf;

use rpcrdma_tests::tracked::root;

/// Those of <https://crates.io/category_slugs> that crates of ours have.
const CATEGORIES: [&str; 16] = [
    "asynchronous",
    "command-line-utilities",
    "concurrency",
    "config",
    "development-tools",
    "development-tools::ffi",
    "development-tools::profiling",
    "encoding",
    "filesystem",
    "hardware-support",
    "memory-management",
    "network-programming",
    "no-std",
    "os::linux-apis",
    "simulation",
    "visualization",
];

/// A member of the workspace.
struct Member {
    folder: PathBuf,
    /// Its `[package]`, line by line.
    package: Vec<String>,
}

impl Member {
    fn read(folder: &str) -> Member {
        let folder = root().join(folder);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let lines = manifest.lines().skip_while(|line| *line != "[package]").skip(1);
        let package = lines.take_while(|line| !line.starts_with('[')).map(str::to_owned).collect();
        Member { folder, package }
    }

    /// What stands behind `key = `, without a comment.
    fn value(&self, key: &str) -> Option<&str> {
        let line = self.package.iter().find_map(|line| line.strip_prefix(&format!("{key} = ")))?;
        Some(line.split(" #").next().unwrap_or(line))
    }

    fn name(&self) -> &str {
        self.value("name").expect("a name").trim_matches('"')
    }

    fn list(&self, key: &str) -> Vec<&str> {
        let line = self.value(key).unwrap_or_else(|| panic!("{} has no {key}", self.name()));
        line.split('"').skip(1).step_by(2).collect()
    }

    fn is_published(&self) -> bool {
        self.value("publish") != Some("false")
    }
}

fn manifest() -> String {
    fs::read_to_string(root().join("Cargo.toml")).expect("the root manifest")
}

fn members() -> Vec<Member> {
    let manifest = manifest();
    let line = manifest.lines().find_map(|line| line.strip_prefix("members = ")).expect("a line");
    let members: Vec<Member> = line.split('"').skip(1).step_by(2).map(Member::read).collect();
    assert!(members.len() > 10, "all members are found");
    members
}

#[test]
fn a_published_crate_says_what_it_is_and_has_its_page_and_licences() {
    let members = members();
    for member in members.iter().filter(|member| member.is_published()) {
        let name = member.name();
        assert!(!member.list("description")[0].is_empty(), "{name}");
        let keywords = member.list("keywords");
        assert!((1..=5).contains(&keywords.len()), "{name}: {keywords:?}");
        let is_keyword = |word: &&str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || "_-+".contains(c);
            (1..=20).contains(&word.len()) && word.chars().all(is_part)
        };
        assert!(keywords.iter().all(is_keyword), "{name}: {keywords:?}");
        let categories = member.list("categories");
        assert!((1..=5).contains(&categories.len()), "{name}: {categories:?}");
        assert!(categories.iter().all(|it| CATEGORIES.contains(it)), "{name}: {categories:?}");
        for key in ["version", "edition", "rust-version", "license"] {
            let is_shared = member.value(&format!("{key}.workspace")) == Some("true");
            assert!(is_shared, "{name} has a {key} of its own");
        }
        let page = fs::read_to_string(member.folder.join("README.md")).expect(name);
        assert!(page.starts_with(&format!("# {name}\n")), "README.md of {name}");
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let [own, ours] = [&member.folder, &root()].map(|at| fs::read(at.join(licence)));
            assert_eq!(own.expect(name), ours.expect("the project's"), "{licence} of {name}");
        }
    }
}

#[test]
fn the_page_about_releases_says_of_each_crate_whether_it_is_published() {
    let page = fs::read_to_string(root().join("docs/releasing.md")).expect("docs/releasing.md");
    let row = page.lines().find(|line| line.starts_with("| `rpcrdma")).expect("the row");
    let (published, other) = row.trim_matches('|').split_once('|').expect("two columns");
    for member in members() {
        let (column, not) =
            if member.is_published() { (published, other) } else { (other, published) };
        let name = format!("`{}`", member.name());
        assert!(column.contains(&name) && !not.contains(&name), "{name} in docs/releasing.md");
    }
}

#[test]
fn published_crates_ask_for_each_other_of_the_same_version() {
    let manifest = manifest();
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = ")).expect("one");
    for member in members() {
        let name = member.name();
        let start = format!("{name} = {{ ");
        let Some(line) = manifest.lines().find_map(|line| line.strip_prefix(&start)) else {
            continue; // Nothing depends on it.
        };
        let asked = format!("version = \"={}\", ", version.trim_matches('"'));
        // Cargo leaves a dependency of tests without a version out of a package.
        assert_eq!(line.starts_with(&asked), member.is_published(), "{name}: {line}");
        assert!(member.is_published() || !line.contains("version"), "{name}: {line}");
    }
}
