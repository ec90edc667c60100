//! The report as a page, in a browser: every mode's page is drawn by its script, nothing from
//! outside becomes markup, and nothing is requested.

mod browser;
mod metrics;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rpcrdma_bench::output::{Axis, Curve, Line, Listing, Report, Unit, html};
use serde_json::Value;

use crate::browser::{Browser, at};

/// A page, and the result it shows.
struct Page {
    name: String,
    html: String,
    result: Value,
}

/// The pages of short runs of all modes, and one with markup in every name; none on a machine with
/// one core.
fn pages() -> Vec<Page> {
    let commands = include_str!("../keys.txt").lines().filter_map(|line| line.strip_prefix('['));
    let commands = commands.filter_map(|line| line.strip_suffix(']')).filter(|line| *line != "*");
    let mut pages: Vec<Page> = commands.filter_map(run).collect();
    if let Some(lat) = pages.iter().find(|page| page.name == "lat") {
        pages.push(hostile(&lat.result));
    }
    pages
}

fn run(options: &str) -> Option<Page> {
    let name = options.split(' ').next().expect("a mode").to_owned();
    let file = |end: &str| -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}.{end}"))
    };
    let output = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(options.split(' '))
        .arg("--html")
        .arg(file("html"))
        .arg("--json")
        .arg(file("json"))
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .expect("the program was built for this test");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("two threads that spin need two") {
        return None;
    }
    let read = |end| fs::read_to_string(file(end)).unwrap_or_else(|it| panic!("{it}: {errors}"));
    let result = serde_json::from_str(&read("json")).expect("JSON");
    Some(Page { html: read("html"), result, name })
}

/// Everything that comes from outside has markup in it, and names without end.
fn hostile(lat: &Value) -> Page {
    let mut report = Report::parse(&lat.to_string()).expect("a result");
    let names = report.figures.iter_mut().map(|figure| &mut figure.of);
    for name in names.chain(report.distributions.iter_mut().map(|one| &mut one.name)) {
        *name = name.replace("rpc", EVIL);
    }
    let long = "a-name-without-any-place-to-break-it-".repeat(12);
    report.what = format!("{EVIL} {long}");
    report.failures = vec![EVIL.to_owned(), long.clone()];
    report.environment.notes = vec![EVIL.to_owned(), long.clone()];
    report.environment.noise = vec![EVIL.to_owned(), long.clone()];
    report.environment.machine.cpu = EVIL.to_owned();
    report.settings = serde_json::json!({ EVIL: EVIL, "long": &long, "list": [EVIL] });
    let points = vec![(0.0, 0.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)];
    let line = |name: &str, points| Line { name: name.to_owned(), points };
    let (x, y) = (Axis::new(EVIL, Unit::Count), Axis::log(&long, Unit::Count));
    let lines = vec![line(EVIL, points), line("", Vec::new())];
    report.curves.push(Curve { title: EVIL.to_owned(), x, y, lines });
    let rows = vec![vec![EVIL.to_owned(), long]];
    report.listings.push(Listing { title: EVIL.to_owned(), heads: vec![EVIL, EVIL], rows });
    report.block(EVIL);
    let result = serde_json::from_str(&report.json()).expect("JSON");
    Page { name: "hostile".to_owned(), html: html::text(&report), result }
}

/// The titles of the plots that a result has data for, and how many rows the table of each has;
/// `None` if that depends on more than the number of points.
fn plots(result: &Value) -> Vec<(String, Option<usize>)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut plots = Vec::new();
    for curve in list(&result["curves"]).iter().filter(|curve| !list(&curve["lines"]).is_empty()) {
        let points = list(&curve["lines"]).into_iter().flat_map(|line| list(&line["points"]));
        let places: BTreeSet<String> =
            points.filter(|point| !point[0].is_null()).map(|point| point[0].to_string()).collect();
        plots.push((curve["title"].as_str().expect("text").to_owned(), Some(places.len())));
    }
    let is_timed = |one: &Value| one["latency"]["samples"].as_u64() > Some(0);
    if list(&result["distributions"]).iter().any(is_timed) {
        plots.push(("Distribution of times".to_owned(), None));
        plots.push(("Times by percentile".to_owned(), None));
    }
    let figures = list(&result["figures"]);
    let rounds = BY_ROUND.iter().find_map(|(name, title)| {
        let is = |figure: &&Value| figure["name"] == *name && figure["at"].is_null();
        let rounds = figures.iter().filter(is).map(|figure| list(&figure["rounds"]).len());
        let most = rounds.max().filter(|rounds| *rounds > 1)?;
        Some((format!("{title}, round by round"), Some(most)))
    });
    plots.extend(rounds);
    plots
}

