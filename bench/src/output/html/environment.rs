//! Head and foot of the page: what was measured, noise, machine, settings.

use std::fmt::Write as _;

use serde_json::Value;

use super::page::escape;
use crate::device::Jitter;
use crate::device::env::Build;
use crate::output::report::Report;

pub fn write_head(out: &mut String, report: &Report) {
    let environment = &report.environment;
    let machine = environment.machine.lines();
    let _ = writeln!(
        out,
        "<header><p class=\"kind\">rpcrdma-bench {}</p>\n<h1>{}</h1>\n<p class=\"soft\">{}</p></header>",
        escape(&report.mode),
        escape(report.what.trim()),
        escape(machine.first().map_or("", |line| line))
    );
    let mut wrong: Vec<(&str, &[String])> = Vec::new();
    if !environment.build.is_optimised() {
        wrong.push(("Not a release build: no figure below means anything.", &[]));
    }
    if environment.interrupted {
        wrong.push(("Interrupted: the figures are of what was measured so far.", &[]));
    }
    if !environment.noise.is_empty() {
        let text = "Noisy: ratios of medians still mean something, times and tails less so.";
        wrong.push((text, &environment.noise));
    }
    if wrong.is_empty() {
        out.push_str("<p class=\"verdict good\"><strong>The machine was quiet.</strong></p>\n");
    }
    for (text, reasons) in wrong {
        let reasons = reasons.iter().map(|reason| format!("<li>{}</li>", escape(reason)));
        let reasons = reasons.collect::<String>();
        let list = if reasons.is_empty() { String::new() } else { format!("<ul>{reasons}</ul>") };
        let _ = writeln!(
            out,
            "<div class=\"verdict bad\" role=\"note\"><strong>{text}</strong>{list}</div>"
        );
    }
}

/// What is printed on a terminal: what a mode has to say beside its figures is in it.
pub fn write_table(out: &mut String, report: &Report) {
    let table = report.text();
    if !table.trim().is_empty() {
        let table = escape(table.trim_matches('\n'));
        let _ = writeln!(
            out,
            "<h2>As printed</h2>\n<div class=\"scroll\" tabindex=\"0\"><pre>{table}</pre></div>"
        );
    }
}

/// Every setting, by its path.
pub fn write_settings(out: &mut String, report: &Report) {
    let mut facts = Vec::new();
    flatten(&mut facts, "", &report.settings);
    if facts.is_empty() {
        return;
    }
    out.push_str("<h2>Settings</h2>\n");
    write_facts(out, &facts);
}

/// The machine, the program, the notes, and what the jitter probe saw.
pub fn write_environment(out: &mut String, report: &Report) {
    let environment = &report.environment;
    let Build { rpcrdma, rustc, profile, target, .. } = &environment.build;
    let mut facts: Vec<(String, String)> = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
    for line in environment.machine.lines() {
        fact("machine", line);
    }
    fact("program", format!("rpcrdma {rpcrdma}, {profile}, {target}, {rustc}"));
    for note in &environment.notes {
        fact("with", note.clone());
    }
    for (when, probes) in
        [("before", &environment.jitter_before), ("after", &environment.jitter_after)]
    {
        for probe in probes {
            fact(&format!("jitter {when}"), gaps(probe));
        }
    }
    fact("clock", format!("a single sample is exact to {:.1} ns", environment.clock_step_ns));
    out.push_str("<h2>Machine and program</h2>\n");
    write_facts(out, &facts);
    out.push_str(
        "<p class=\"soft\">Every sample is counted and none is trimmed: the maximum is the longest there \
         was. A round trip is there and back; what other tools print as latency is half of it.</p>\n",
    );
}

fn gaps(probe: &Jitter) -> String {
    let Jitter { core, gaps_per_second, lost_share, longest_ns } = *probe;
    format!(
        "core {core}: {gaps_per_second:.0} gaps of more than 5 us a second, the longest {:.0} us, {:.2} % \
         of the time lost",
        longest_ns as f64 / 1e3,
        lost_share * 100.0
    )
}

fn write_facts(out: &mut String, facts: &[(String, String)]) {
    out.push_str("<dl class=\"facts\">\n");
    for (name, value) in facts {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    out.push_str("</dl>\n");
}

/// What is in a value, each with the path to it. Values are our own: they are not deep.
fn flatten(facts: &mut Vec<(String, String)>, path: &str, value: &Value) {
    let mut open = vec![(path.to_owned(), value)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(members) => {
                let join = |key: &str| match &*path {
                    "" => key.to_owned(),
                    path => format!("{path}.{key}"),
                };
                open.extend(members.iter().rev().map(|(key, value)| (join(key), value)));
            }
            Value::Null => {}
            Value::String(text) => facts.push((path, text.clone())),
            other => facts.push((path, other.to_string())),
        }
    }
}
