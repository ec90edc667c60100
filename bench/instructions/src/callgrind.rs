//! Runs a program under callgrind and reads what was counted.
//!
//! Counted is inside of some functions only, and in parts: a part begins when one function is
//! entered and ends when another is left. Instructions of the program's own file and those of
//! libraries are kept apart, because the C library has a `memcpy` for every kind of processor.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What was counted in one part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Instructions of the program's own file, whatever was linked into it.
    pub own: u64,
    /// Those of them that were compiled from the source files of [`Where::source`].
    pub source: u64,
    /// Instructions of shared libraries.
    pub library: u64,
    /// Calls from the program's own file into shared libraries.
    pub library_calls: u64,
}

/// Where to count. Functions are named as callgrind wants them: `*` stands for anything.
#[derive(Debug, Clone, Default)]
pub struct Where {
    /// Counting is switched when one of these is entered or left: on in the outermost.
    pub toggles: Vec<String>,
    /// What was counted before this one is entered does not count; empty: from the start.
    pub begin: String,
    /// A part ends when this one is left; empty: with the program.
    pub end: String,
    /// The end of a folder's path, to count what was compiled from the files in it
    /// ([`Count::source`]); empty: none.
    pub source: String,
    /// Also by address: [`Part::addresses`].
    pub addresses: bool,
}

/// A part of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// What was counted.
    pub count: Count,
    /// Instructions of the program's own file by their addresses there, and how often each was
    /// executed. Empty unless asked for.
    pub addresses: Vec<(u64, u64)>,
}

/// Why nothing could be counted.
#[derive(Debug)]
#[non_exhaustive]
pub enum CountError {
    /// There is no valgrind.
    Missing,
    /// The program, or callgrind, failed; what it wrote.
    Failed(String),
    /// A file could not be made or read.
    File(PathBuf, io::Error),
    /// What callgrind wrote is not understood.
    Strange(String),
}

impl std::fmt::Display for CountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CountError::Missing => f.write_str("valgrind is missing: apt-get install valgrind"),
            CountError::Failed(why) => write!(f, "not counted: {why}"),
            CountError::File(path, why) => write!(f, "{}: {why}", path.display()),
            CountError::Strange(what) => write!(f, "callgrind wrote something strange: {what}"),
        }
    }
}

impl std::error::Error for CountError {}

/// Whether there is a valgrind to count with.
pub fn is_there() -> bool {
    let version = Command::new(VALGRIND).arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Runs the program and returns what was counted in each part, in order. What callgrind writes goes
/// to files in `folder`, which is made and emptied.
///
/// The program gets no environment: its length moves the stack.
///
/// # Errors
/// If there is no valgrind, the program fails, or nothing was counted.
pub fn count<A: AsRef<OsStr>>(
    program: &Path,
    args: &[A],
    at: &Where,
    folder: &Path,
) -> Result<Vec<Part>, CountError> {
    let filed = |why| CountError::File(folder.to_owned(), why);
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(filed)?;
    }
    fs::create_dir_all(folder).map_err(filed)?;
    let mut command = Command::new(VALGRIND);
    command.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no", "-q"]);
    command.arg(option("--callgrind-out-file=", folder.join(OUT).as_os_str()));
    command.args(at.toggles.iter().map(|toggle| format!("--toggle-collect={toggle}")));
    if at.addresses {
        command.arg("--dump-instr=yes");
    }
    if !at.begin.is_empty() {
        command.arg(format!("--zero-before={}", at.begin));
    }
    if !at.end.is_empty() {
        command.arg(format!("--dump-after={}", at.end));
    }
    command.arg(program).args(args).stdin(Stdio::null());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let output = command.env_clear().env("PATH", path).output();
    let output = output.map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => CountError::Missing,
        _ => CountError::File(VALGRIND.into(), why),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(CountError::Failed(format!("{}: {}", output.status, said.trim())));
    }
    parts(program, folder, at)
}

