//! Links the shared library with versioned symbols.
//!
//! rustc passes the linker a version script of its own, which names what to export and no version.
//! GNU ld takes no second one beside it, and of two, LLD follows rustc's. So the compiler that
//! links is shown a folder with an `ld.bfd` that puts rpcrdma.map in its place.

use std::env;
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=rpcrdma.map");
    if env::var("CARGO_CFG_TARGET_OS")? != "linux" {
        return Ok(());
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librpcrdma.so.1");
    let compiler = env::var("RUSTC_LINKER").unwrap_or("cc".into());
    let found = Command::new(compiler).arg("-print-prog-name=ld.bfd").output();
    let linker = found.map(|found| String::from_utf8(found.stdout)).unwrap_or(Ok(String::new()))?;
    let linker = linker.trim();
    if !Command::new(linker).arg("--version").output().is_ok_and(|said| said.status.success()) {
        println!("cargo::warning=without GNU ld the symbols of librpcrdma.so have no version");
        return Ok(());
    }
    let map = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("rpcrdma.map");
    let folder = env::var("OUT_DIR")?;
    let script = Path::new(&folder).join("ld.bfd");
    fs::write(
        &script,
        SCRIPT
            .replace("@MAP@", &quoted(&map.display().to_string()))
            .replace("@LD@", &quoted(linker)),
    )?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    println!("cargo::rustc-cdylib-link-arg=-B{folder}");
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=bfd");
    Ok(())
}

/// A path as one word of a shell script.
fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

const SCRIPT: &str = r#"#!/bin/sh
for argument; do
    shift
    case $argument in
        --version-script=*) argument=--version-script=@MAP@ ;;
    esac
    set -- "$@" "$argument"
done
exec @LD@ "$@"
"#;
