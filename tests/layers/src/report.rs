//! What is wrong with the layers of a crate, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::circles;
use crate::folders::{self, Link};
use crate::modules::{Crate, Import, Read};
use crate::order;

/// The faults of the crate whose root is this file.
pub fn faults(start: &Path, read: Read<'_>) -> Result<Vec<String>, String> {
    let krate = Crate::read(start, read)?;
    let imports = krate.imports();
    let mut faults = Vec::new();
    let files: Vec<(&str, &str)> = imports.iter().map(|it| (&*it.from, &*it.to)).collect();
    for files in circles::find(&files) {
        let is_among = |it: &&Import| files.contains(&*it.from) && files.contains(&*it.to);
        let lines: Vec<String> =
            imports.iter().filter(is_among).map(|it| format!("  {it}")).collect();
        faults.push(format!("a circle of {} files:\n{}", files.len(), lines.join("\n")));
    }
    let root = start.display().to_string();
    let of_root = imports.iter().filter(|it| it.to == root && it.from != root);
    faults.extend(of_root.map(|it| format!("{it}, which stands above all")));
    let folders = folders::links(&imports);
    for (folder, links) in &folders {
        faults.extend(circles_of(folder, links));
    }
    let source = start.parent().unwrap_or(start).display().to_string();
    if start.ends_with("lib.rs") {
        let links = folders.get(&source).map(Vec::as_slice).unwrap_or_default();
        let text = read(start).unwrap_or_default();
        faults.extend(contradictions(
            start,
            &text,
            &folders::entries(krate.files(), &source),
            links,
        ));
    }
    Ok(faults)
}

/// The entries of a folder that import each other, with how often, the rarest first.
fn circles_of(folder: &str, links: &[Link]) -> Vec<String> {
    let pairs: Vec<(&str, &str)> = links.iter().map(|it| (&*it.from, &*it.to)).collect();
    let mut faults = Vec::new();
    for entries in circles::find(&pairs) {
        let is_among = |it: &&Link| entries.contains(&*it.from) && entries.contains(&*it.to);
        let mut between: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for link in links.iter().filter(is_among) {
            between.entry((&link.from, &link.to)).or_default().push(link.to_string());
        }
        let mut between: Vec<_> = between.into_iter().collect();
        between.sort_by_key(|(_, lines)| lines.len());
        let mut text = format!("a circle of {} entries of {folder}:", entries.len());
        for ((from, to), lines) in between {
            text += &format!("\n {from} imports {to} {} times\n{}", lines.len(), lines.join("\n"));
        }
        faults.push(text);
    }
    faults
}

/// How the list of layers and the modules differ.
fn contradictions(
    start: &Path,
    text: &str,
    entries: &BTreeSet<String>,
    links: &[Link],
) -> Vec<String> {
    let mut faults = match order::stated(text) {
        Some(order) => order::faults(&order, entries, links),
        None if entries.len() < 2 => Vec::new(),
        None => vec!["it has no list of layers".to_owned()],
    };
    if let Some(first) = faults.first_mut() {
        *first = format!("{}: {first}", start.display());
        if let Some(possible) = order::possible(entries, links) {
            *first += &format!("\nAn order without contradictions:\n{possible}");
        }
    }
    faults
}
