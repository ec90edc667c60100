//! Access to posted memory, which a checked provider writes to and compares.
#![expect(unsafe_code, reason = "posted memory is written to and read")]

use rpcrdma_mempool::Sge;

use crate::script::POISON;

/// Poisons memory before it is posted.
pub(super) fn fill(sge: &Sge) {
    let start = std::ptr::with_exposed_provenance_mut::<u8>(sge.addr as usize);
    // SAFETY: the caller of `post_srq_recv` gives this memory to the device for writing, and does
    // not access it before the completion has been polled; it has no other owner.
    unsafe { start.write_bytes(POISON, sge.length as usize) };
}

/// The bytes of posted memory.
pub(super) fn bytes(sge: &Sge) -> &[u8] {
    let start = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
    // SAFETY: until the completion has been polled, which ends after this comparison, the memory is
    // valid and the program does not write to it; the device is done with it or only reads.
    unsafe { std::slice::from_raw_parts(start, sge.length as usize) }
}

/// A sum over the bytes of a gather list, in which their order counts.
pub(super) fn sum(sgl: &[Sge]) -> u64 {
    sgl.iter().flat_map(|sge| bytes(sge).chunks(8)).fold(0xcbf2_9ce4_8422_2325, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(7)
    })
}
