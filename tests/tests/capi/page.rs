//! The page docs/embedding.md has the program of engine/capi/examples/echo.c, which `examples` runs.

use std::fs;
use std::path::Path;

use crate::examples::example;

#[test]
fn the_program_of_the_page_is_the_example() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/embedding.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let blocks: Vec<&str> = page.split("\n```c\n").skip(1).collect();
    let programs = blocks.iter().filter_map(|text| text.split_once("```\n"));
    let example = fs::read_to_string(example("echo")).expect("it is there");
    assert!(programs.map(|(program, _)| program).any(|program| program == example));
}
