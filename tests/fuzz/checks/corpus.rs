//! The replay of a corpus, in every test run.

use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::Path;

/// Checks every saved input of `target`. `krate` is the folder of the crate that asks, two folders
/// or fewer below the root of the project.
///
/// # Panics
/// If an input breaks a property, or there are fewer than `least`.
pub fn replay(krate: &str, target: &str, least: usize, check: fn(&[u8])) {
    let root = Path::new(krate).ancestors().find(|folder| folder.join("Cargo.lock").exists());
    let folder = root.expect("the project").join("tests/fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("the corpus can be read").path();
        let input = std::fs::read(&path).expect("an input can be read");
        assert!(is_quiet(check, &input), "the input in {} does harm", path.display());
        count += 1;
    }
    assert!(count >= least, "only {count} inputs in {}", folder.display());
}

fn is_quiet(check: impl Fn(&[u8]) + RefUnwindSafe, input: &[u8]) -> bool {
    catch_unwind(|| check(input)).is_ok()
}
