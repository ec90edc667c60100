//! The report of a proof: parts, facts, scenarios, figures, and what they come to.

use serde_json::{Value, json};

use super::args::Args;
use super::facts::Facts;
use super::hide;
use super::measured::Measurements;
use super::part::{Part, PartOutcome};
use super::suite::{Ended, Suite};
use crate::machine::CorePair;
use crate::output::{Environment, Figure, Listing, Report, Row, Table, Unit, contender_tables};

pub struct Proof<'a> {
    pub what: String,
    pub args: &'a Args,
    pub cores: CorePair,
    pub facts: Facts,
    pub parts: Vec<Part>,
    pub suite: Suite,
    pub measured: Measurements,
    /// What was found of the host: sections and conclusion of `check`.
    pub found: Value,
}

impl Proof<'_> {
    pub fn report(mut self, mut environment: Environment) -> Report {
        self.hide(&mut environment);
        let conclusion = self.conclusion();
        let mut figures = self.counts();
        figures.append(&mut self.measured.figures);
        let (what, settings) = (self.what.clone(), self.settings());
        let mut report = Report::new("prove", what, settings, environment, figures);
        report.preface.push(conclusion.clone());
        report.preface.extend(
            self.facts
                .lines()
                .into_iter()
                .map(|(name, value)| format!("{:<13}{value}", format!("{name}:"))),
        );
        report.block(self.parts_table());
        report.block(self.reasons());
        report.block(self.subjects());
        let names = report.figures.iter().map(|figure| &*figure.of);
        let mut names: Vec<&str> = names.filter(|of| !of.contains('/')).collect();
        names.dedup();
        let rows: Vec<Row> = names.into_iter().map(Row::of).collect();
        let tables = contender_tables(&rows, &report.figures);
        tables.into_iter().for_each(|table| report.block(table));
        let rows = self.suite.ended.iter().map(row);
        let heads = vec!["scenario", "result", "seconds", "reason"];
        let title = "Scenarios".to_owned();
        report.listings.push(Listing { title, heads, rows: rows.collect() });
        report.distributions.append(&mut self.measured.distributions);
        let failed = self.parts.iter().filter(|part| part.result != PartOutcome::Passed);
        report.failures = failed.map(|part| format!("{}: {}", part.name, first(part))).collect();
        report.failed_code = Some(PART_FAILED);
        report.detail(json!({
            "conclusion": conclusion,
            "device": self.facts,
            "parts": self.parts,
            "scenarios": self.suite.ended,
            "check": self.found,
        }));
        report
    }

    /// Takes addresses out of all that comes from elsewhere, and folders out of what was typed.
    fn hide(&mut self, environment: &mut Environment) {
        // A path, if the other process is of this host.
        let peer = self.args.peer.map(|peer| peer.to_string()).unwrap_or_default();
        let hidden = |text: &str| match &*peer {
            "" => hide::addresses(text),
            peer => hide::addresses(&text.replace(peer, hide::ADDRESS)),
        };
        let all = |texts: &mut Vec<String>| {
            texts.iter_mut().for_each(|text| *text = hidden(text));
        };
        environment.command = hide::command(&environment.command);
        all(&mut environment.notes);
        all(&mut environment.noise);
        self.parts.iter_mut().for_each(|part| all(&mut part.reasons));
        for reason in self.suite.ended.iter_mut().filter_map(|one| one.reason.as_mut()) {
            *reason = hidden(reason);
        }
        hide::in_value(&mut self.found);
    }

    /// In a sentence, what all of it comes to.
    fn conclusion(&self) -> String {
        let count = |result| self.parts.iter().filter(|part| part.result == result).count();
        let (all, passed) = (self.parts.len(), count(PartOutcome::Passed));
        let (scenarios, name) = (self.suite.ended.len(), &self.facts.name);
        let well = self.suite.count(PartOutcome::Passed);
        let of = format!("{well} of {scenarios} scenarios pass");
        if passed == all {
            return format!(
                "{name} does what the engine asks of it: {of}, and every part is well."
            );
        }
        let named = |result| {
            let names = self.parts.iter().filter(|part| part.result == result);
            names.map(|part| part.name).collect::<Vec<_>>().join(", ")
        };
        let mut sentence = format!("{name}: {passed} of {all} parts are well, and {of}");
        if count(PartOutcome::Failed) > 0 {
            sentence += &format!("; failed: {}", named(PartOutcome::Failed));
        }
        if count(PartOutcome::Skipped) > 0 {
            sentence += &format!("; not run: {}", named(PartOutcome::Skipped));
        }
        sentence + "."
    }

    fn settings(&self) -> Value {
        let Args { only, limit, length, peer, .. } = self.args;
        json!({
            "provider": self.facts.provider,
            "device": self.args.device,
            "other_host": peer.is_some(),
            "only": only,
            "scenario_limit_s": limit.as_secs_f64(),
            "cores": self.cores,
            "rounds": length.rounds,
            "seconds": length.seconds.map(|time| time.as_secs_f64()),
            "iterations": length.iterations,
        })
    }

    fn counts(&self) -> Vec<Figure> {
        let count = |of: &'static str, name: &'static str, value: usize, all: usize| {
            Figure::new(of, name, value as f64, Unit::Count, all as u64)
        };
        let (parts, all) = (&self.parts, self.suite.ended.len());
        let failed = parts.iter().filter(|part| part.result == PartOutcome::Failed).count();
        vec![
            count("prove", "parts_failed", failed, parts.len()),
            count("scenarios", "passed", self.suite.count(PartOutcome::Passed), all),
            count("scenarios", "failed", self.suite.count(PartOutcome::Failed), all),
            count("scenarios", "not_run", self.suite.count(PartOutcome::Skipped), all),
        ]
    }

    fn parts_table(&self) -> Table {
        let mut table = Table::new(&[0, 1, 3], ["part", "result", "seconds", ""]);
        for Part { name, result, seconds, what, .. } in &self.parts {
            let seconds = format!("{seconds:.1}");
            table.row([(*name).to_owned(), result.into_str().to_owned(), seconds, what.clone()]);
        }
        table
    }

    /// Why parts failed, and what was left out of the others.
    fn reasons(&self) -> String {
        let lines = self.parts.iter().flat_map(|part| {
            part.reasons.iter().take(REASONS_MAX).map(|why| format!("{}: {why}\n", part.name))
        });
        lines.collect()
    }

    /// The scenarios, by subject.
    fn subjects(&self) -> Table {
        let mut subjects: Vec<(&str, Vec<&Ended>)> = Vec::new();
        for one in &self.suite.ended {
            match subjects.iter_mut().find(|(subject, _)| *subject == one.subject) {
                Some((_, all)) => all.push(one),
                None => subjects.push((one.subject, vec![one])),
            }
        }
        let heads = ["scenarios", "passed", "failed", "not run", "seconds"];
        let mut table = Table::new(&[0], heads);
        for (subject, all) in subjects {
            let count = |result| all.iter().filter(|one| one.result == result).count().to_string();
            let [passed, failed, not_run] =
                [PartOutcome::Passed, PartOutcome::Failed, PartOutcome::Skipped].map(count);
            let seconds: f64 = all.iter().map(|one| one.seconds).sum();
            table.row([subject.to_owned(), passed, failed, not_run, format!("{seconds:.2}")]);
        }
        table
    }
}

