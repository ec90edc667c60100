//! `tests/mutants`: how many mutants of a random sample the tests notice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rpcrdma_mutants::names::Program;

use crate::batch::{self, Mutant, Switches};
use crate::cargo::Executable;
use crate::draw::{self, Draw};
use crate::list::{self, Listed, PACKAGES};
use crate::report::Report;
use crate::rows::Place;
use crate::state::{Caught, Entry, Found, Header, State, Tried};
use crate::survey;
use crate::trial::{Ending, Trial};
use crate::workers;

/// The time of tests with a mutation, above what they take without in five runs.
const GRACE: Duration = Duration::from_secs(30);

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// What the mutants are drawn by.
    pub seed: u64,
    /// How many are tried.
    pub count: usize,
    /// Whether an earlier run of the same is continued.
    pub is_continued: bool,
}

/// Draws, compiles and tries the mutants, and prints what became of them.
///
/// # Errors
/// If something cannot be compiled, run or written.
pub fn run(place: &Place, options: Options) -> Result<(), String> {
    let all = list::mutants(&place.root, &place.target)?;
    let draws = draw::draw(&place.root, &all, options.seed, options.count)?;
    let drawn: Vec<&Listed> = draws.iter().flat_map(|draw| &draw.mutants).collect();
    let (copy, cargo) = place.copy("sample")?;
    let Options { seed, count, is_continued } = options;
    let header = Header { seed, count, sources: copy.sum()? };
    let state = State::open(&place.target.join("sample.jsonl"), &header, is_continued)?;
    let built = batch::build_all(&copy, &cargo, mutants(&drawn), switches(&state), |switches| {
        state.add(&Entry::Switches(switches.clone()))
    })?;
    let refused: BTreeSet<usize> = built.refused.iter().map(|one| one.mutant.number).collect();
    let chosen = choose(&draws, &refused);
    let mut report = Report::new(&place.root, &drawn, &refused)?;
    let mut bench =
        Bench { programs: &built.programs.programs, tests: tests(&state), drawn: &drawn };
    let mut left = report.add_known(&state, chosen);
    let folder = place.target.join("reached");
    for crates in [Crates::Own, Crates::Others] {
        let programs = crates.programs(bench.programs);
        survey::add(&mut bench.tests, &programs, &folder, &state, place.jobs)?;
        let work = |number: usize| bench.find(number, crates);
        let mut outcome = Ok(());
        let tried = match crates {
            Crates::Own => without_left(&state, &left),
            // Of a run that is stopped here, those that were tried are a sample of all that are left.
            Crates::Others => draw::shuffled(seed, left.clone()),
        };
        workers::run(place.jobs, tried, work, |number, found| {
            let added = found.and_then(|found| match (found, crates) {
                (Some(found), _) => {
                    left.retain(|other| *other != number);
                    report.add(&found);
                    state.add(&Entry::Found(found))
                }
                (None, _) => state.add(&Entry::Left(number)),
            });
            if added.is_err() {
                outcome = added;
            }
        });
        outcome?;
        println!("{} of {} mutants are left", left.len(), options.count);
    }
    report.print(seed);
    Ok(())
}

/// Those that were not tried with the tests of their crate yet.
fn without_left(state: &State, numbers: &[usize]) -> Vec<usize> {
    let is_tried = |number: usize| {
        state.before.iter().any(|entry| matches!(entry, Entry::Left(left) if *left == number))
    };
    numbers.iter().copied().filter(|number| !is_tried(*number)).collect()
}

/// The tests that are known.
fn tests(state: &State) -> Vec<Tried> {
    let tried = |entry: &Entry| match entry {
        Entry::Tried(tried) => Some(tried.clone()),
        _ => None,
    };
    state.before.iter().filter_map(tried).collect()
}

/// The last places of the switches that were written.
fn switches(state: &State) -> Switches {
    let mut last = Switches::new();
    for entry in &state.before {
        if let Entry::Switches(switches) = entry {
            last.clone_from(switches);
        }
    }
    last
}

/// With the numbers of their switches, from 1.
fn mutants(drawn: &[&Listed]) -> Vec<Mutant> {
    let mutant = |(at, listed): (usize, &&Listed)| Mutant {
        number: at + 1,
        file: listed.file.clone(),
        part: listed.part.clone(),
        other: listed.other.clone(),
    };
    drawn.iter().enumerate().map(mutant).collect()
}

