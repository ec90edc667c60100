//! The header: it is what cbindgen makes of the sources.

use std::path::Path;

/// `RPCRDMA_WRITE_HEADER=1` writes it instead.
#[test]
fn the_header_is_generated_from_the_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(here.join("src/lib.rs"))
        .generate()
        .expect("sources that cbindgen reads");
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let path = here.join("include/rpcrdma.h");
    if std::env::var_os("RPCRDMA_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "the header differs from the sources: RPCRDMA_WRITE_HEADER=1 cargo test -p rpcrdma-capi"
    );
}