/// Reads the files of a run: `out.1`, `out.2`, ..., and one for the rest of the program.
fn parts(program: &Path, folder: &Path, at: &Where) -> Result<Vec<Part>, CountError> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|why| CountError::File(path.clone(), why))?;
        parse(&text, &program.to_string_lossy(), &at.source)
    };
    if at.end.is_empty() {
        return Ok(vec![read(folder.join(OUT))?]);
    }
    let numbered = (1..).map(|part| folder.join(format!("{OUT}.{part}")));
    let mut counts = Vec::new();
    for path in numbered.take_while(|path| path.exists()) {
        let text = fs::read_to_string(&path).map_err(|why| CountError::File(path.clone(), why))?;
        // The last one is what came behind the last part.
        if !text.contains(AT_THE_END) {
            counts.push(read(path)?);
        }
    }
    if counts.is_empty() {
        return Err(CountError::Strange(format!("no part in {}", folder.display())));
    }
    Ok(counts)
}

/// Adds up the costs of one file.
///
/// ```text
///   positions: line        what stands before a cost: with addresses `instr line`
///   ob=/the/program        from here on, functions of this file
///   fl=/folder/main.rs     from here on, compiled from this file: fi= and fe= for what is inlined
///   16 400                 line 16: 400 instructions
///   cob=/lib/libc.so.6     the next call goes there; without it to a function of the same file
///   calls=12 0             12 calls
///   16 1000                what they cost: counted where they went
/// ```
///
/// # Errors
/// If a line is none of these, or the sum is not the one that callgrind made.
fn parse(text: &str, program: &str, source: &str) -> Result<Part, CountError> {
    let strange = |line: &str| CountError::Strange(line.to_owned());
    let mut lines = text.lines();
    let positions = lines.find_map(|line| line.strip_prefix("positions: "));
    let positions = positions.ok_or_else(|| strange("no positions"))?.split(' ').count();
    if lines.next() != Some("events: Ir") {
        return Err(strange("no events: Ir"));
    }
    let mut part = Part::default();
    let (mut is_own, mut called_own, mut is_behind_call) = (false, None, false);
    let mut is_source = false;
    let mut total = None;
    for line in lines {
        if let Some(object) = line.strip_prefix("ob=") {
            is_own = object == program;
        } else if let Some(file) = ["fl=", "fi=", "fe="].iter().find_map(|at| line.strip_prefix(at))
        {
            let folder = file.rsplit_once('/').map(|(folder, _)| folder);
            is_source = !source.is_empty() && folder.is_some_and(|at| at.ends_with(source));
        } else if let Some(object) = line.strip_prefix("cob=") {
            called_own = Some(object == program);
        } else if let Some(calls) = line.strip_prefix("calls=") {
            let calls = calls.split(' ').next().and_then(|calls| calls.parse::<u64>().ok());
            if is_own && called_own.take() == Some(false) {
                part.count.library_calls += calls.ok_or_else(|| strange(line))?;
            }
            called_own = None;
            is_behind_call = true;
        } else if let Some(sum) = line.strip_prefix("totals:") {
            total = sum.trim().parse::<u64>().ok();
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let (address, cost) = cost(line, positions).ok_or_else(|| strange(line))?;
            match (std::mem::take(&mut is_behind_call), is_own) {
                (true, _) => {}
                (false, true) => part.add_own(address, cost, is_source),
                (false, false) => part.count.library += cost,
            }
        }
    }
    if total != Some(part.count.own + part.count.library) {
        return Err(strange(&format!("{:?} of {total:?}", part.count)));
    }
    Ok(part)
}

impl Part {
    fn add_own(&mut self, address: Option<u64>, cost: u64, is_source: bool) {
        self.count.own += cost;
        self.count.source += if is_source { cost } else { 0 };
        self.addresses.extend(address.map(|address| (address, cost)));
    }
}

