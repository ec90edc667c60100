//! Compiling the copy: the test programs that come of it, and the places of errors.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rpcrdma_mutants::names::{Kind, Program};
use serde_json::Value;

/// What cargo compiles with.
#[derive(Debug)]
pub struct Cargo {
    /// The workspace.
    pub folder: PathBuf,
    /// The target directory.
    pub target: PathBuf,
}

/// Which features the crates have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Those that the workspace asks for. All its libraries are compiled if one is.
    Whole,
    /// For libraries those that the chosen packages ask for; no other is compiled.
    Parts,
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
    pub fn check(&self, programs: &BTreeSet<Program>, scope: Scope) -> Result<Outcome, String> {
        self.run(&["check", "--profile=test", "--keep-going"], programs, scope)
    }

    /// Compiles the programs.
    ///
    /// # Errors
    /// If cargo cannot be run.
    pub fn build(&self, programs: &BTreeSet<Program>, scope: Scope) -> Result<Outcome, String> {
        self.run(&["test", "--no-run"], programs, scope)
    }

    fn run(
        &self,
        command: &[&str],
        programs: &BTreeSet<Program>,
        scope: Scope,
    ) -> Result<Outcome, String> {
        let is_library = |program: &&Program| program.kind == Kind::Lib;
        let (libraries, others): (Vec<&Program>, Vec<&Program>) =
            programs.iter().partition(is_library);
        let mut outcome = Outcome::default();
        if scope == Scope::Whole {
            let all: Vec<&Program> = programs.iter().collect();
            self.run_one(command, &["--workspace".into()], &all, &mut outcome)?;
            return Ok(outcome);
        }
        if !libraries.is_empty() {
            let package = |program: &&Program| format!("--package={}", program.package);
            let packages: Vec<String> = libraries.iter().map(package).collect();
            self.run_one(command, &packages, &libraries, &mut outcome)?;
        }
        if !others.is_empty() {
            self.run_one(command, &["--workspace".into()], &others, &mut outcome)?;
        }
        Ok(outcome)
    }

    fn run_one(
        &self,
        command: &[&str],
        packages: &[String],
        programs: &[&Program],
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.folder).args(command).args(packages).args(selection(programs));
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

/// The arguments that select the programs.
fn selection(programs: &[&Program]) -> BTreeSet<String> {
    let argument = |program: &&Program| match program.kind {
        Kind::Lib => "--lib".to_owned(),
        Kind::Bin => format!("--bin={}", program.name),
        Kind::Test => format!("--test={}", program.name),
        Kind::Example => format!("--example={}", program.name),
    };
    programs.iter().map(argument).collect()
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