/// A scenario as a row of the page.
fn row(one: &Ended) -> Vec<String> {
    let reason = one.reason.clone().unwrap_or_default();
    vec![one.title(), one.result.into_str().to_owned(), format!("{:.3}", one.seconds), reason]
}

/// The first reason of a part, and how many more there are.
fn first(part: &Part) -> String {
    let Some((first, more)) = part.reasons.split_first() else { return part.what.clone() };
    if more.is_empty() { first.clone() } else { format!("{first} (and {} more)", more.len()) }
}

/// Reasons of a part that are printed; the files have all of them.
const REASONS_MAX: usize = 20;
/// The exit code if a part failed.
const PART_FAILED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{parsed, quiet};

    fn part(name: &'static str, result: PartOutcome, reasons: &[&str]) -> Part {
        let reasons = reasons.iter().map(|why| (*why).to_owned()).collect();
        Part { name, result, seconds: 1.0, what: "what it is".to_owned(), reasons }
    }

    fn ended(name: &'static str, result: PartOutcome, reason: Option<&str>) -> Ended {
        let reason = reason.map(str::to_owned);
        Ended { version: "auto", subject: "inline", name, result, seconds: 0.25, reason }
    }

    /// A proof with these parts and scenarios.
    fn report(parts: Vec<Part>, ended: Vec<Ended>) -> Report {
        let args = parsed("-d mlx5_0 -a 10.0.0.1");
        let facts = Facts { name: "mlx5_0".to_owned(), provider: "verbs", ..Facts::default() };
        let figure = |of: &str| Figure::new(of, "rate", 5e3, Unit::PerSecond, 9);
        let measured = Measurements {
            figures: vec![figure("rate.rpc"), figure("rate.raw"), figure("rate.rpc/rate.raw")],
            ..Measurements::default()
        };
        let mut environment = quiet(vec!["verbs: mlx5_0 at 10.0.0.1".to_owned()]);
        environment.command = vec!["/home/ann/rpcrdma-bench".to_owned(), "prove".to_owned()];
        let found = json!({ "sections": [{ "seen": "mlx5_0/1: 10.0.0.1" }] });
        let suite = Suite { ended, ..Suite::default() };
        let what = "prove: mlx5_0".to_owned();
        let cores = CorePair { client: 0, server: 1 };
        Proof { what, args: &args, cores, facts, parts, suite, measured, found }.report(environment)
    }

    #[test]
    fn a_good_device_is_called_so_and_fails_nothing() {
        let good = report(
            vec![part("host", PartOutcome::Passed, &[])],
            vec![ended("a", PartOutcome::Passed, None)],
        );
        assert!(good.failures.is_empty());
        let text = good.text();
        let conclusion = "mlx5_0 does what the engine asks of it: 1 of 1 scenarios pass";
        assert!(text.starts_with(conclusion), "{text}");
        assert!(text.contains("rate.rpc") && text.contains("5000"), "{text}");
        assert!(!text.contains("rate.rpc/rate.raw"), "{text}");
    }

    #[test]
    fn a_part_that_failed_is_in_the_conclusion_with_its_reason_and_its_exit_code() {
        let bad = report(
            vec![
                part("host", PartOutcome::Passed, &[]),
                part("scenarios", PartOutcome::Failed, &["inline::b: no reply", "another"]),
                part("rate", PartOutcome::Skipped, &["the run was interrupted"]),
            ],
            vec![
                ended("a", PartOutcome::Passed, None),
                ended("b", PartOutcome::Failed, Some("no reply from 10.0.0.1")),
            ],
        );
        let conclusion = "mlx5_0: 1 of 3 parts are well, and 1 of 2 scenarios pass; failed: \
            scenarios; not run: rate.";
        assert_eq!(bad.detail["conclusion"], conclusion);
        let reasons =
            ["scenarios: inline::b: no reply (and 1 more)", "rate: the run was interrupted"];
        assert_eq!(bad.failures, reasons);
        assert_eq!(bad.failed_code, Some(1));
        assert_eq!(bad.figure("scenarios", None, "failed").expect("it is counted").value, 1.0);
    }

    #[test]
    fn neither_the_json_nor_the_page_has_an_address_or_a_folder() {
        let failed = ended("b", PartOutcome::Failed, Some("no reply from 10.0.0.1"));
        let report =
            report(vec![part("host", PartOutcome::Failed, &["at 10.0.0.1"])], vec![failed]);
        for text in [report.json(), crate::output::html::text(&report), report.text()] {
            assert!(!text.contains("10.0.0.1") && !text.contains("ann"), "{text}");
            assert!(text.contains("ADDRESS"), "{text}");
        }
        let page = crate::output::html::text(&report);
        assert!(page.contains("inline::b") && page.contains("0.250"), "the scenario, its seconds");
    }
}
