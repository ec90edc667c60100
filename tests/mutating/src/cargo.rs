//! Compiling the copy: the test programs that come of it, and the places of errors.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rpcrdma_mutants::names::{Kind, Program};
use serde_json::Value;

use crate::list::PACKAGES;

/// Crates without tests of what is measured, or whose tests take long and are of their own.
const OTHERS: [&str; 8] = [
    "rpcrdma-bench",
    "rpcrdma-conformance",
    "rpcrdma-features",
    "rpcrdma-instructions",
    "rpcrdma-layers",
    "rpcrdma-mutants",
    "rpcrdma-testing",
    "rpcrdma-top",
];

/// What cargo compiles with.
#[derive(Debug)]
pub struct Cargo {
    /// The workspace.
    pub folder: PathBuf,
    /// The target directory.
    pub target: PathBuf,
}

/// An executable, and the folder that cargo would run it in.
#[derive(Debug, Clone)]
pub struct Executable {
    /// The file.
    pub path: PathBuf,
    /// The folder of its package.
    pub folder: PathBuf,
}

/// What a run of cargo led to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The test programs.
    pub programs: BTreeMap<Program, Executable>,
    /// The errors.
    pub errors: Vec<Fault>,
}

/// An error of the compiler.
#[derive(Debug)]
pub struct Fault {
    /// The message, as it is shown.
    pub text: String,
    /// Its code for `rustc --explain`.
    pub code: String,
    /// Where it is, the most important place first: files from the root, and bytes in them.
    pub places: Vec<(String, Range<usize>)>,
}

impl Cargo {
    /// Compiles the programs up to what shows errors.
    ///
    /// # Errors
    /// If cargo cannot be run.
    pub fn check(&self, programs: &BTreeSet<Program>) -> Result<Outcome, String> {
        self.run(&["check", "--profile=test", "--keep-going"], programs)
    }

    /// Compiles the programs. The features of a library are those that the chosen packages ask for,
    /// so that no other is compiled; those of other programs are those of the workspace.
    ///
    /// # Errors
    /// If cargo cannot be run.
    pub fn build(&self, programs: &BTreeSet<Program>) -> Result<Outcome, String> {
        self.run(&["test", "--no-run"], programs)
    }

    /// Compiles what is measured, without tests, up to what shows errors.
    ///
    /// # Errors
    /// If cargo cannot be run.
    pub fn check_libraries(&self) -> Result<Outcome, String> {
        let packages = PACKAGES.map(|package| format!("--package={package}"));
        let mut outcome = Outcome::default();
        self.run_one(&["check", "--keep-going", "--lib", "--bins"], &packages, &mut outcome)?;
        Ok(outcome)
    }

    /// Compiles all test programs but those of crates that do not test what is measured.
    ///
    /// # Errors
    /// If cargo cannot be run.
    pub fn build_all(&self) -> Result<Outcome, String> {
        let others = OTHERS.map(|package| format!("--exclude={package}"));
        let mut outcome = Outcome::default();
        self.run_one(&["test", "--no-run", "--tests", "--workspace"], &others, &mut outcome)?;
        Ok(outcome)
    }

    fn run(&self, command: &[&str], programs: &BTreeSet<Program>) -> Result<Outcome, String> {
        let is_library = |program: &&Program| program.kind == Kind::Lib;
        let (libraries, others): (Vec<&Program>, Vec<&Program>) =
            programs.iter().partition(is_library);
        let mut outcome = Outcome::default();
        if !libraries.is_empty() {
            let package = |program: &&Program| format!("--package={}", program.package);
            let packages = libraries.iter().map(package).chain(["--lib".into()]);
            self.run_one(command, &packages.collect::<Vec<_>>(), &mut outcome)?;
        }
        if !others.is_empty() {
            let chosen = others.into_iter().filter_map(selection).chain(["--workspace".into()]);
            self.run_one(command, &chosen.collect::<Vec<_>>(), &mut outcome)?;
        }
        Ok(outcome)
    }

