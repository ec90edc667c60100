//! The files of the repository, for tests that read sources and pages.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The names, from the root, of all files that git tracks or would add.
///
/// # Panics
/// If git does not list them.
pub fn files() -> Vec<String> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "-z", "-co", "--exclude-standard"]);
    let listed = git.output().expect("git lists the files");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("names in UTF-8");
    let names = names.split_terminator('\0').filter(|name| root().join(name).is_file());
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert!(names.len() > 500, "git lists {} files", names.len());
    names
}
