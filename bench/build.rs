//! Passes compiler and build profile to the program, for its reports.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".into(), |text| text.trim().to_owned());
    println!("cargo:rustc-env=BENCH_RUSTC={version}");
    println!("cargo:rustc-env=BENCH_PROFILE={}", variable("PROFILE"));
    println!("cargo:rustc-env=BENCH_OPT_LEVEL={}", variable("OPT_LEVEL"));
    println!("cargo:rustc-env=BENCH_TARGET={}", variable("TARGET"));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| "unknown".into())
}
