//! The order of its modules that the root of a crate states.

use std::collections::{BTreeMap, BTreeSet};

use crate::folders::Link;

/// The modules in the list below `# Layers` in the page of a crate, the uppermost first, those of one
/// item together; none if it has no such list.
pub fn stated(text: &str) -> Option<Vec<Vec<&str>>> {
    // A file may be a part of the page.
    let lines = text.lines().filter(|line| !line.starts_with("#![doc"));
    let lines = lines.map_while(|line| line.strip_prefix("//!"));
    let list = lines.skip_while(|line| line.trim() != "# Layers").skip(1);
    let items = list
        .skip_while(|line| !line.starts_with(" - "))
        .take_while(|line| line.starts_with(" - ") || line.starts_with("   "));
    let mut layers: Vec<Vec<&str>> = Vec::new();
    for line in items {
        match layers.last_mut() {
            Some(layer) if !line.starts_with(" - ") => layer.extend(names_of(line)),
            _ => layers.push(names_of(line).collect()),
        }
    }
    (!layers.is_empty()).then_some(layers)
}

/// The names between backticks, up to a colon: what follows explains them.
fn names_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(':').next().unwrap_or_default().split('`').skip(1).step_by(2)
}

/// What contradicts the order.
pub fn faults(order: &[Vec<&str>], entries: &BTreeSet<String>, links: &[Link]) -> Vec<String> {
    let place = |name: &str| order.iter().position(|layer| layer.contains(&name));
    let mut faults: Vec<String> = entries
        .iter()
        .filter(|name| place(name).is_none())
        .map(|name| format!("{name} is not in the list of layers"))
        .collect();
    let mut seen = BTreeSet::new();
    for name in order.iter().flatten() {
        if !entries.contains(*name) {
            faults.push(format!("{name} is in the list of layers and is no module"));
        } else if !seen.insert(name) {
            faults.push(format!("{name} is in the list of layers twice"));
        }
    }
    let upwards = links.iter().filter(|link| place(&link.to) <= place(&link.from));
    faults.extend(upwards.map(|link| format!("{link}, which does not stand below it")));
    faults
}

/// An order without contradictions, a layer in a line: what only others use is at the bottom. None
/// where there is a circle.
pub fn possible(entries: &BTreeSet<String>, links: &[Link]) -> Option<String> {
    let mut left: BTreeMap<&str, BTreeSet<&str>> =
        entries.iter().map(|name| (name.as_str(), BTreeSet::new())).collect();
    for link in links {
        left.entry(&link.from).or_default().insert(&link.to);
    }
    let mut layers = Vec::new();
    while !left.is_empty() {
        let is_lowest = |uses: &BTreeSet<&str>| uses.iter().all(|name| !left.contains_key(name));
        let layer: Vec<&str> =
            left.iter().filter(|(_, uses)| is_lowest(uses)).map(|(name, _)| *name).collect();
        if layer.is_empty() {
            return None;
        }
        left.retain(|name, _| !layer.contains(name));
        let names: Vec<String> = layer.iter().map(|name| format!("`{name}`")).collect();
        layers.push(format!("//! - {}", names.join(", ")));
    }
    layers.reverse();
    Some(layers.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::Import;

    fn link(from: &str, to: &str) -> Link {
        let import = Import {
            from: format!("{from}.rs"),
            line: 3,
            to: format!("{to}.rs"),
            name: "x".to_owned(),
        };
        Link { from: from.to_owned(), to: to.to_owned(), import }
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_list_is_read_up_to_its_end() {
        let page = "//! A crate.\n#![doc = include_str!(\"README.md\")]\n//!\n//! - `no`\n//!\n\
                    //! # Layers\n//!\n//! Rule `no`.\n//!\n\
                    //! - `a`, `b`: what uses `no`\n//! - `c`,\n//!   `d`\n//!\n//! - `no`\nmod a;";
        assert_eq!(stated(page), Some(vec![vec!["a", "b"], vec!["c", "d"]]));
        assert_eq!(stated("//! A crate.\n//! - `a`\nmod a;"), None);
    }

    #[test]
    fn what_contradicts_the_order_is_a_fault() {
        let entries = set(&["a", "b", "c"]);
        let links = [link("a", "b"), link("b", "c")];
        let apart =
            |names: &[&'static str]| names.iter().map(|name| vec![*name]).collect::<Vec<_>>();
        assert_eq!(faults(&apart(&["a", "b", "c"]), &entries, &links), [""; 0]);
        let upwards = "  b.rs:3 imports x of c.rs, which does not stand below it";
        assert_eq!(faults(&apart(&["c", "a", "b"]), &entries, &links), [upwards]);
        assert_eq!(faults(&[vec!["a"], vec!["b", "c"]], &entries, &links), [upwards]);
        assert_eq!(
            faults(&apart(&["a", "b", "a", "d"]), &entries, &links[..1]),
            [
                "c is not in the list of layers",
                "a is in the list of layers twice",
                "d is in the list of layers and is no module"
            ]
        );
    }

    #[test]
    fn an_order_is_proposed_where_there_is_one() {
        let entries = set(&["a", "b", "c", "d"]);
        let links = [link("a", "b"), link("a", "c"), link("b", "d"), link("c", "d")];
        let expected = "//! - `a`\n//! - `b`, `c`\n//! - `d`";
        assert_eq!(possible(&entries, &links).as_deref(), Some(expected));
        assert_eq!(possible(&entries, &[link("a", "b"), link("b", "a")]), None);
    }
}