#[test]
#[ignore = "needs chromium: tests/run html"]
fn every_mode_has_a_page_with_its_plots_and_its_figures() {
    let browser = Browser::new("measured");
    let pages = pages();
    let named: Vec<(&str, &str)> = pages.iter().map(|page| (&*page.name, &*page.html)).collect();
    let measured = browser.measure(&named, &[LIGHT]);
    for page in &pages {
        for measured in measured.iter().filter(|one| one["name"] == page.name) {
            let name = format!("{}, {}", page.name, measured["width"]);
            for what in ["errors", "violations", "requests", "evil", "blank", "flat", "wide"] {
                assert_eq!(measured[what], serde_json::json!([]), "{name}: {what}");
            }
            assert_eq!(
                measured["figures"],
                page.result["figures"].as_array().expect("a list").len()
            );
            let shown: Vec<(&str, u64)> = measured["plots"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|plot| {
                    (plot["title"].as_str().expect("text"), plot["rows"].as_u64().expect("a count"))
                })
                .collect();
            let expected = plots(&page.result);
            let titles: Vec<&str> = expected.iter().map(|(title, _)| title.as_str()).collect();
            assert_eq!(shown.iter().map(|plot| plot.0).collect::<Vec<_>>(), titles, "{name}");
            for ((title, rows), (_, expected)) in shown.iter().zip(&expected) {
                assert!(*rows > 0, "{name}, {title}: no values");
                assert!(
                    expected.is_none_or(|it| it as u64 == *rows),
                    "{name}, {title}: {rows} rows"
                );
            }
        }
    }
    assert_eq!(measured.len(), 2 * pages.len(), "each page at each width");
}

#[test]
#[ignore = "needs chromium: tests/run html"]
fn a_page_is_drawn_in_light_and_in_dark_and_can_be_printed() {
    let Some(lat) = run("lat -n 300 -r 2 --warm-up 10") else { return };
    let browser = Browser::new("shown");
    for (scheme, ground, ink) in [(LIGHT, 0xff, 0x1b), (DARK, 0x0d, 0xe6)] {
        let measured = browser.measure(&[("lat", &lat.html)], &[scheme]);
        assert_eq!((&measured[0]["ground"], &measured[0]["ink"]), (&ground.into(), &ink.into()));
        assert_eq!(measured[0]["blank"], serde_json::json!([]));
    }
    let page = browser.write("lat.html", &lat.html);
    let path = browser.folder.join("lat.pdf");
    let print = format!("--print-to-pdf={}", path.display());
    browser.visit(&at(&page), &[DARK, &print, "--no-pdf-header-footer"]);
    let pdf = fs::read(&path).expect("it was printed");
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() > 20_000, "{} bytes", pdf.len());
}

/// What has a plot over the rounds, and its title: the first that there is.
const BY_ROUND: [(&str, &str); 5] = [
    ("round_trip.median", "Round trip, median"),
    ("round_trip.p50", "Round trip, median"),
    ("round_trip.p99", "Round trip, p99"),
    ("rate", "Round trips a second"),
    ("data", "Data a second"),
];
const LIGHT: &str = "--blink-settings=preferredColorScheme=1";
const DARK: &str = "--blink-settings=preferredColorScheme=0";
/// What a page must show and never do.
const EVIL: &str = "</style></script><script>window.evil=1</script><img src=x onerror='window.evil=1'>\" onload=\"window.evil=1";
