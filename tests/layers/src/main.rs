//! Checks that what a reader sees as a layer is one: `tests/run layers`.
//!
//! ```text
//!   Cargo.toml ─▶ dependencies   a crate depends on the listed ones at most
//!   sources ─▶ modules ─▶ imports ─┬─▶ circles of files
//!                                  └─▶ folders ─▶ circles of entries, and the order that lib.rs states
//! ```
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `report`, `figures`
//! - `dependencies`, `order`
//! - `circles`, `folders`
//! - `modules`
//! - `names`

mod circles;
mod dependencies;
mod figures;
mod folders;
mod modules;
mod names;
mod order;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dependencies::CRATES;

const USAGE: &str = "rpcrdma-layers [CRATE...]
rpcrdma-layers --figures [CRATE]

Checks these crates (engine, engine/proto, bench), or all: what they depend on, that neither their
files nor the entries of a folder import each other in a circle, and that the root of each states
its layers. Prints every import that is in the way. Exits with 1 if there is one.

With --figures: lines, types that are defined more than once, and functions with a tuple among their
arguments, for each crate, or one by one for a crate.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let done = match arguments.first().map(String::as_str) {
        Some("--figures") => figures::print(root, &arguments[1..]).map(|()| true),
        _ => check(root, &arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Whether nothing was found.
fn check(root: &Path, chosen: &[String]) -> Result<bool, String> {
    if let Some(unknown) = chosen.iter().find(|name| !CRATES.iter().any(|(it, _)| it == name)) {
        let known: Vec<&str> = CRATES.iter().map(|(folder, _)| *folder).collect();
        return Err(format!("no such crate: {unknown}; there are {}", known.join(", ")));
    }
    let read = |path: &Path| std::fs::read_to_string(root.join(path)).ok();
    let listed = dependencies::missing(&read);
    listed.iter().for_each(|fault| println!("{fault}"));
    let mut count = listed.len();
    for (folder, allowed) in CRATES {
        if !chosen.is_empty() && !chosen.iter().any(|name| name == folder) {
            continue;
        }
        let mut faults = dependencies::faults(folder, allowed, &read);
        let roots = ["src/lib.rs", "src/main.rs"].map(|name| PathBuf::from(folder).join(name));
        for start in roots.iter().filter(|start| root.join(start).exists()) {
            faults.extend(report::faults(start, &read).unwrap_or_else(|why| vec![why]));
        }
        println!("{folder}: {}", if faults.is_empty() { "ok" } else { "FAILED" });
        faults.iter().for_each(|fault| println!("{fault}"));
        count += faults.len();
    }
    Ok(count == 0)
}
