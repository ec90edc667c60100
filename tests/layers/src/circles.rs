//! Circles: files of which each imports every other, directly or through others.

use std::collections::BTreeSet;

use crate::modules::Import;

/// Files that import each other, and the imports among them.
#[derive(Debug)]
pub struct Circle {
    pub files: BTreeSet<String>,
    pub imports: Vec<Import>,
}

/// All circles, each as large as it is.
pub fn find(imports: &[Import]) -> Vec<Circle> {
    let names: BTreeSet<&str> =
        imports.iter().flat_map(|import| [import.from.as_str(), import.to.as_str()]).collect();
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
        let files: BTreeSet<String> = members.iter().map(|at| names[*at].to_owned()).collect();
        let is_among =
            |import: &&Import| files.contains(&import.from) && files.contains(&import.to);
        let among = imports.iter().filter(is_among).cloned().collect();
        circles.push(Circle { files, imports: among });
    }
    circles
}

/// Which file reaches which by one import or more.
fn closure(imports: &[Import], names: &[&str]) -> Vec<Vec<bool>> {
    let index = |name: &str| names.binary_search(&name).expect("every name is in the list");
    let mut reaches = vec![vec![false; names.len()]; names.len()];
    for import in imports {
        reaches[index(&import.from)][index(&import.to)] = true;
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

    fn circles(imports: &[(&str, &str)]) -> Vec<Vec<String>> {
        let import = |(from, to): &(&str, &str)| Import {
            from: (*from).to_owned(),
            line: 1,
            to: (*to).to_owned(),
            name: String::new(),
        };
        let imports: Vec<Import> = imports.iter().map(import).collect();
        find(&imports).into_iter().map(|circle| circle.files.into_iter().collect()).collect()
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
