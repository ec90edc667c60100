//! Faults in any order, by a seed: what succeeds is done, and all memory comes back.

use super::*;

/// What a file should have: for each block a byte, or nothing known.
#[derive(Default)]
struct Model {
    blocks: HashMap<u64, Option<u8>>,
    /// Blocks that an operation is at.
    busy: HashMap<u64, u8>,
}

#[test]
fn with_faults_in_any_order_what_succeeds_is_done_and_all_memory_comes_back() {
    for seed in 0..200_u64 {
        faults(seed);
    }
}

/// Random writes and reads of some blocks, one operation at a block at a time.
fn faults(seed: u64) {
    let mut memory = Memory::new(24);
    let mut storage = Storage::by(Way::Faults(Faults::new(seed, 12)), 4, &OPTIONS);
    let path = Named::new();
    // Past the page cache they take their time.
    let caching = if seed.is_multiple_of(10) { Caching::Direct } else { Caching::Buffered };
    let file = storage.add(path.create(), caching).expect("room");
    let (mut model, mut state) = (Model::default(), seed.wrapping_mul(2) + 1);
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % end
    };
    let (mut submitted, mut failed) = (0, 0);
    while submitted < 60 || !model.busy.is_empty() {
        let block = below(12);
        if submitted < 60 && !model.busy.contains_key(&block) {
            submitted += 1;
            let (offset, byte) = (block * BLOCK as u64, submitted as u8);
            model.busy.insert(block, byte);
            let halves = [5000, BLOCK - 5000].map(|len| memory.block(len, |_| byte));
            let whole = [memory.block(BLOCK, |_| byte)];
            let pieces =
                if below(2) == 0 { halves.into_iter().collect() } else { Pieces::from_iter(whole) };
            let operation = match below(2) {
                0 => Operation::Write { file, offset, from: pieces },
                _ => Operation::Read { file, offset, into: pieces },
            };
            let id = storage.submit(operation, block).expect("room");
            if below(10) == 0 {
                storage.cancel(id);
            }
        }
        let Some(Done { tag: block, operation, result }) = storage.completed() else { continue };
        let byte = model.busy.remove(&block).expect("it was submitted");
        failed += u32::from(result.is_err());
        match (operation, result) {
            (Operation::Write { .. }, Ok(output)) => {
                assert_eq!(output.bytes(), BLOCK as u64, "seed {seed}");
                model.blocks.insert(block, Some(byte));
            }
            // Any part of it may be there.
            (Operation::Write { .. }, Err(_)) => drop(model.blocks.insert(block, None)),
            (Operation::Read { into, .. }, Ok(output)) => {
                let read = into.iter().flat_map(|piece| piece.iter().copied());
                if let Some(Some(wanted)) = model.blocks.get(&block) {
                    assert_eq!(output.bytes(), BLOCK as u64, "seed {seed}");
                    assert!(read.clone().all(|byte| byte == *wanted), "seed {seed}");
                }
            }
            _ => {}
        }
    }
    assert!(failed > 0, "seed {seed}: there are faults");
    assert_eq!(storage.open(), (0, 0));
    memory.assert_whole();
    let stored = File::open(&path.0).expect("there");
    for (block, wanted) in model.blocks {
        let mut bytes = [0; BLOCK];
        let Some(wanted) = wanted else { continue };
        stored.read_exact_at(&mut bytes, block * BLOCK as u64).expect("it was written");
        assert_eq!(bytes, [wanted; BLOCK], "seed {seed}");
    }
}
