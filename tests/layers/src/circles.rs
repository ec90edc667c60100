//! Circles: what imports each other, directly or through others.

use std::collections::BTreeSet;

/// The members of each circle, as large as it is. An import is from the first to the second.
pub fn find<'a>(imports: &[(&'a str, &'a str)]) -> Vec<BTreeSet<&'a str>> {
    let names: BTreeSet<&str> = imports.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let reaches = closure(imports, &names);
    let mut circles = Vec::new();
    let mut is_placed = vec![false; names.len()];
    for one in 0..names.len() {
        if is_placed[one] || !reaches[one][one] {
            continue;
        }
        let is_in = |other: &usize| reaches[one][*other] && reaches[*other][one];
        let members: Vec<usize> = (one..names.len()).filter(is_in).collect();
        members.iter().for_each(|member| is_placed[*member] = true);
        circles.push(members.iter().map(|at| names[*at]).collect());
    }
    circles
}

/// Which name reaches which by one import or more.
fn closure(imports: &[(&str, &str)], names: &[&str]) -> Vec<Vec<bool>> {
    let index = |name: &str| names.binary_search(&name).expect("every name is in the list");
    let mut reaches = vec![vec![false; names.len()]; names.len()];
    for (from, to) in imports {
        reaches[index(from)][index(to)] = true;
    }
    for through in 0..names.len() {
        let onward = reaches[through].clone();
        for row in reaches.iter_mut().filter(|row| row[through]) {
            row.iter_mut().zip(&onward).for_each(|(to, further)| *to |= further);
        }
    }
    reaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles<'a>(imports: &[(&'a str, &'a str)]) -> Vec<Vec<&'a str>> {
        find(imports).into_iter().map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn paths_to_and_from_a_circle_are_not_in_it() {
        let found = circles(&[("in", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "out")]);
        assert_eq!(found, [["a", "b", "c"]]);
    }

    #[test]
    fn two_circles_are_reported_apart_and_a_ladder_is_none() {
        let found = circles(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")]);
        assert_eq!(found, [["a", "b"], ["c", "d"]]);
        assert!(circles(&[("a", "b"), ("a", "c"), ("b", "c")]).is_empty());
    }
}
