//! The report as a page: what stands in it, that nothing from outside becomes markup, and how a
//! browser shows it.

mod browser;
mod metrics;
mod picture;
mod sample;

use rpcrdma_bench::output::{Figure, Unit, html};

use crate::sample::{EVIL, all, hostile, sample};

fn page(name: &str) -> String {
    let (_, sample) = all().into_iter().find(|(known, _)| *known == name).expect("a sample");
    html::text(&sample)
}

#[test]
fn a_page_asks_for_nothing_that_is_not_in_it() {
    for (name, sample) in all() {
        let page = html::text(&sample);
        let markup = tags(&page).concat().to_lowercase();
        for word in ["<script", "<link", "<img", "<iframe", "<object", " src=", " href=", " style="]
        {
            assert!(!markup.contains(word), "{name} has {word}");
        }
        let style = page.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next());
        let style = style.expect("a page has a style");
        assert!(!style.contains("@import") && !style.contains("url("), "{name}");
    }
}

/// Everything between `<` and `>`, outside of the style, without the values of attributes.
fn tags(page: &str) -> Vec<String> {
    let body = page.split("</style>").nth(1).expect("a page has a style");
    let tags = body.split('<').skip(1).filter_map(|part| part.split_once('>'));
    tags.map(|(tag, _)| format!("<{} ", tag.split('"').step_by(2).collect::<String>())).collect()
}

#[test]
fn markup_from_outside_is_text() {
    let page = html::text(&hostile());
    assert!(!page.contains(EVIL) && !page.contains("<script") && !page.contains("<img"));
    assert!(page.contains("&lt;script&gt;window.evil=1&lt;/script&gt;"));
    assert_eq!(page.matches("</style>").count(), 1);
    // No attribute was begun by a quote from outside.
    assert!(tags(&page).iter().all(|tag| !tag.contains(" onload") && !tag.contains("onerror")));
}

#[test]
fn every_element_that_is_opened_is_closed() {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    for (name, sample) in all() {
        let page = html::text(&sample);
        let mut open: Vec<&str> = Vec::new();
        let (head, body) = page.split_once("<style>").expect("a style");
        let (_, body) = body.split_once("</style>").expect("a style");
        for tag in head.split('<').chain(body.split('<')).skip(1) {
            let Some((tag, _)) = tag.split_once('>') else { continue };
            let word = tag.split([' ', '\n', '/']).find(|word| !word.is_empty()).unwrap_or("");
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(word), "{name}");
            } else if !tag.ends_with('/') && !VOID.contains(&word) {
                open.push(word);
            }
        }
        assert!(open.is_empty(), "{name}: {open:?}");
    }
}

#[test]
fn every_figure_stands_in_the_page_with_its_unit_and_its_samples() {
    let (_, lat) = all().remove(0);
    let page = html::text(&lat);
    for figure in &lat.figures {
        assert!(page.contains(&format!("<td>{}</td>", figure.name)), "{figure:?}");
    }
    assert!(page.contains("<td>round_trip.p99</td>") && page.contains("<td>ns</td>"));
    assert!(page.contains("60\u{202f}000"), "samples");
    assert!(page.contains("size_bytes") && page.contains("cores.client"), "settings");
    assert!(page.contains("rings of 64 slots"), "notes");
    assert!(page.contains("what is printed of lat"), "the table");
}

#[test]
fn whether_the_run_counts_is_said_at_the_top() {
    let quiet = page("lat");
    assert!(quiet.contains("The machine was quiet."));
    let noisy = page("load");
    let reason = noisy.find("core 5 was away for 4.1 ms at once").expect("the reason");
    assert!(reason < noisy.find("<h3>").expect("a plot"), "before the first plot");
    let mut debug = sample("lat", "lat");
    debug.environment.build.opt_level = "1".into();
    debug.environment.interrupted = true;
    let debug = html::text(&debug);
    assert!(debug.contains("Not a release build") && debug.contains("Interrupted"));
    assert!(!debug.contains("<strong>The machine was quiet."));
}

#[test]
fn each_mode_has_the_plots_that_its_outcome_has_data_for() {
    let titles = |name: &str| -> Vec<String> {
        let page = page(name);
        let parts = page.split("<h3>").skip(1);
        parts
            .filter_map(|part| part.split_once("</h3>").map(|(title, _)| title.to_owned()))
            .collect()
    };
    let distribution = ["Distribution of times", "Times by percentile"];
    let rounds = "Round trip, median, round by round";
    assert_eq!(titles("lat"), [&["Ratios"], &distribution[..], &[rounds]].concat());
    assert_eq!(titles("load"), [&["Latency against load"], &distribution[..]].concat());
    assert_eq!(titles("distance"), ["Round trip, median against delay"]);
    assert_eq!(titles("conns"), ["Round trips a second against connections"]);
    assert_eq!(titles("cmp"), [&["Ratios"], &distribution[..], &[rounds]].concat());
    assert_eq!(titles("bw"), ["Round trips a second, round by round"]);
    assert!(titles("empty").is_empty());
}

#[test]
fn an_interval_of_confidence_is_distinct_from_the_spread_of_rounds() {
    assert!(page("cmp").contains("95 % interval") && !page("lat").contains("95 % interval"));
    assert!(page("lat").contains("from the least to the greatest of the rounds"));
    assert!(page("cmp").contains("0.671 to 0.699"));
    // One row and one card for each two, not one for each name of it.
    assert_eq!(page("cmp").matches("<div class=\"name\">rpc/tcp socket</div>").count(), 1);
    assert_eq!(page("cmp").matches("rpc/tcp socket median").count(), 1);
}

#[test]
fn a_figure_that_is_no_number_is_none() {
    let mut odd = sample("lat", "lat");
    odd.figures.push(Figure::new("rpc", "round_trip.p50", f64::NAN, Unit::Ns, 0));
    odd.figures.push(Figure::new("rpc", "rate", f64::INFINITY, Unit::PerSecond, 0));
    let page = html::text(&odd);
    assert!(page.contains("<td>none</td>") && !page.contains("NaN") && !page.contains("inf<"));
}
