//! The replay of a corpus, in every test run.

use std::fs::File;
use std::io::Read;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::Path;

use tar::Archive;

/// Checks every saved input of `target`. `krate` is the folder of the crate that asks, two folders
/// or fewer below the root of the project.
///
/// # Panics
/// If an input breaks a property, or there are fewer than `least`.
pub fn replay(krate: &str, target: &str, least: usize, check: fn(&[u8])) {
    let root = Path::new(krate).ancestors().find(|folder| folder.join("Cargo.lock").exists());
    let path = root.expect("the project").join("tests/fuzz/corpus").join(target);
    let path = path.with_extension("tar");
    let file = File::open(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let mut archive = Archive::new(file);
    let mut count = 0;
    for entry in archive.entries().expect("the archive can be read") {
        let mut entry = entry.expect("the archive is whole");
        let mut input = Vec::new();
        entry.read_to_end(&mut input).expect("an input can be read");
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        assert!(is_quiet(check, &input), "the input {name} in {} does harm", path.display());
        count += 1;
    }
    assert!(count >= least, "only {count} inputs in {}", path.display());
}

fn is_quiet(check: impl Fn(&[u8]) + RefUnwindSafe, input: &[u8]) -> bool {
    catch_unwind(|| check(input)).is_ok()
}
