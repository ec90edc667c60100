//! A copy of the sources, kept between runs, so that only what differs is compiled again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the workspace with some files changed.
#[derive(Debug)]
pub struct Copy {
    /// The workspace.
    pub root: PathBuf,
    /// The copy.
    pub folder: PathBuf,
}

impl Copy {
    /// Makes the copy equal to the workspace, apart from these files.
    ///
    /// # Errors
    /// If git does not list the files, or one cannot be read or written.
    pub fn update(&self, changed: &BTreeMap<String, String>) -> Result<(), String> {
        let mut kept = BTreeSet::new();
        for name in self.names()? {
            let from = self.root.join(&name);
            let to = self.folder.join(&name);
            if !from.is_file() {
                continue;
            }
            let bytes = match changed.get(&name) {
                Some(text) => text.clone().into_bytes(),
                None => fs::read(&from).map_err(|error| format!("{name}: {error}"))?,
            };
            // Switches read the environment. The length stays.
            let bytes = match name.ends_with("/lib.rs") {
                true => {
                    String::from_utf8_lossy(&bytes).replace("\n#![no_std]", "\n//[no_std]").into()
                }
                false => bytes,
            };
            if fs::read(&to).ok().as_ref() != Some(&bytes) {
                write(&from, &to, &bytes).map_err(|error| format!("{}: {error}", to.display()))?;
            }
            kept.insert(to);
        }
        remove_others(&self.folder, &kept).map_err(|error| format!("the copy: {error}"))
    }

    /// A sum of all sources but those of this program.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn sum(&self) -> Result<u64, String> {
        let mut sum = DefaultHasher::new();
        let names = self.names()?;
        let is_source =
            |name: &&String| name.ends_with(".rs") && !name.starts_with("tests/mutating/");
        for name in names.iter().filter(is_source) {
            let read = fs::read(self.root.join(name));
            (name, read.map_err(|error| format!("{name}: {error}"))?).hash(&mut sum);
        }
        Ok(sum.finish())
    }

    /// The files that git knows or would add.
    ///
    /// # Errors
    /// If it does not run.
    fn names(&self) -> Result<Vec<String>, String> {
        let mut git = Command::new("git");
        git.current_dir(&self.root).args(["ls-files", "-z", "-co", "--exclude-standard"]);
        let output = git.output().map_err(|error| format!("git: {error}"))?;
        if !output.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let names = String::from_utf8_lossy(&output.stdout);
        Ok(names.split_terminator('\0').map(str::to_owned).collect())
    }
}

/// Writes a file, with the permissions of another.
fn write(from: &Path, to: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::write(to, bytes)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            // Folders are few, and what git does not list may be of a test.
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
