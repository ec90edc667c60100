//! Temporary folders for tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed when the value is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// An empty folder in the system's folder for temporary files.
    ///
    /// # Panics
    /// If it cannot be created.
    #[expect(clippy::new_without_default, reason = "each one is different")]
    pub fn new() -> Folder {
        Folder::within(&std::env::temp_dir())
    }

    /// An empty folder inside this one.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn within(parent: &Path) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rpcrdma-tests-{}-{count}", std::process::id());
        let path = parent.join(name);
        fs::create_dir_all(&path).expect("a writable directory");
        Folder(path)
    }

    /// The path of a name in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = fs::remove_dir_all(&self.0);
    }
}
