//! The calls of the store, and what the clients store in it.
//!
//! ```text
//!   NULL  ()                                  -> ()
//!   PUT   (key: hyper, value: opaque<>)       -> (server: hyper)
//!   GET   (key: hyper)                        -> (server: hyper, value: optional opaque<>)
//! ```
//! `server` is another number after each start of the server: its store is then empty.

use rpcrdma::onc::{CallHeader, RpcProgram};
use rpcrdma::{OwnedCall, PayloadReader};

use crate::Outcome;

/// The number is from the range that RFC 5531 leaves to users.
pub const PROGRAM: RpcProgram = RpcProgram { number: 0x2000_0cea, version: 1, procedures: GET + 1 };
pub const NULL: u32 = 0;
pub const PUT: u32 = 1;
pub const GET: u32 = 2;
/// The longest value, in bytes.
pub const VALUE_MAX: usize = 1 << 20;

/// Writes the header of a call, and the key that both calls begin with.
pub fn begin(call: &mut OwnedCall, procedure: u32, key: u64) {
    call.put_fixed(&CallHeader::plain(PROGRAM.number, PROGRAM.version, procedure));
    call.put_u64(key);
}

/// Reads the value in a reply to GET. Its bytes are those placed, or follow in the payload.
pub fn read_value<'a>(
    results: &mut PayloadReader<'_>,
    placed: impl Iterator<Item = &'a [u8]>,
) -> Outcome<Option<Vec<u8>>> {
    if results.u32()? == 0 {
        return Ok(None);
    }
    let len = results.u32()? as usize;
    if len > VALUE_MAX {
        return Err("the server returns a value that is too long".into());
    }
    let mut value = Vec::with_capacity(len);
    placed.for_each(|slice| value.extend_from_slice(slice));
    let placed_len = value.len();
    value.resize(len.max(placed_len), 0);
    results.fixed_into(&mut value[placed_len..])?;
    Ok(Some(value))
}

/// What is stored at a key, as often as it is stored: 16 bytes to 1 MiB that follow from both.
pub fn value(key: u64, version: u64) -> Vec<u8> {
    let mix = |number: u64| {
        let number = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        number ^ number >> 29
    };
    let seed = mix(mix(key.wrapping_add(1)).wrapping_add(version));
    let odd = (seed >> 8) as usize % 16;
    let len = (16_usize << (seed % 17)).saturating_sub(odd).max(16);
    let words = (0..).flat_map(|at: u64| seed.wrapping_add(at).to_be_bytes());
    words.take(len).collect()
}
