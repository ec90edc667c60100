//! Checks that no file of a crate imports one that imports it: `tests/run layers`.

mod circles;
mod modules;
mod names;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use circles::Circle;
use modules::{Crate, Import};

/// The folders of the crates that are judged.
const CRATES: [&str; 19] = [
    "xdr",
    "mempool",
    "config",
    "engine/provider",
    "engine/proto",
    "engine/transport",
    "engine/fabric",
    "engine/shm",
    "engine/iwarp",
    "engine/verbs",
    "engine",
    "engine/async",
    "engine/capi",
    "engine/rpcrdma",
    "engine/suite",
    "engine/nfs3",
    "engine/top",
    "bench/instructions",
    "bench",
];

const USAGE: &str = "rpcrdma-layers [CRATE...]

Judges these crates (engine, engine/proto, bench), or all, and prints every import of their circles.
Exits with 1 if there is one.";

fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = chosen.iter().find(|name| !CRATES.contains(&name.as_str())) {
        eprintln!("{unknown} is no crate of {CRATES:?}\n\n{USAGE}");
        return ExitCode::from(2);
    }
    let mut is_well = true;
    let is_chosen = |folder: &&str| chosen.is_empty() || chosen.iter().any(|name| name == folder);
    for folder in CRATES.into_iter().filter(is_chosen) {
        match circles_of(folder) {
            Ok(circles) => {
                print(folder, &circles);
                is_well &= circles.is_empty();
            }
            Err(why) => {
                eprintln!("{why}");
                is_well = false;
            }
        }
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(folder: &str, circles: &[Circle]) {
    println!("{folder}: number of circles {}", circles.len());
    for circle in circles {
        println!("circle of {} files:", circle.files.len());
        for Import { from, line, to, name } in &circle.imports {
            println!("  {from}:{line} imports {name} of {to}");
        }
    }
}

/// Those of the library and of the program, each by itself.
fn circles_of(folder: &str) -> Result<Vec<Circle>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let read = |path: &Path| std::fs::read_to_string(root.join(path)).ok();
    let mut circles = Vec::new();
    let starts = ["src/lib.rs", "src/main.rs"].map(|start| PathBuf::from(folder).join(start));
    let is_there = |start: &&PathBuf| root.join(start).exists();
    for start in starts.iter().filter(is_there) {
        circles.extend(circles::find(&Crate::read(start, &read)?.imports()));
    }
    Ok(circles)
}
