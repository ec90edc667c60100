//! The data of a simulated call, whole or in pieces, and its result buffers.

use rpcrdma::Sink;
use rpcrdma::{CallBuilder, Loan, Payload, Want};

use crate::script::{POISON, Random, part_bytes, part_offset};
use crate::service::Source;

/// Requests an item, with or without a result buffer.
pub fn ask(buffers: &mut Vec<Loan>, random: &mut Random, call: &mut CallBuilder<'_>, want: Want) {
    if buffers.is_empty() || want.len_max == 0 || random.below(3) == 0 {
        call.want(want);
        return;
    }
    let len = want.len_max as usize;
    let mut sink = Sink::new();
    // Sometimes in two pieces of random lengths.
    let cut = if buffers.len() > 1 && len > 1 { random.below(want.len_max) as usize } else { 0 };
    for len in [cut, len - cut].into_iter().filter(|len| *len > 0) {
        let mut loan = buffers.pop().expect("as many as pieces");
        loan.truncate(len);
        loan.fill(POISON);
        sink.push(loan).expect("two pieces");
    }
    match random.below(3) {
        0 => call.want_into(want, sink),
        1 => call.want_either(want, sink),
        _ => call.want_by_size(want, random.below(want.len_max), sink),
    };
}

/// A part of a script that is placed.
#[derive(Debug, Clone, Copy)]
pub struct PlacedPart {
    /// The seed of the script, which determines its bytes.
    pub seed: u32,
    /// Its index in the script.
    pub index: usize,
    /// Its length in bytes.
    pub len: u32,
}

/// Places a part: from registered bytes, whole or in two pieces, or from a buffer.
pub fn place(
    source: &Source,
    buffers: &mut Vec<Loan>,
    random: &mut Random,
    payload: &mut Payload<'_>,
    part: PlacedPart,
) {
    let PlacedPart { seed, index, len } = part;
    match random.below(4) {
        0 if len > 1 => {
            let (start, cut) = (part_offset(seed, index), 1 + random.below(len - 1));
            let first = source.slice_at(start, cut);
            let second = source.slice_at(start + cut as usize, len - cut);
            payload.place_pieces([first.into(), second.into()]);
        }
        1 if !buffers.is_empty() => {
            let mut loan = buffers.pop().expect("it is not empty");
            let bytes = part_bytes(seed, index, len);
            loan[..bytes.len()].copy_from_slice(&bytes);
            loan.truncate(bytes.len());
            payload.place(loan);
        }
        _ => source.place(payload, seed, index, len),
    }
}
