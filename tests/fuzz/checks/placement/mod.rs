//! Placement: the bytes that a message names are those that a map allows, and a planned message
//! arrives unchanged.

mod bytes;
mod trip;

use super::choices::Choices;

/// Checks one input: a message that names arbitrary bytes, or a call and its reply.
///
/// # Panics
/// If a message may name bytes that are not its own, or an item arrives at a wrong position.
pub fn check(input: &[u8]) {
    let mut choices = Choices::new(input);
    if choices.flag() { trip::check(&mut choices) } else { bytes::check(&mut choices) }
}
