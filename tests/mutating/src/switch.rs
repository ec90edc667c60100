//! One source with many mutations, each behind a switch: `RPCRDMA_MUTANT=7` turns on number 7.

use std::ops::Range;

use crate::regions::{Region, Shape};

/// The variable of the environment that names the mutation.
pub const VARIABLE: &str = "RPCRDMA_MUTANT";

/// The variable that names a folder for a file of each switch that is reached.
pub const REACHED: &str = "RPCRDMA_REACHED";

/// What is changed within a region.
#[derive(Debug, Clone)]
pub struct Edit {
    /// The number of the switch.
    pub number: usize,
    /// What is switched.
    pub region: Region,
    /// The bytes within the region that are replaced.
    pub part: Range<usize>,
    /// What takes their place.
    pub other: String,
}

/// Where a mutation is in a source with switches.
#[derive(Debug, Clone)]
pub struct Place {
    /// The number of the switch.
    pub number: usize,
    /// What was put in.
    pub other: Range<usize>,
    /// The mutated code alone, around it.
    pub mutated: Range<usize>,
    /// The switch with all that is behind it.
    pub switch: Range<usize>,
}

/// The source with all edits behind switches, and where these are. Regions of different edits lie
/// apart or within each other.
#[must_use]
pub fn weave(source: &str, edits: &[Edit]) -> (String, Vec<Place>) {
    let mut ordered: Vec<&Edit> = edits.iter().collect();
    // Outer regions come before those within them.
    ordered.sort_by_key(|edit| {
        let Range { start, end } = edit.region.range;
        (start, usize::MAX - end, edit.region.shape == Shape::Expression)
    });
    let mut weaver = Weaver { source, text: String::new(), places: Vec::new() };
    weaver.weave(0..source.len(), &ordered);
    (weaver.text, weaver.places)
}

struct Weaver<'a> {
    source: &'a str,
    text: String,
    places: Vec<Place>,
}

impl Weaver<'_> {
    /// Writes a part of the source with the switches of the edits in it.
    fn weave(&mut self, part: Range<usize>, mut edits: &[&Edit]) {
        let mut at = part.start;
        while let Some(first) = edits.first() {
            let region = &first.region;
            let same = edits.iter().take_while(|edit| edit.region == *region).count();
            let (here, others) = edits.split_at(same);
            let is_inside = |edit: &&&Edit| edit.region.range.end <= region.range.end;
            let (inside, behind) = others.split_at(others.iter().take_while(is_inside).count());
            self.text.push_str(&self.source[at..region.range.start]);
            self.switch(here, inside);
            at = region.range.end;
            edits = behind;
        }
        self.text.push_str(&self.source[at..part.end]);
    }

    /// Writes the region of the edits `here`, in which those `inside` are.
    fn switch(&mut self, here: &[&Edit], inside: &[&Edit]) {
        let Some(Edit { region: Region { range, shape, .. }, .. }) = here.first() else { return };
        let (open, close) = match shape {
            Shape::Expression => ("(", ")"),
            Shape::Statement => ("", ""),
            Shape::Block => (" ", " "),
        };
        let start = self.text.len();
        let first = self.places.len();
        self.text.push_str(open);
        for edit in here {
            self.text.push_str(&condition(edit.number));
            let began = self.text.len();
            self.text.push_str(&self.source[range.start..edit.part.start]);
            let other = self.text.len()..self.text.len() + edit.other.len();
            self.text.push_str(&edit.other);
            self.text.push_str(&self.source[edit.part.end..range.end]);
            let mutated = began..self.text.len();
            let switch = start..start;
            self.places.push(Place { number: edit.number, other, mutated, switch });
            self.text.push_str("} else ");
        }
        self.text.push('{');
        self.weave(range.clone(), inside);
        self.text.push('}');
        self.text.push_str(close);
        let end = self.text.len();
        for place in self.places.iter_mut().skip(first).take(here.len()) {
            place.switch.end = end;
        }
    }
}

/// Reads the environment once, and notes that it was reached. It has to stand alone: the source may
/// be of any crate.
fn condition(number: usize) -> String {
    format!(
        "if {{ static ON: ::std::sync::OnceLock<bool> = ::std::sync::OnceLock::new(); \
         *ON.get_or_init(|| {{ \
         if let Some(folder) = ::std::env::var_os(\"{REACHED}\") {{ \
         let _ = ::std::fs::File::create(::std::path::Path::new(&folder).join(\"{number}\")); }} \
         ::std::env::var_os(\"{VARIABLE}\").is_some_and(|on| on == \"{number}\") }}) }} {{"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regions;

    /// The source with these mutations, by text, each in the smallest region; `0?` is a condition.
    fn woven(source: &str, changes: &[(&str, &str)]) -> String {
        let regions = regions::of(source).expect("Rust");
        let edit = |(number, (text, other)): (usize, &(&str, &str))| {
            let start = source.find(text).expect("the text");
            let part = start..start + text.len();
            let region = regions::around(&regions, &part).swap_remove(0);
            Edit { number, region, part, other: (*other).to_owned() }
        };
        let edits: Vec<Edit> = changes.iter().enumerate().map(edit).collect();
        let (text, places) = weave(source, &edits);
        for place in &places {
            let part = &text[place.switch.clone()];
            assert!(part.contains(&condition(place.number)) && part.ends_with(['}', ')', ' ']));
            assert!(text[place.mutated.clone()].contains(changes[place.number].1));
        }
        assert!(syn::parse_file(&text).is_ok(), "{text}");
        (0..changes.len()).fold(text, |text, number| {
            text.replace(&condition(number), &format!("if {number}? {{"))
        })
    }

    #[test]
    fn a_mutation_is_behind_its_switch() {
        assert_eq!(
            woven("fn f() { let a = b + 1; }", &[("+", "-")]),
            "fn f() { let a = (if 0? {b - 1} else {b + 1}); }"
        );
        assert_eq!(
            woven("fn f() { g(); h() }", &[("g();", ""), ("h()", "i()")]),
            "fn f() { if 0? {} else {g();} if 1? {i()} else {h()} }"
        );
    }

    #[test]
    fn mutations_of_one_region_and_within_each_other_have_switches_of_their_own() {
        assert_eq!(
            woven(
                "fn f() { a = b + 1; }",
                &[("+", "-"), ("+", "*"), ("1", "2"), ("a = b", "c = b")]
            ),
            "fn f() { if 3? {c = b + 1;} else {a = (if 0? {b - 1} else if 1? {b * 1} else \
             {b + (if 2? {2} else {1})});} }"
        );
    }
}
