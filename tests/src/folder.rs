//! Folders of tests: each has one of its own, which is gone with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// An empty folder, where this system has temporary files.
    ///
    /// # Panics
    /// If there is no room for one.
    #[expect(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> Folder {
        Folder::within(&std::env::temp_dir())
    }

    /// An empty folder in this one.
    ///
    /// # Panics
    /// If there is no room for one.
    pub fn within(parent: &Path) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rpcrdma-tests-{}-{count}", std::process::id());
        let path = parent.join(name);
        fs::create_dir_all(&path).expect("a writable directory");
        Folder(path)
    }

    /// A name in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nobody to tell.
        let _ = fs::remove_dir_all(&self.0);
    }
}
