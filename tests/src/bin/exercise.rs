//! Writes, maps, renames and reads files in a loop while a test disturbs their server, and checks
//! them.
#![expect(unsafe_code, reason = "a mapping of a file is made by an unsafe function")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use memmap2::{MmapMut, MmapOptions};
use rpcrdma_tests::script::Random;

const USAGE: &str = "exercise DIRECTORY --until FILE --expected DIRECTORY --progress FILE [--seed N] [--killed yes]

  --until FILE          goes on until the file exists
  --expected DIRECTORY  what has to be in the other one afterwards
  --progress FILE       how many rounds are done
  --seed N              what is done (1)
  --killed yes          the server may forget what it has answered: a rename or removal that was done
                        and is not found when it comes again counts as done

Ends with 0, or with 1 after saying which call has failed or what was read that was not written.";

/// The command line.
struct Wanted {
    directory: PathBuf,
    until: PathBuf,
    expected: PathBuf,
    progress: PathBuf,
    seed: u64,
    killed: bool,
}

/// A file, and its expected content.
struct Worked {
    path: PathBuf,
    file: File,
    content: Vec<u8>,
}

/// A failed system call, or wrong content.
struct Failed(String);

type Outcome<T = ()> = Result<T, Failed>;

fn main() -> ExitCode {
    let Some(wanted) = wanted() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&wanted) {
        Ok(rounds) => {
            println!("{}: {rounds} rounds", wanted.directory.display());
            ExitCode::SUCCESS
        }
        Err(Failed(why)) => {
            eprintln!("{}: {why}", wanted.directory.display());
            ExitCode::FAILURE
        }
    }
}

fn run(wanted: &Wanted) -> Outcome<u64> {
    said("mkdir", fs::create_dir(&wanted.directory))?;
    let mut random = Random(wanted.seed);
    let mut worked = Worked::new(wanted.directory.join("file"))?;
    let mut rounds = 0;
    let mut slowest = Duration::ZERO;
    while !wanted.until.exists() {
        let began = Instant::now();
        worked.round(&mut random, wanted)?;
        slowest = slowest.max(began.elapsed());
        rounds += 1;
        said("progress", fs::write(&wanted.progress, format!("{rounds}\n")))?;
    }
    said("fsync at the end", worked.file.sync_all())?;
    let name = worked.path.file_name().unwrap_or_default();
    said("expected", fs::create_dir_all(&wanted.expected))?;
    said("expected", fs::write(wanted.expected.join(name), &worked.content))?;
    println!("the slowest round took {} ms", slowest.as_millis());
    Ok(rounds)
}

impl Worked {
    fn new(path: PathBuf) -> Outcome<Worked> {
        let how = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        Ok(Worked { file: said("open", how)?, path, content: Vec::new() })
    }

    /// Uses each kind of system call at least once.
    fn round(&mut self, random: &mut Random, wanted: &Wanted) -> Outcome {
        for _ in 0..1 + random.below(4) {
            self.write(random)?;
        }
        if random.below(2) == 0 {
            said("fsync", self.file.sync_all())?;
        }
        self.cut(random)?;
        self.map(random)?;
        self.rename(random, wanted)?;
        self.compare()?;
        self.copy(wanted)
    }

    fn write(&mut self, random: &mut Random) -> Outcome {
        let magnitude = random.choose(&[64, 5_000, 40_000, 150_000]);
        let (at, len) = (random.below(LEN_MAX - magnitude), 1 + random.below(magnitude));
        let bytes = noise(random, len);
        said("write", self.file.write_all_at(&bytes, at.into()))?;
        let (at, end) = (at as usize, (at + len) as usize);
        self.content.resize(self.content.len().max(end), 0);
        self.content[at..end].copy_from_slice(&bytes);
        Ok(())
    }

    fn cut(&mut self, random: &mut Random) -> Outcome {
        let len = 1 + random.below(LEN_MAX);
        said("ftruncate", self.file.set_len(len.into()))?;
        self.content.resize(len as usize, 0);
        Ok(())
    }

