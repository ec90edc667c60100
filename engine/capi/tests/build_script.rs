//! The build script, in a folder whose name has a quotation mark.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes a program in shell.
fn script(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    fs::write(path, format!("#!/bin/sh\n{text}\n"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// A temporary folder, removed when it is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_folder_with_an_apostrophe_is_built_in() -> Result<(), Box<dyn Error>> {
    let name = format!("rpcrdma it's \"a\" $HOME-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    fs::create_dir_all(folder.0.join("out"))?;
    let [build, compiler, linker] = ["build", "cc", "ld.bfd"].map(|name| folder.0.join(name));
    // The compiler says where the linker is, and the linker with what it was started.
    script(&compiler, r#"echo "$(dirname "$0")/ld.bfd""#)?;
    script(&linker, r#"printf '%s\n' "$@""#)?;
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs");
    let rustc = option_env!("RUSTC").unwrap_or("rustc");
    let mut compile = Command::new(rustc);
    compile.args(["--edition", "2024", source, "-o"]).arg(&build);
    assert!(compile.status()?.success());
    let mut run = Command::new(&build);
    run.env("CARGO_CFG_TARGET_OS", "linux").env("RUSTC_LINKER", &compiler);
    run.env("CARGO_MANIFEST_DIR", &folder.0).env("OUT_DIR", folder.0.join("out"));
    let said = run.output()?;
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));

    let wrapper = folder.0.join("out/ld.bfd");
    let linked = Command::new(wrapper).args(["-o", "a b", "--version-script=other"]).output()?;
    let map = folder.0.join("rpcrdma.map");
    let expected = format!("-o\na b\n--version-script={}\n", map.display());
    assert_eq!(String::from_utf8(linked.stdout)?, expected);
    Ok(())
}