/// The address, if there is one, and the cost of a line.
fn cost(line: &str, positions: usize) -> Option<(Option<u64>, u64)> {
    let mut words = line.split(' ');
    let first = words.next()?;
    let cost = words.nth(positions - 1)?.parse().ok()?;
    if positions == 1 {
        return Some((None, cost));
    }
    let address = u64::from_str_radix(first.strip_prefix("0x")?, 16).ok()?;
    Some((Some(address), cost))
}

fn option(name: &str, value: &OsStr) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(name);
    option.push(value);
    option
}

const VALGRIND: &str = "valgrind";
const OUT: &str = "out";
const AT_THE_END: &str = "desc: Trigger: Program termination";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# callgrind format
version: 1
desc: Trigger: --dump-after=end
positions: line
events: Ir
summary: 1530

ob=/program
fl=main.rs
fn=turn
16 400
cob=/lib/libc.so.6
cfi=???
cfn=memcpy
calls=12 0
16 1000
+3 20
cfn=other
calls=3 0
17 50

fn=other
20 50

ob=/lib/libc.so.6
fl=???
fn=memcpy
0 900
cob=/lib/ld.so
cfn=resolve
calls=2 0
0 100

ob=/lib/ld.so
fn=resolve
0 180

totals: 1530
";

    #[test]
    fn costs_are_added_up_by_file_and_those_of_calls_once() {
        // A line with a sign is a compressed position, which was not asked for.
        let text = TEXT.replace("+3 20", "19 0");
        let count = parse(&text, "/program", "").expect("it adds up");
        assert_eq!(count.count, Count { own: 450, source: 0, library: 1080, library_calls: 12 });
        assert!(count.addresses.is_empty());
        let foreign = parse(&text, "/lib/libc.so.6", "").expect("it adds up");
        assert_eq!(foreign.count, Count { own: 900, source: 0, library: 630, library_calls: 2 });
    }

    #[test]
    fn instructions_are_those_of_the_file_that_they_were_compiled_from() {
        let text = "positions: line\nevents: Ir\nob=/program\nfl=/other/src/lib.rs\nfn=turn\n16 1\n\
                    fi=/the/src/pair.rs\n17 2\ncob=/lib\ncalls=1 0\n18 9\nfe=/other/src/lib.rs\n19 4\n\
                    ob=/lib\nfl=/the/src/pair.rs\nfn=other\n1 9\ntotals: 16\n";
        let counted = |source| parse(text, "/program", source).expect("it adds up").count;
        let count = Count { own: 7, source: 2, library: 9, library_calls: 1 };
        assert_eq!(counted("the/src"), count);
        assert_eq!(counted("other/src"), Count { source: 5, ..count });
        assert_eq!(counted(""), Count { source: 0, ..count });
    }

    #[test]
    fn what_does_not_add_up_is_not_believed() {
        assert!(
            parse(TEXT.replace("totals: 1530", "totals: 1531").as_str(), "/program", "").is_err()
        );
        assert!(parse("", "/program", "").is_err());
        for wrong in ["events: Ir Bc\ntotals: 0\n", "events: Ir\n", "events: Ir\n16 x\ntotals: 0\n"]
        {
            assert!(
                parse(&format!("positions: line\n{wrong}"), "/program", "").is_err(),
                "{wrong}"
            );
        }
        assert!(parse("positions: line\nevents: Ir\n16 3\ntotals: 3\n", "/program", "").is_ok());
    }

    #[test]
    fn addresses_are_of_the_programs_own_file() {
        let text = "positions: instr line\nevents: Ir\nob=/program\n0x1f 16 400\n\
                    cob=/lib\ncalls=1 0x5 0\n0x20 17 9\nob=/lib\n0x5 0 9\ntotals: 409\n";
        let part = parse(text, "/program", "").expect("it adds up");
        assert_eq!(part.addresses, [(0x1f, 400)]);
        assert_eq!(part.count, Count { own: 400, source: 0, library: 9, library_calls: 1 });
    }
}
