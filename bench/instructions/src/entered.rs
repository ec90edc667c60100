//! What a call enters: the functions of this project, how often, and their files.
//!
//! The figures are those of a reader who follows a call in the sources, if nothing is inlined. Each
//! is of the server's side of one kind of call.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

/// What one side enters for its calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// Distinct functions, generic ones once.
    pub functions: usize,
    /// Calls of them, for all calls together.
    pub calls: u64,
    /// Distinct files of these functions.
    pub files: usize,
}

impl Entered {
    /// Reads what callgrind wrote of one part. A function is ours if its file is below `root`.
    pub fn read(text: &str, root: &str) -> Entered {
        let (mut functions, mut files) = (BTreeSet::new(), BTreeSet::new());
        // Where the function is, where the instructions are that were inlined into it, what it calls.
        let (mut file, mut inlined, mut function, mut called) = ("", "", "", None);
        let mut calls = 0;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fl=") {
                (file, inlined) = (name, name);
            } else if let Some(name) = ["fi=", "fe="].iter().find_map(|it| line.strip_prefix(it)) {
                inlined = name;
            } else if let Some(name) = line.strip_prefix("fn=") {
                function = name;
            } else if let Some(name) = ["cfi=", "cfl="].iter().find_map(|it| line.strip_prefix(it))
            {
                called = Some(name);
            } else if let Some(count) = line.strip_prefix("calls=") {
                let count = count.split(' ').next().and_then(|count| count.parse::<u64>().ok());
                if called.take().unwrap_or(inlined).starts_with(root) {
                    calls += count.unwrap_or_default();
                }
            } else if line.starts_with(|first: char| first.is_ascii_digit())
                && file.starts_with(root)
            {
                functions.insert((file, name(function)));
                files.insert(file);
            }
        }
        Entered { functions: functions.len(), calls, files: files.len() }
    }

    /// For each of so many calls.
    pub fn per_call(self, of: u64) -> Entered {
        Entered { calls: self.calls.div_ceil(of), ..self }
    }
}

impl Display for Entered {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Entered { functions, calls, files } = self;
        write!(f, "{functions:>4} functions {calls:>5} calls {files:>4} files")
    }
}

/// A function without its types and the compiler's mark: `a::b<C>::f'2` is `a::b::f`.
fn name(function: &str) -> String {
    let (mut depth, mut is_arrow) = (0, false);
    let is_kept = |letter: &char| {
        depth += i32::from(*letter == '<');
        let is_outside = depth == 0;
        depth -= i32::from(*letter == '>' && !is_arrow);
        is_arrow = *letter == '-';
        is_outside
    };
    let plain: String = function.chars().filter(is_kept).collect();
    plain.split('\'').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_calls_and_files_of_this_project_are_counted() {
        let text = "positions: line\nevents: Ir\nob=/p\nfl=/ours/a.rs\nfn=f<u8>\n1 2\ncfn=g\ncalls=3 0\n\
                    1 9\ncfi=/std/vec.rs\ncfn=push\ncalls=5 0\n1 9\nfn=f<u16>\n2 1\nfi=/std/slice.rs\ncfn=get\ncalls=9 0\n2 1\n\nfl=/ours/b.rs\nfn=h\n\
                    3 1\nfn=g\nfl=/std/vec.rs\nfn=push\n1 1\ncfi=/ours/b.rs\ncfn=h\ncalls=4 0\n1 4\n";
        let entered = Entered::read(text, "/ours/");
        assert_eq!(entered, Entered { functions: 2, calls: 7, files: 2 });
        assert_eq!(entered.per_call(2), Entered { functions: 2, calls: 4, files: 2 });
    }

    #[test]
    fn a_generic_function_is_one() {
        assert_eq!(name("a::b<C, d::E<F>>::f<G>'2"), "a::b::f");
        assert_eq!(name("<a::B as c::D>::f"), "::f");
        assert_eq!(name("a::f<fn(u8) -> u8>::g"), "a::f::g");
    }
}
