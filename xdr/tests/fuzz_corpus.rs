//! What the fuzzer found worth keeping, replayed in every test run.

#[path = "../../tests/fuzz/checks/header.rs"]
mod header;

use std::path::Path;

#[test]
fn every_input_of_the_header_corpus_does_no_harm() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus/header");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("the corpus can be read").path();
        let input = std::fs::read(&path).expect("an input can be read");
        let name = path.display().to_string();
        std::panic::catch_unwind(|| header::check(&input))
            .unwrap_or_else(|_| panic!("the input in {name} does"));
        count += 1;
    }
    assert!(count >= 50, "only {count} inputs in {}", folder.display());
}