/// Of each crate the first that compile, as many as it is to have.
fn choose(draws: &[Draw], refused: &BTreeSet<usize>) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut first = 1;
    for draw in draws {
        let numbers = first..first + draw.mutants.len();
        first = numbers.end;
        let good: Vec<usize> =
            numbers.filter(|number| !refused.contains(number)).take(draw.count).collect();
        if good.len() < draw.count {
            println!("{}: {} mutants compile, not {}", draw.package, good.len(), draw.count);
        }
        chosen.extend(good);
    }
    chosen
}

/// Whose tests a mutant is tried with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crates {
    /// Those of its crate.
    Own,
    /// Those of other crates.
    Others,
}

impl Crates {
    /// The programs that have such tests of any mutant.
    fn programs(self, all: &BTreeMap<Program, Executable>) -> Vec<(&Program, &Executable)> {
        let is_measured = |program: &Program| PACKAGES.contains(&program.package.as_str());
        let is_one =
            |(program, _): &(&Program, &Executable)| self == Crates::Others || is_measured(program);
        all.iter().filter(is_one).collect()
    }
}

/// What mutants are tried with.
struct Bench<'a> {
    programs: &'a BTreeMap<Program, Executable>,
    tests: Vec<Tried>,
    drawn: &'a [&'a Listed],
}

/// The tests of a program that reach a mutant.
struct Reaching<'a> {
    program: &'a Program,
    ms: u64,
    names: Vec<String>,
}

impl Bench<'_> {
    /// Tries a mutant with the tests that reach it, the quick ones first. One that no test of any
    /// crate notices survives; one that none of its own notices is none yet.
    fn find(&self, number: usize, crates: Crates) -> Result<Option<Found>, String> {
        let package = &self.drawn[number - 1].package;
        let mut reaching: Vec<Reaching<'_>> = Vec::new();
        for test in self.tests.iter().filter(|test| test.is_passed) {
            let is_own = test.program.package == *package;
            if is_own != (crates == Crates::Own) || !test.reached.contains(&number) {
                continue;
            }
            match reaching.iter_mut().find(|known| *known.program == test.program) {
                Some(known) => {
                    known.ms += test.ms;
                    known.names.push(test.name.clone());
                }
                None => reaching.push(Reaching {
                    program: &test.program,
                    ms: test.ms,
                    names: vec![test.name.clone()],
                }),
            }
        }
        reaching.sort_by_key(|tests| tests.ms);
        let caught = if crates == Crates::Own { Caught::Own } else { Caught::Across };
        for tests in &reaching {
            if let Some(how) = self.try_with(number, tests)? {
                return Ok(Some(Found { number, caught, how }));
            }
        }
        let all = self.tests.iter().filter(|test| test.reached.contains(&number)).count();
        let how = format!("{all} tests reach it");
        let survivor = Found { number, caught: Caught::Never, how };
        Ok((crates == Crates::Others).then_some(survivor))
    }

    /// How the tests of a program notice a mutant, if they do: twice, so that it is no accident.
    fn try_with(&self, number: usize, tests: &Reaching<'_>) -> Result<Option<String>, String> {
        let mut names = tests.names.clone();
        loop {
            let ending = self.run(number, tests, &names)?;
            let Ending::Failed(name) = &ending else {
                return Ok(ending.is_caught().then(|| format!("{ending:?}")));
            };
            if self.run(number, tests, std::slice::from_ref(name))?.is_caught() {
                return Ok(Some(name.clone()));
            }
            println!("{name} failed with mutant {number}, and alone it passed");
            names.retain(|other| other != name);
            if names.is_empty() {
                return Ok(None);
            }
        }
    }

    fn run(&self, number: usize, tests: &Reaching<'_>, names: &[String]) -> Result<Ending, String> {
        let executable = self.programs.get(tests.program);
        let executable = executable.ok_or(format!("no program {:?}", tests.program))?;
        let mut arguments = names.to_vec();
        arguments.push("--exact".into());
        let limit = 5 * Duration::from_millis(tests.ms) + GRACE;
        let number = Some(number);
        Trial { executable, number, reached: None, arguments: &arguments, limit }.run()
    }
}
