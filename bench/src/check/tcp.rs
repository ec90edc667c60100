//! TCP: what its connections need.

use super::finding::{Finding, subjects};
use super::host::Host;
use super::shm::open_files;
use super::wanted::Wanted;

pub fn findings(host: &Host<'_>, wanted: &Wanted) -> Vec<Finding> {
    vec![open_files(FILES, EACH, host, wanted)]
}

/// Descriptors of a connection.
const EACH: u64 = 1;

subjects! {
    FILES = "tcp-files": "Without descriptors no further connection over TCP is made.";
}
