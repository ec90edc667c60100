//! Many mutations in one copy, each behind a switch: those that the compiler refuses are found, and
//! left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;

use rpcrdma_mutants::names::Program;

use crate::cargo::{Cargo, Fault, Outcome};
use crate::copy::Copy;
use crate::regions::{self, Constant, Region};
use crate::switch::{self, Edit, Place};

/// Errors that another region does not mend: what is put in has no meaning there.
const FINAL: [&str; 6] = ["E0277", "E0369", "E0425", "E0433", "E0599", "E0600"];

/// A function was called by the compiler that it cannot run, because of its switch.
const CALL_IN_CONSTANT: &str = "E0015";

/// A mutation of a file.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The number of its switch.
    pub number: usize,
    /// The file, from the root.
    pub file: String,
    /// The bytes that are replaced.
    pub part: Range<usize>,
    /// What takes their place.
    pub other: String,
}

/// How far the compiler moved the switch of a mutation outwards, of each number; `None` if it
/// refused all places.
pub type Switches = BTreeMap<usize, Option<usize>>;

/// A mutation in the batch.
struct Member {
    mutant: Mutant,
    /// Where a switch may be, the smallest region first. The first is tried.
    regions: Vec<Region>,
    /// How many smaller ones there were.
    moves: usize,
}

/// A mutation that cannot be behind a switch.
#[derive(Debug)]
pub struct Refused {
    /// The mutation.
    pub mutant: Mutant,
    /// Why.
    pub why: String,
}

/// The mutations that can be switched on, and the programs that have them.
#[derive(Debug)]
pub struct Built {
    /// The programs.
    pub programs: Outcome,
    /// Those that cannot.
    pub refused: Vec<Refused>,
}

/// Compiles the programs with the mutations.
///
/// # Errors
/// If the copy does not compile for a reason of its own.
pub fn build(
    copy: &Copy,
    cargo: &Cargo,
    mutants: Vec<Mutant>,
    programs: &BTreeSet<Program>,
) -> Result<Built, String> {
    let mut batch = Batch::new(copy, mutants)?;
    batch.compile(copy, || cargo.check(programs), |_| Ok(()))?;
    let programs = batch.compile(copy, || cargo.build(programs), |_| Ok(()))?;
    Ok(Built { programs, refused: batch.refused })
}

/// Compiles all test programs with the mutations. What the compiler decides about them goes to
/// `switches`, where `save` keeps it.
///
/// # Errors
/// As [`build`].
pub fn build_all(
    copy: &Copy,
    cargo: &Cargo,
    mutants: Vec<Mutant>,
    mut switches: Switches,
    save: impl Fn(&Switches) -> Result<(), String>,
) -> Result<Built, String> {
    let mut batch = Batch::new(copy, mutants)?;
    batch.resume(&switches);
    let mut keep = |batch: &Batch| {
        switches = batch.switches();
        save(&switches)
    };
    batch.compile(copy, || cargo.check_libraries(), &mut keep)?;
    let programs = batch.compile(copy, || cargo.build_all(), &mut keep)?;
    Ok(Built { programs, refused: batch.refused })
}

struct Batch {
    /// The files that are mutated.
    sources: BTreeMap<String, String>,
    members: Vec<Member>,
    refused: Vec<Refused>,
}

impl Batch {
    fn new(copy: &Copy, mutants: Vec<Mutant>) -> Result<Batch, String> {
        let mut sources = BTreeMap::new();
        let mut regions_of = BTreeMap::new();
        let (mut members, mut refused) = (Vec::new(), Vec::new());
        for mutant in mutants {
            let file = &mutant.file;
            if !sources.contains_key(file) {
                let read = fs::read_to_string(copy.root.join(file));
                let source = read.map_err(|error| format!("{file}: {error}"))?;
                regions_of.insert(file.clone(), regions::of(&source).unwrap_or_default());
                sources.insert(file.clone(), source);
            }
            let regions = regions_of.get(file).map_or(&[][..], Vec::as_slice);
            let regions = regions::around(regions, &mutant.part);
            match regions.is_empty() {
                true => refused.push(Refused { mutant, why: "it is in no code that runs".into() }),
                false => members.push(Member { mutant, regions, moves: 0 }),
            }
        }
        Ok(Batch { sources, members, refused })
    }

    /// Moves switches outwards, or leaves mutations out, until the compiler is content.
    fn compile(
        &mut self,
        copy: &Copy,
        compile: impl Fn() -> Result<Outcome, String>,
        mut keep: impl FnMut(&Batch) -> Result<(), String>,
    ) -> Result<Outcome, String> {
        loop {
            let places = self.write(copy)?;
            let outcome = compile()?;
            if outcome.errors.is_empty() {
                return Ok(outcome);
            }
            let mut blamed: BTreeMap<usize, &Fault> = BTreeMap::new();
            for fault in &outcome.errors {
                for number in self.blame(fault, &places) {
                    blamed.entry(number).or_insert(fault);
                }
            }
            if blamed.is_empty() {
                return Err(outcome.errors.into_iter().map(|fault| fault.text).collect());
            }
            eprintln!("{} mutations do not compile where they are", blamed.len());
            self.move_outwards(&blamed, &places);
            keep(self)?;
        }
    }

