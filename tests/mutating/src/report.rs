//! What became of the mutants, crate by crate, and which survive.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rpcrdma_mutants::table::{self, Equivalent};

use crate::list::{Listed, PACKAGES};
use crate::state::{Caught, Entry, Found, State};

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    own: usize,
    across: usize,
    survived: usize,
    equivalent: usize,
}

/// The results so far.
#[derive(Debug)]
pub struct Report<'a> {
    drawn: &'a [&'a Listed],
    refused: usize,
    equivalent: Vec<Equivalent>,
    counts: BTreeMap<&'a str, Count>,
    survivors: BTreeSet<(usize, String)>,
    weak: BTreeSet<(usize, String)>,
}

impl<'a> Report<'a> {
    /// Without results.
    ///
    /// # Errors
    /// If the list of equivalent mutants cannot be read.
    pub fn new(
        root: &Path,
        drawn: &'a [&'a Listed],
        refused: &BTreeSet<usize>,
    ) -> Result<Self, String> {
        Ok(Self {
            drawn,
            refused: refused.len(),
            equivalent: table::equivalent(root)?,
            counts: BTreeMap::new(),
            survivors: BTreeSet::new(),
            weak: BTreeSet::new(),
        })
    }

    /// Adds the results that are known; returns the mutants without.
    pub fn add_known(&mut self, state: &State, numbers: Vec<usize>) -> Vec<usize> {
        let mut left = numbers;
        for entry in &state.before {
            let Entry::Found(found) = entry else { continue };
            if left.contains(&found.number) {
                left.retain(|number| *number != found.number);
                self.add(found);
            }
        }
        left
    }

    /// Adds a result, and prints one that is no success.
    pub fn add(&mut self, found: &Found) {
        let mutant = self.drawn[found.number - 1];
        let is_same = |known: &Equivalent| {
            (&known.file, &known.change, &known.code)
                == (&mutant.file, &mutant.change, &mutant.code)
        };
        let is_equivalent = self.equivalent.iter().any(is_same);
        let count = self.counts.entry(&mutant.package).or_default();
        let Listed { file, line, change, code, .. } = mutant;
        let text = format!("{file}:{line}: {change}\n    {code}\n    {}", found.how);
        match found.caught {
            Caught::Own => count.own += 1,
            Caught::Across => {
                count.across += 1;
                self.weak.insert((found.number, text));
            }
            Caught::Never if is_equivalent => count.equivalent += 1,
            Caught::Never => {
                count.survived += 1;
                println!("SURVIVED {text}");
                self.survivors.insert((found.number, text));
            }
        }
    }

    /// Prints everything.
    pub fn print(&self, seed: u64) {
        println!("\nNoticed by tests of other crates only:");
        self.weak.iter().for_each(|(_, text)| println!("{text}"));
        println!("\nSurvivors:");
        self.survivors.iter().for_each(|(_, text)| println!("{text}"));
        println!("\ncrate                mutants  own  across  survived  equivalent");
        let mut total = Count::default();
        for package in PACKAGES {
            let count = self.counts.get(package).copied().unwrap_or_default();
            count.print(package);
            total.own += count.own;
            total.across += count.across;
            total.survived += count.survived;
            total.equivalent += count.equivalent;
        }
        total.print("all");
        let Count { own, across, survived, .. } = total;
        let all = (own + across + survived).max(1);
        println!(
            "\nseed {seed}: {survived} of {all} survive ({:.1} %), {} the tests of their crate \
             ({:.1} %); {} of those drawn do not compile, or only as constants",
            percent(survived, all),
            across + survived,
            percent(across + survived, all),
            self.refused,
        );
    }
}

impl Count {
    fn print(&self, name: &str) {
        let Self { own, across, survived, equivalent } = *self;
        let all = own + across + survived + equivalent;
        println!("{name:20} {all:7} {own:4} {across:7} {survived:9} {equivalent:11}");
    }
}

fn percent(part: usize, all: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of hundreds")]
    let percent = 100.0 * part as f64 / all as f64;
    percent
}
