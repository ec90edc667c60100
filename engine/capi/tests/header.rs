//! The header: it is what cbindgen makes of the sources.

use std::path::Path;

/// `RPCRDMA_WRITE_HEADER=1` writes it instead.
#[test]
fn the_header_is_generated_from_the_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config =
        cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    let version = env!("CARGO_PKG_VERSION");
    config.after_includes = config.after_includes.map(|text| text.replace("@VERSION@", version));
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

/// What a function may state; the page of the header explains it.
const RULES: [&str; 5] = ["any", "one at a time", "polling", "callback", "that of the "];

#[test]
fn every_function_of_the_header_states_its_thread() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/rpcrdma.h");
    let header = std::fs::read_to_string(path).expect("the header");
    let (mut comment, mut count) = (String::new(), 0);
    for line in header.lines() {
        if line == "/**" {
            comment.clear();
        } else if let Some(text) = line.strip_prefix(" *") {
            comment.push_str(text);
            comment.push('\n');
        } else if let Some(name) = function(line) {
            count += 1;
            let rule = comment.lines().find_map(|line| line.strip_prefix(" Thread: "));
            let is_known = rule.is_some_and(|rule| RULES.iter().any(|it| rule.starts_with(it)));
            assert!(is_known, "{name}: {rule:?}");
            comment.clear();
        }
    }
    assert!(count > 100, "{count} functions");
}

/// The function of the library that is declared from this line on.
fn function(line: &str) -> Option<&str> {
    if line.starts_with("static inline") {
        return None;
    }
    let before = line.starts_with(char::is_alphabetic).then_some(line)?.split_once('(')?.0;
    let name = before.rsplit([' ', '*']).next()?;
    name.starts_with("rpcrdma_").then_some(name)
}
