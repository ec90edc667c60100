//! The golden vectors of `tests/vectors`: headers written by hand, each word named and explained.
//!
//! A line is hex words and `name=value`, the field they are; `#` begins a comment, `#=` the header
//! as feature `text` prints it; what follows `@payload` belongs to the payload stream.

use std::path::Path;

/// One file.
pub struct Vector {
    /// The file's name, without the ending.
    pub name: String,
    /// The whole message.
    pub message: Vec<u8>,
    /// How many bytes of it are the header.
    pub header_len: usize,
    /// `name=value` of each line of the header.
    pub fields: Vec<String>,
}

/// All files, by name.
pub fn load() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors");
    let mut vectors: Vec<Vector> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "hex"))
        .map(|path| parse(&path))
        .collect();
    vectors.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(vectors.len() >= 50, "only {} vectors in {}", vectors.len(), folder.display());
    vectors
}

fn parse(path: &Path) -> Vector {
    let text = std::fs::read_to_string(path).expect("a vector can be read");
    let (mut message, mut fields, mut header_len) = (Vec::new(), Vec::new(), None);
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if line == "@payload" {
            header_len = Some(message.len());
            continue;
        }
        for token in line.split_whitespace() {
            if token.contains('=') {
                fields.push(token.to_owned());
                continue;
            }
            let word = u32::from_str_radix(token, 16)
                .unwrap_or_else(|error| panic!("{}: {token}: {error}", path.display()));
            assert_eq!(token.len(), 8, "{}: {token} is no word", path.display());
            message.extend_from_slice(&word.to_be_bytes());
        }
    }
    let name = path.file_stem().expect("a vector has a name").to_string_lossy().into_owned();
    Vector { name, header_len: header_len.unwrap_or(message.len()), message, fields }
}