    fn run_one(
        &self,
        command: &[&str],
        chosen: &[String],
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.folder).args(command).args(chosen);
        cargo.args(["--quiet", "--message-format=json"]);
        cargo.env("CARGO_TARGET_DIR", &self.target).env("RUSTFLAGS", "--cap-lints=allow");
        cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        cargo.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = cargo.spawn().map_err(|error| format!("cargo: {error}"))?;
        let stderr = child.stderr.take().expect("a pipe");
        let said = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
        for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
            let line = line.map_err(|error| format!("cargo: {error}"))?;
            if let Ok(message) = serde_json::from_str::<Value>(&line) {
                outcome.add(&message, &self.folder);
            }
        }
        let is_done = child.wait().is_ok_and(|status| status.success());
        let said = said.join().unwrap_or_default();
        if !is_done && outcome.errors.is_empty() {
            return Err(format!("cargo: {said}"));
        }
        Ok(())
    }
}

/// The argument that selects a program, of any package. That of a library is its package.
fn selection(program: &Program) -> Option<String> {
    let name = &program.name;
    match program.kind {
        Kind::Lib => None,
        Kind::Bin => Some(format!("--bin={name}")),
        Kind::Test => Some(format!("--test={name}")),
        Kind::Example => Some(format!("--example={name}")),
    }
}

impl Outcome {
    fn add(&mut self, message: &Value, root: &Path) {
        match message["reason"].as_str() {
            Some("compiler-artifact") => self.add_program(message),
            Some("compiler-message") if message["message"]["level"] == "error" => {
                let text = message["message"]["rendered"].as_str().unwrap_or_default().to_owned();
                let code = &message["message"]["code"]["code"];
                let code = code.as_str().unwrap_or_default().to_owned();
                let mut places = Vec::new();
                add_places(&message["message"], root, &mut places);
                if !places.is_empty() {
                    self.errors.push(Fault { text, code, places });
                }
            }
            _ => {}
        }
    }

    fn add_program(&mut self, message: &Value) {
        let target = &message["target"];
        let (Some(path), Some(manifest)) =
            (message["executable"].as_str(), message["manifest_path"].as_str())
        else {
            return;
        };
        if message["profile"]["test"] != true {
            return;
        }
        let folder = Path::new(manifest).parent().unwrap_or(Path::new("")).to_owned();
        let Ok(package) = rpcrdma_mutants::names::package(&folder) else { return };
        let name = target["name"].as_str().unwrap_or_default().to_owned();
        let program = match target["kind"][0].as_str() {
            Some("test") => Program { package, kind: Kind::Test, name },
            Some("example") => Program { package, kind: Kind::Example, name },
            Some("bin") => Program { package, kind: Kind::Bin, name },
            _ => Program { package, kind: Kind::Lib, name: String::new() },
        };
        self.programs.insert(program, Executable { path: path.into(), folder });
    }
}

/// The places of a message and of its notes; those that it is about come first.
fn add_places(message: &Value, root: &Path, places: &mut Vec<(String, Range<usize>)>) {
    let spans = message["spans"].as_array().into_iter().flatten();
    let (first, other): (Vec<_>, Vec<_>) = spans.partition(|span| span["is_primary"] == true);
    for mut span in first.into_iter().chain(other) {
        // From within a macro out to where it is called.
        while span.is_object() {
            let number = |key: &str| span[key].as_u64().and_then(|at| usize::try_from(at).ok());
            let file = Path::new(span["file_name"].as_str().unwrap_or_default());
            let file = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
            if let (Some(start), Some(end)) = (number("byte_start"), number("byte_end")) {
                places.push((file, start..end));
            }
            span = &span["expansion"]["span"];
        }
    }
    for note in message["children"].as_array().into_iter().flatten() {
        add_places(note, root, places);
    }
}
