//! `rpcrdma-gen`: checks descriptions of ONC RPC programs.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rpcrdma_gen::{Options, read};

/// Checks descriptions of ONC RPC programs (.x files), and reports everything that is wrong in them.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The descriptions.
    #[arg(required = true, value_name = "FILE.x")]
    files: Vec<PathBuf>,
    /// Only checks: there is no generator yet.
    #[arg(long, required = true)]
    check: bool,
    /// A folder where included files are searched, behind that of the description.
    #[arg(short = 'I', long, value_name = "DIR")]
    include: Vec<PathBuf>,
    /// A name that is defined for #ifdef and #if.
    #[arg(short = 'D', long = "define", value_name = "NAME[=NUMBER]")]
    defines: Vec<String>,
}

fn main() -> ExitCode {
    let Args { files, include, defines, .. } = Args::parse();
    let options = Options { include, defines };
    let colours = io::stderr().is_terminal();
    let mut is_right = true;
    for file in &files {
        match read(file, &options) {
            Ok(description) => {
                let count = description.definitions.len();
                let _ = writeln!(io::stdout(), "{}: {count} definitions", file.display());
            }
            Err(problems) => {
                is_right = false;
                // Without a place for errors, the exit code says it.
                let _ = problems.write(&mut io::stderr(), colours);
            }
        }
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
