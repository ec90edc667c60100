//! What compiles and inspects programs in C, and the library of this build.
//!
//! The tests need gcc, g++, clang, valgrind and binutils (Debian packages of these names). Without
//! one of them they fail, unless `RPCRDMA_SKIP_C` names those to go without, such as `clang
//! valgrind`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command that must succeed. Returns its output.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}; {PACKAGES}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}{errors}", output.status);
    said
}

/// Whether a tool is to be used.
pub fn has(tool: &str) -> bool {
    let skipped = std::env::var("RPCRDMA_SKIP_C").unwrap_or_default();
    let is_skipped = skipped.split(' ').any(|name| name == tool);
    if is_skipped {
        let part = tool.replace('+', "x");
        // Not eprintln!: the harness would keep it to itself.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED c-{part} (RPCRDMA_SKIP_C): no program in C is tested with {tool}"
        );
    }
    !is_skipped
}

/// A file of the crate `rpcrdma-capi`.
pub fn capi(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/capi").join(name)
}

/// The folder of the header.
pub fn include() -> PathBuf {
    capi("include")
}

/// A library, which cargo builds for this program, beside it, under the name of the crate.
pub fn library(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    let library = this.with_file_name(name.replace("librpcrdma", "librpcrdma_capi"));
    assert!(library.exists(), "{} is built with the tests", library.display());
    library
}

/// What no program may be warned of.
pub const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];
const PACKAGES: &str = "programs in C need the Debian packages gcc, g++, clang, valgrind and \
    binutils, or RPCRDMA_SKIP_C with the names of those to go without";
