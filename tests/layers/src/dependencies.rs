//! The crates, and of which of our own each may depend directly.

use std::path::Path;

use crate::modules::Read;

/// The folder of each crate, and the crates that it may name as dependencies, in its build or its
/// tests excepted. A crate stands behind those that it depends on.
pub const CRATES: [(&str, &[&str]); 19] = [
    ("xdr", &[]),
    ("mempool", &["xdr"]),
    ("config", &["xdr"]),
    ("engine/proto", &["xdr"]),
    ("engine/provider", &["xdr", "mempool", "config"]),
    ("engine/transport", &["mempool", "config", "provider"]),
    ("engine/fabric", &["mempool", "config", "provider", "transport"]),
    ("engine/shm", &["xdr", "mempool", "config", "provider", "transport"]),
    ("engine/iwarp", &["xdr", "mempool", "config", "provider", "transport"]),
    ("engine/verbs", &["xdr", "mempool", "config", "provider"]),
    ("engine/storage", &["mempool"]),
    ("engine", &ENGINE),
    ("engine/capi", &["mempool", "config", "engine"]),
    ("engine/suite", &["engine", "mempool", "config", "xdr", "proto", "provider"]),
    ("engine/nfs3", &["engine", "xdr", "mempool"]),
    ("engine/gen", &[]),
    ("engine/top", &[]),
    ("bench/instructions", &["mempool", "config", "verbs", "engine", "capi"]),
    (
        "bench",
        &["xdr", "mempool", "config", "proto", "verbs", "engine", "capi", "suite", "instructions"],
    ),
];

const ENGINE: [&str; 10] =
    ["xdr", "mempool", "config", "proto", "provider", "fabric", "shm", "iwarp", "verbs", "storage"];

/// Crates of the workspace that are not checked: they are tests.
const NOT_CHECKED: [&str; 6] = [
    "tests",
    "tests/conformance",
    "tests/features",
    "tests/layers",
    "tests/mutating",
    "tests/testing",
];

/// Crates that are missing here, and those that do not stand behind what they may depend on.
pub fn missing(read: Read<'_>) -> Vec<String> {
    let manifest = read(Path::new("Cargo.toml")).and_then(|text| text.parse::<toml::Table>().ok());
    let members = manifest.as_ref().and_then(|it| it.get("workspace")?.get("members")?.as_array());
    let Some(members) = members else { return vec!["Cargo.toml has no members".to_owned()] };
    let mut faults = Vec::new();
    for member in members.iter().filter_map(toml::Value::as_str) {
        if !NOT_CHECKED.contains(&member) && !CRATES.iter().any(|(folder, _)| *folder == member) {
            faults.push(format!("{member} is in no list of tests/layers/src/dependencies.rs"));
        }
    }
    let name = |folder: &'static str| folder.rsplit('/').next().unwrap_or(folder);
    for (at, (folder, allowed)) in CRATES.iter().enumerate() {
        let before = &CRATES[..at];
        let upwards = allowed.iter().filter(|it| !before.iter().any(|(of, _)| name(of) == **it));
        faults.extend(upwards.map(|it| format!("{folder} stands before {it}")));
    }
    faults
}

/// What the crate's manifest names and may not.
pub fn faults(folder: &str, allowed: &[&str], read: Read<'_>) -> Vec<String> {
    let path = Path::new(folder).join("Cargo.toml");
    let manifest = read(&path).and_then(|text| text.parse::<toml::Table>().ok());
    let Some(manifest) = manifest else {
        return vec![format!("{} cannot be read", path.display())];
    };
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
    let tables = targets.map(|(_, target)| target.get("dependencies"));
    let tables = tables.chain([manifest.get("dependencies")]).flatten();
    let named = tables.filter_map(toml::Value::as_table).flatten();
    let package = |(name, value): (&String, &toml::Value)| {
        value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned()
    };
    let packages: Vec<String> = named.map(package).collect();
    let ours = packages.iter().filter_map(|name| match name.as_str() {
        "rpcrdma" => Some("engine"),
        name => name.strip_prefix("rpcrdma-"),
    });
    ours.filter(|name| !allowed.contains(name))
        .map(|name| format!("{folder} must not depend on {name}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_is_not_listed_is_a_fault() {
        let read = |_: &Path| {
            let text = "[dependencies]\nrpcrdma-xdr.workspace = true\nrpcrdma-shm = \"1\"\nlibc = \
                        \"1\"\n[dev-dependencies]\nrpcrdma-suite = \"1\"\n\
                        [target.'cfg(unix)'.dependencies]\nother = { package = \"rpcrdma\" }";
            Some(text.to_owned())
        };
        assert_eq!(
            faults("a", &["xdr"], &read),
            ["a must not depend on engine", "a must not depend on shm"]
        );
        assert_eq!(faults("a", &["xdr", "shm", "engine"], &read), [""; 0]);
        assert_eq!(faults("a", &[], &|_| None), ["a/Cargo.toml cannot be read"]);
    }

    #[test]
    fn a_member_that_is_not_listed_is_a_fault() {
        let read =
            |_: &Path| Some("[workspace]\nmembers = [\"xdr\", \"new\", \"tests\"]".to_owned());
        assert_eq!(missing(&read), ["new is in no list of tests/layers/src/dependencies.rs"]);
    }
}