    fn map(&mut self, random: &mut Random) -> Outcome {
        let mut map = said("mmap", mapped(&self.file, self.content.len()))?;
        let at = random.below(self.content.len() as u32) as usize;
        let len = (1 + random.below(20_000) as usize).min(self.content.len() - at);
        let bytes = noise(random, len as u32);
        map[at..at + len].copy_from_slice(&bytes);
        said("msync", map.flush())?;
        self.content[at..at + len].copy_from_slice(&bytes);
        Ok(())
    }

    /// To a new name, or over an existing file.
    fn rename(&mut self, random: &mut Random, wanted: &Wanted) -> Outcome {
        let to = self.path.with_file_name(format!("file-{}", random.below(1 << 30)));
        if random.below(2) == 0 {
            said("write of what is replaced", fs::write(&to, b"replaced"))?;
        }
        let inode = said("fstat", self.file.metadata())?.ino();
        let is_done = || fs::metadata(&to).is_ok_and(|there| there.ino() == inode);
        said("rename", repeated(fs::rename(&self.path, &to), wanted, is_done))?;
        self.path = to;
        Ok(())
    }

    /// By another descriptor.
    fn compare(&self) -> Outcome {
        same(&said("read", fs::read(&self.path))?, &self.content)
    }

    fn copy(&self, wanted: &Wanted) -> Outcome {
        let copy = self.path.with_file_name("copy");
        said("copy", fs::copy(&self.path, &copy))?;
        same(&said("read of the copy", fs::read(&copy))?, &self.content)?;
        let is_done =
            || fs::metadata(&copy).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        said("unlink", repeated(fs::remove_file(&copy), wanted, is_done))
    }
}

/// The result of a system call, unless the server executed it twice.
fn repeated(
    outcome: io::Result<()>,
    wanted: &Wanted,
    is_done: impl Fn() -> bool,
) -> io::Result<()> {
    match outcome {
        Err(error) if wanted.killed && error.kind() == ErrorKind::NotFound && is_done() => {
            println!("done, and forgotten when it was made again");
            Ok(())
        }
        outcome => outcome,
    }
}

fn mapped(file: &File, len: usize) -> io::Result<MmapMut> {
    // SAFETY: only this thread changes the file, and it cuts it when no mapping is left.
    unsafe { MmapOptions::new().len(len).map_mut(file) }
}

/// Bytes without two equal adjacent pieces at any power of two.
fn noise(random: &mut Random, len: u32) -> Vec<u8> {
    let piece: Vec<u8> = (0..61).map(|_| random.below(256) as u8).collect();
    let mut bytes = piece.repeat(len as usize / piece.len() + 1);
    bytes.truncate(len as usize);
    bytes
}

fn same(is: &[u8], expected: &[u8]) -> Outcome {
    if is == expected {
        return Ok(());
    }
    let at = is.iter().zip(expected).position(|(is, expected)| is != expected);
    Err(Failed(format!(
        "read {} bytes where {} were written; the first that differs is {at:?}",
        is.len(),
        expected.len()
    )))
}

fn said<T>(what: &str, outcome: io::Result<T>) -> Outcome<T> {
    outcome.map_err(|error| Failed(format!("{what}: {error}")))
}

fn wanted() -> Option<Wanted> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next()?);
    let none = || Path::new("").to_path_buf();
    let (until, expected, progress) = (none(), none(), none());
    let mut wanted = Wanted { directory, until, expected, progress, seed: 1, killed: false };
    while let Some(option) = arguments.next() {
        let value = arguments.next()?;
        match option.as_str() {
            "--until" => wanted.until = value.into(),
            "--expected" => wanted.expected = value.into(),
            "--progress" => wanted.progress = value.into(),
            "--seed" => wanted.seed = value.parse().ok()?,
            "--killed" => wanted.killed = value == "yes",
            _ => return None,
        }
    }
    let are_named = [&wanted.until, &wanted.expected, &wanted.progress];
    are_named.iter().all(|path| !path.as_os_str().is_empty()).then_some(wanted)
}

/// The longest file.
const LEN_MAX: u32 = 400_000;