    /// Puts the switches where they were in the end in an earlier run.
    fn resume(&mut self, switches: &Switches) {
        let mut members = Vec::new();
        for mut member in std::mem::take(&mut self.members) {
            match switches.get(&member.mutant.number) {
                None => members.push(member),
                Some(Some(moves)) if *moves < member.regions.len() => {
                    member.regions.drain(..moves);
                    member.moves = *moves;
                    members.push(member);
                }
                Some(_) => {
                    let why = "it did not compile".to_owned();
                    self.refused.push(Refused { mutant: member.mutant, why });
                }
            }
        }
        self.members = members;
    }

    fn switches(&self) -> Switches {
        let members = self.members.iter().map(|member| (member.mutant.number, Some(member.moves)));
        let refused = self.refused.iter().map(|refused| (refused.mutant.number, None));
        members.chain(refused).collect()
    }

    /// Writes the copy; returns where the switches are in each file.
    fn write(&self, copy: &Copy) -> Result<BTreeMap<String, Vec<Place>>, String> {
        let mut changed = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (file, source) in &self.sources {
            let members = self.members.iter().filter(|member| member.mutant.file == *file);
            let edits: Vec<Edit> = members.filter_map(Member::edit).collect();
            let (text, found) = switch::weave(&without_const(source, &edits), &edits);
            changed.insert(file.clone(), text);
            places.insert(file.clone(), found);
        }
        copy.update(&changed)?;
        Ok(places)
    }

    fn blame(&self, fault: &Fault, places: &BTreeMap<String, Vec<Place>>) -> Vec<usize> {
        if fault.code != CALL_IN_CONSTANT {
            return blame(fault, places);
        }
        let names = |member: &&Member| {
            let constant = member.regions.first().and_then(|region| region.constant.as_ref());
            let ends = |constant: &Constant| {
                let name = &constant.name;
                fault.text.lines().next().is_some_and(|line| {
                    line.contains(&format!("::{name}`")) || line.contains(&format!("`{name}`"))
                })
            };
            constant.is_some_and(ends)
        };
        let called = self.members.iter().filter(names).map(|member| member.mutant.number);
        let called: Vec<usize> = called.collect();
        if called.is_empty() { blame(fault, places) } else { called }
    }

    fn move_outwards(
        &mut self,
        blamed: &BTreeMap<usize, &Fault>,
        places: &BTreeMap<String, Vec<Place>>,
    ) {
        let mut members = Vec::new();
        for mut member in std::mem::take(&mut self.members) {
            let Some(fault) = blamed.get(&member.mutant.number) else {
                members.push(member);
                continue;
            };
            member.regions.remove(0);
            member.moves += 1;
            if member.regions.is_empty() || is_final(fault, &member.mutant, places) {
                let why = fault.text.lines().next().unwrap_or_default().to_owned();
                self.refused.push(Refused { mutant: member.mutant, why });
            } else {
                members.push(member);
            }
        }
        self.members = members;
    }
}

impl Member {
    fn edit(&self) -> Option<Edit> {
        let Mutant { number, part, other, .. } = self.mutant.clone();
        Some(Edit { number, region: self.regions.first()?.clone(), part, other })
    }
}

/// Whether the error is about what was put in, and would be so anywhere.
fn is_final(fault: &Fault, mutant: &Mutant, places: &BTreeMap<String, Vec<Place>>) -> bool {
    if fault.code == CALL_IN_CONSTANT {
        return true;
    }
    let Some((file, span)) = fault.places.first() else { return false };
    let mut here = places.get(file).into_iter().flatten();
    let place = here.find(|place| place.number == mutant.number);
    let touches = |place: &Place| {
        span.start <= place.other.end
            && place.other.start <= span.end
            && place.mutated.start <= span.start
            && span.end <= place.mutated.end
    };
    FINAL.contains(&fault.code.as_str()) && place.is_some_and(touches)
}

/// The source without the word `const` of functions with switches, which the compiler cannot run.
fn without_const(source: &str, edits: &[Edit]) -> String {
    let mut source = source.to_owned();
    for constant in edits.iter().filter_map(|edit| edit.region.constant.as_ref()) {
        source.replace_range(constant.word.clone(), &" ".repeat(constant.word.len()));
    }
    source
}

/// The mutations that an error is of: that whose code it is in, or those whose switch it is in, or
/// those of its file.
fn blame(fault: &Fault, places: &BTreeMap<String, Vec<Place>>) -> Vec<usize> {
    let in_file = |file: &String| places.get(file).map_or(&[][..], Vec::as_slice);
    let contains = |outer: &Range<usize>, inner: &Range<usize>| {
        outer.start <= inner.start && inner.end <= outer.end
    };
    for (file, span) in &fault.places {
        let inside = in_file(file).iter().filter(|place| contains(&place.mutated, span));
        if let Some(place) = inside.min_by_key(|place| place.mutated.len()) {
            return vec![place.number];
        }
    }
    for (file, span) in &fault.places {
        let inside = in_file(file).iter().filter(|place| contains(&place.switch, span));
        if let Some(smallest) = inside.min_by_key(|place| place.switch.len()) {
            let same = in_file(file).iter().filter(|place| place.switch == smallest.switch);
            return same.map(|place| place.number).collect();
        }
    }
    for (file, span) in &fault.places {
        let touching = in_file(file).iter().filter(|place| contains(span, &place.switch));
        let touching: Vec<usize> = touching.map(|place| place.number).collect();
        if !touching.is_empty() {
            return touching;
        }
    }
    let files = fault.places.iter().map(|(file, _)| in_file(file));
    files.flatten().map(|place| place.number).collect()
}
