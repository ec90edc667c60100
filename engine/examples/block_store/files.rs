//! The two files: the one that is sent, and the one that the server keeps.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::checksum::{Checksum, Summing};
use crate::store::{self, Temporary};

/// The file that is written to the server.
pub struct Input {
    /// Open for reading.
    pub file: File,
    /// Its name.
    pub path: PathBuf,
    /// Its bytes.
    pub len: u64,
    _temporary: Option<Temporary>,
}

impl Input {
    /// The file that was named, or one that is made; then `out` is told.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn open(path: Option<&Path>, out: &mut impl Write) -> Result<Input, Box<dyn Error>> {
        let Some(path) = path else { return Input::make(out) };
        let failed = |error| format!("--file {}: {error}", path.display());
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(format!("--file {}: not a regular file", path.display()).into());
        }
        Ok(Input { file, path: path.to_owned(), len: metadata.len(), _temporary: None })
    }

    /// Fills a temporary file with noise: a generator of Marsaglia's, from a fixed seed.
    fn make(out: &mut impl Write) -> Result<Input, Box<dyn Error>> {
        let path = std::env::temp_dir().join(format!("block_store-{}.noise", std::process::id()));
        writeln!(out, "no --file: making {} of {} MiB of noise", path.display(), NOISE_LEN >> 20)?;
        let failed = |error| format!("{}: {error}; name a file with --file", path.display());
        let made = File::create_new(&path).map_err(failed)?;
        let temporary = Temporary(path.clone());
        let mut writer = BufWriter::with_capacity(1 << 20, made);
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..NOISE_LEN / 8 {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            writer.write_all(&word.to_le_bytes()).map_err(failed)?;
        }
        writer.flush().map_err(failed)?;
        let file = File::open(&path).map_err(failed)?;
        Ok(Input { file, path, len: NOISE_LEN, _temporary: Some(temporary) })
    }
}

/// The file that the server keeps.
pub struct Target {
    /// Its name.
    pub path: PathBuf,
    /// Whether it is written past the page cache.
    pub direct: bool,
    /// Why not, if that was wanted.
    refusal: Option<std::io::Error>,
    _temporary: Option<Temporary>,
}

impl Target {
    /// A new file: where `wanted` says, or next to `input`. Written past the page cache if that is
    /// wanted and can be had.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn make(
        wanted: Option<&Path>,
        input: &Path,
        direct: bool,
    ) -> Result<Target, Box<dyn Error>> {
        let (directory, file) = match wanted {
            Some(path) if path.is_dir() => (path, None),
            Some(path) => (path, Some(path)),
            None => (input.parent().unwrap_or(Path::new("")), None),
        };
        let path = file.map_or_else(
            || directory.join(format!("block_store-{}.data", std::process::id())),
            Path::to_owned,
        );
        let probed = store::create(&path).map_err(|error| {
            format!("the store {}: {error}; name another place with --store", path.display())
        })?;
        let temporary = file.is_none().then(|| Temporary(path.clone()));
        let direct = direct && probed.is_ok();
        Ok(Target { path, direct, refusal: probed.err(), _temporary: temporary })
    }

    /// How it is written, and why so.
    pub fn manner(&self) -> String {
        match &self.refusal {
            Some(why) => format!("through the page cache: O_DIRECT is not to be had ({why})"),
            None if self.direct => "past the page cache (O_DIRECT)".to_owned(),
            None => "through the page cache, as --direct off says".to_owned(),
        }
    }

    /// The checksum of the file as any other program sees it.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn checksum(&self) -> Result<Checksum, Box<dyn Error>> {
        let failed = |error| format!("the store {}: {error}", self.path.display());
        let mut file = File::open(&self.path).map_err(failed)?;
        let mut bytes = vec![0; 1 << 20];
        let mut summing = Summing::at(0);
        loop {
            match file.read(&mut bytes).map_err(failed)? {
                0 => return Ok(summing.finish()),
                read => summing.feed(&bytes[..read]),
            }
        }
    }
}

/// Bytes of the file that is made if none is named.
const NOISE_LEN: u64 = 256 << 20;
