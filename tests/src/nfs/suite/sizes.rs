//! Lengths that matter: round every threshold, and every residue of four.

/// What is beside the data of a READ or WRITE in one message, at most: transport header, chunks,
/// RPC header, attributes.
const BESIDE: u32 = 320;

/// Lengths up to `max`, dense where a message of `inline` bytes is just full or just too short, and
/// round pages and the lengths in `edges`.
pub fn lengths(max: u32, inline: u32, edges: &[u32]) -> Vec<u32> {
    let mut lens: Vec<u32> = (0..=17).collect();
    // Steps of three: every padded length, and every residue.
    lens.extend((inline.saturating_sub(BESIDE)..=inline + 8).step_by(3));
    for edge in [512, 1024, 4096, 8192, 65_536].into_iter().chain(edges.iter().copied()) {
        lens.extend(edge.saturating_sub(5)..=edge.saturating_add(5));
    }
    lens.extend([max / 2 - 1, max / 2, max - 3, max - 2, max - 1, max]);
    lens.retain(|len| *len <= max);
    lens.sort_unstable();
    lens.dedup();
    lens
}

/// As [`lengths`], without those that only a threshold asks for, except for the ones next to it.
pub fn few_lengths(max: u32, inline: u32, edges: &[u32]) -> Vec<u32> {
    let mut lens = lengths(max, 0, edges);
    lens.extend((inline.saturating_sub(BESIDE)..=inline + 8).step_by(37));
    lens.retain(|len| *len <= max);
    lens.sort_unstable();
    lens.dedup();
    lens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_every_residue_round_every_edge() {
        for inline in [1024, 4096] {
            let lens = lengths(100_000, inline, &[30_000]);
            for edge in [4, 512, 1024, 4096, inline, 30_000] {
                let near = lens.iter().filter(|len| len.abs_diff(edge) < 4);
                let mut residues: Vec<u32> = near.map(|len| len % 4).collect();
                residues.sort_unstable();
                residues.dedup();
                assert_eq!(residues, [0, 1, 2, 3], "{edge}");
            }
            assert!(lens.is_sorted() && lens.last() == Some(&100_000));
            let few = few_lengths(100_000, inline, &[]);
            assert!(few.len() < lens.len() && few.is_sorted());
        }
    }
}
