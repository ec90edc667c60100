//! Programs in C: they are compiled against the library of this build, and run under checks.

use std::path::PathBuf;
use std::process::Command;

use rpcrdma_testing::children::Started;
use rpcrdma_tests::folder::Folder;

use crate::toolchain::{STRICT, has, include, library, succeed};

/// What finds errors of memory while a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Nothing, with the static library.
    Static,
    /// AddressSanitizer with LeakSanitizer, and UndefinedBehaviorSanitizer.
    Sanitizers,
    /// Memcheck of valgrind.
    Memcheck,
}

/// A program of C, compiled.
pub struct Program {
    /// What it needs to run.
    folder: Folder,
    check: Check,
}

impl Program {
    /// Compiles sources to a program. None if a tool is skipped.
    pub fn new(sources: &[PathBuf], check: Check) -> Option<Program> {
        let is_there = has("gcc") && (check != Check::Memcheck || has("valgrind"));
        is_there.then(|| {
            let program = Program { folder: Folder::new(), check };
            let mut compiler = Command::new("gcc");
            compiler.args(STRICT).args(["-std=c11", "-g", "-O1", "-I"]).arg(include());
            if check == Check::Sanitizers {
                compiler.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
            }
            compiler.args(sources).arg("-o").arg(program.path());
            match check {
                Check::Static => {
                    compiler.arg(library("librpcrdma.a")).args(["-lgcc_s", "-lm", "-lpthread"]);
                }
                Check::Sanitizers | Check::Memcheck => program.link(&mut compiler),
            }
            succeed(&mut compiler);
            program
        })
    }

    /// The shared library, under the name that the program looks for when it starts.
    fn link(&self, compiler: &mut Command) {
        let library = library("librpcrdma.so");
        std::os::unix::fs::symlink(&library, self.folder.join("librpcrdma.so.1"))
            .expect("the folder is empty");
        compiler.arg(library).arg(format!("-Wl,-rpath,{}", self.folder.join("").display()));
    }

    fn path(&self) -> PathBuf {
        self.folder.join("program")
    }

    /// The program with its options, to be run. It fails if a check finds an error.
    pub fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(self.path());
        if self.check == Check::Memcheck {
            command = Command::new("valgrind");
            command.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
            // Not what the library keeps in statics for the rest of the process.
            command.arg("--errors-for-leak-kinds=definite,indirect,possible");
            command.arg(format!("--suppressions={SUPPRESSIONS}")).arg(self.path());
        }
        command.env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1");
        command.env("UBSAN_OPTIONS", "print_stacktrace=1");
        command.args(options);
        command
    }

    /// Runs the program to its end. Returns what it says.
    pub fn run(&self, options: &[&str]) -> String {
        succeed(&mut self.command(options))
    }

    /// Starts the program as a server. Returns it, and the address that it listens at.
    pub fn serve(&self, options: &[&str]) -> (Started, String) {
        let mut server = Started::by(&mut self.command(options));
        let line = server.line().expect("a server says where it listens");
        let (_, address) = line.split_once("listening at ").expect("and nothing else");
        let address = address.to_owned();
        (server, address)
    }
}

/// Sends a server SIGTERM, upon which it ends well. Returns what it says.
pub fn stop(mut server: Started) -> Vec<String> {
    server.signal(rustix::process::Signal::TERM);
    let said = server.rest();
    let status = server.wait();
    assert!(status.success(), "{status}: {said:?}");
    said
}

/// What is no error, with the reasons.
const SUPPRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../engine/capi/rpcrdma.supp");
