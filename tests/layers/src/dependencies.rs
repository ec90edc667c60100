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
    ("engine", &ENGINE),
    ("engine/async", &["engine"]),
    ("engine/capi", &["mempool", "config", "engine"]),
    ("engine/rpcrdma", &["engine", "async"]),
    ("engine/suite", &["engine", "mempool", "config", "xdr", "proto", "provider"]),
    ("engine/nfs3", &["engine", "xdr", "mempool"]),
    ("engine/top", &[]),
    ("bench/instructions", &["mempool", "config", "verbs", "engine", "capi"]),
    (
        "bench",
        &[
            "xdr",
            "mempool",
            "config",
            "proto",
            "verbs",
            "engine",
            "async",
            "capi",
            "suite",
            "instructions",
        ],
    ),
];

const ENGINE: [&str; 9] =
    ["xdr", "mempool", "config", "proto", "provider", "fabric", "shm", "iwarp", "verbs"];

/// What the crate's manifest names and may not.
pub fn faults(folder: &str, allowed: &[&str], read: Read<'_>) -> Vec<String> {
    let path = Path::new(folder).join("Cargo.toml");
    let manifest = read(&path).and_then(|text| text.parse::<toml::Table>().ok());
    let Some(manifest) = manifest else {
        return vec![format!("{} cannot be read", path.display())];
    };
    let named = manifest.get("dependencies").and_then(toml::Value::as_table);
    let ours = named.into_iter().flatten().filter_map(|(name, _)| name.strip_prefix("rpcrdma-"));
    ours.filter(|name| !allowed.contains(name))
        .map(|name| format!("{folder} must not depend on rpcrdma-{name}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_is_not_listed_is_a_fault() {
        let read = |_: &Path| {
            let text = "[dependencies]\nrpcrdma-xdr.workspace = true\nrpcrdma-shm = \"1\"\nlibc = \
                        \"1\"\n[dev-dependencies]\nrpcrdma-suite = \"1\"";
            Some(text.to_owned())
        };
        assert_eq!(faults("a", &["xdr"], &read), ["a must not depend on rpcrdma-shm"]);
        assert_eq!(faults("a", &["xdr", "shm"], &read), [""; 0]);
        assert_eq!(faults("a", &[], &|_| None), ["a/Cargo.toml cannot be read"]);
    }
}
