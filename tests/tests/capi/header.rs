//! The header compiles without a warning, in C and in C++, with two compilers.

use std::fs;
use std::process::Command;

use rpcrdma_tests::folder::Folder;

use crate::toolchain::{STRICT, has, include, succeed};

#[test]
fn the_header_compiles_without_a_warning_in_c_and_in_cxx() {
    let folder = Folder::new();
    let source = folder.join("twice.c");
    fs::write(&source, TEXT).expect("the folder is writable");
    for (compiler, package, language, standard) in [
        ("gcc", "gcc", "c", "-std=c11"),
        ("clang", "clang", "c", "-std=c11"),
        ("g++", "g++", "c++", "-std=c++17"),
        ("clang++", "clang", "c++", "-std=c++17"),
    ] {
        if !has(package) {
            continue;
        }
        let mut command = Command::new(compiler);
        // What is in a folder of the system is not warned of.
        command.args(STRICT).args([standard, "-fsyntax-only", "-I"]).arg(include());
        command.args(["-Wconversion", "-x", language]).arg(&source);
        succeed(&mut command);
    }
}

/// The header twice, and what programs begin structures with.
const TEXT: &str = "#include <rpcrdma.h>
#include <rpcrdma.h>
rpcrdma_engine_options engine = RPCRDMA_ENGINE_OPTIONS_INIT;
rpcrdma_handler handler = RPCRDMA_HANDLER_INIT;
rpcrdma_want want = RPCRDMA_WANT_INIT;
rpcrdma_finished finished = RPCRDMA_FINISHED_INIT;
rpcrdma_session_options options = RPCRDMA_SESSION_OPTIONS_INIT;
int main(void) { return rpcrdma_is_transient(RPCRDMA_E_BUSY); }
";
