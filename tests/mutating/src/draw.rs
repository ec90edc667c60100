//! Drawing a sample of the mutants: as many of a crate as it has lines, which ones by a seed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::list::{Listed, PACKAGES};

/// How many percent more are drawn than are tried: they take the place of those that do not compile.
const SPARE: usize = 40;

/// The mutants of one crate in the order in which they are drawn, and how many are wanted.
#[derive(Debug)]
pub struct Draw {
    /// The crate.
    pub package: &'static str,
    /// How many mutants of it are tried.
    pub count: usize,
    /// Those, and some for the place of those that do not compile.
    pub mutants: Vec<Listed>,
}

/// Draws `count` mutants.
///
/// # Errors
/// If a file cannot be read.
pub fn draw(root: &Path, all: &[Listed], seed: u64, count: usize) -> Result<Vec<Draw>, String> {
    let mut lines = Vec::new();
    for package in PACKAGES {
        lines.push(lines_of(root, all, package)?);
    }
    let mut random = Random(seed);
    let counts = shares(&lines, count);
    let draws = PACKAGES.into_iter().zip(counts).map(|(package, count)| {
        let of = all.iter().filter(|mutant| mutant.package == package).cloned();
        let mut mutants = random.shuffled(of.collect());
        mutants.truncate(count + (count * SPARE).div_ceil(100) + 3);
        Draw { package, count, mutants }
    });
    Ok(draws.collect())
}

/// The items in an order that depends on the seed.
pub fn shuffled<T>(seed: u64, items: Vec<T>) -> Vec<T> {
    Random(seed).shuffled(items)
}

/// The lines of the files of a crate that have mutants.
fn lines_of(root: &Path, all: &[Listed], package: &str) -> Result<usize, String> {
    let mut files = BTreeMap::new();
    for mutant in all.iter().filter(|mutant| mutant.package == package) {
        if !files.contains_key(&mutant.file) {
            let read = fs::read_to_string(root.join(&mutant.file));
            let text = read.map_err(|error| format!("{}: {error}", mutant.file))?;
            files.insert(&mutant.file, text.lines().count());
        }
    }
    Ok(files.values().sum())
}

/// Parts of `count` in the proportions of the lines; what is left over goes to the largest remainders.
fn shares(lines: &[usize], count: usize) -> Vec<usize> {
    let total = lines.iter().sum::<usize>().max(1);
    let mut shares: Vec<usize> = lines.iter().map(|lines| lines * count / total).collect();
    let mut by_rest: Vec<usize> = (0..lines.len()).collect();
    by_rest.sort_by_key(|at| usize::MAX - lines[*at] * count % total);
    let left = count - shares.iter().sum::<usize>();
    for at in by_rest.into_iter().take(left) {
        shares[at] += 1;
    }
    shares
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn shuffled<T>(&mut self, items: Vec<T>) -> Vec<T> {
        let mut keyed: Vec<(u64, T)> = items.into_iter().map(|item| (self.next(), item)).collect();
        keyed.sort_by_key(|(key, _)| *key);
        keyed.into_iter().map(|(_, item)| item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_in_proportion_and_add_up() {
        assert_eq!(shares(&[100, 200, 700], 10), [1, 2, 7]);
        assert_eq!(shares(&[1, 1, 1], 10).iter().sum::<usize>(), 10);
        assert_eq!(shares(&[6, 4, 1], 2), [1, 1, 0]);
        assert_eq!(shares(&[0, 5], 3), [0, 3]);
    }

    #[test]
    fn a_seed_draws_the_same_and_another_does_not() {
        let drawn = |seed| Random(seed).shuffled((0..50).collect::<Vec<u32>>());
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}
