//! Placement: what a message names is what a map of bytes allows, and what is planned is what
//! arrives.

mod bytes;
mod trip;

use super::choices::Choices;

/// Judges one input: a message of a peer that names bytes as it likes, or a call and its reply.
///
/// # Panics
/// If bytes are named that are not the message's, or do not arrive where they belong.
pub fn check(input: &[u8]) {
    let mut choices = Choices::new(input);
    if choices.flag() { trip::check(&mut choices) } else { bytes::check(&mut choices) }
}
