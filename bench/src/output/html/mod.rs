//! The report as one self-contained HTML page.
//!
//! ```text
//!   Report ─▶ JSON ─┐
//!                   ├─▶ page.html ─▶ in the browser: page.js makes tables, uPlot draws
//!   styles, scripts ┘
//! ```
//! Names, notes and settings come from outside: the script shows them as text and nothing else.

use serde::Serialize;

use super::report::{Distribution, Listing, Report};

/// What the script shows.
#[derive(Serialize)]
struct Data<'a> {
    result: &'a Report,
    /// What is not in the JSON form of a result.
    failures: &'a [String],
    listings: &'a [Listing],
    text: String,
    facts: Vec<(&'static str, String)>,
    optimised: bool,
    /// The samples of each distribution: times in nanoseconds, and how many of each.
    steps: Vec<Vec<(u64, u64)>>,
}

pub fn text(report: &Report) -> String {
    let data = Data {
        result: report,
        failures: &report.failures,
        listings: &report.listings,
        text: report.text(),
        facts: report.environment.facts(),
        optimised: report.environment.build.is_optimised(),
        steps: report.distributions.iter().map(steps).collect(),
    };
    let json = serde_json::to_string(&data).expect("strings and numbers with string keys");
    // Nothing else ends a script, or begins a comment in it.
    let json = json.replace('<', "\\u003c");
    let parts = [
        ("@uplot.css@", include_str!("uplot/uPlot.min.css")),
        ("@page.css@", include_str!("page.css")),
        ("@uplot.licence@", include_str!("uplot/LICENSE-MIT")),
        ("@uplot.js@", include_str!("uplot/uPlot.iife.min.js")),
        ("@page.js@", include_str!("page.js")),
        ("@data@", &json),
    ];
    let put = |page: String, (mark, part): (&str, &str)| page.replacen(mark, part, 1);
    parts.into_iter().fold(include_str!("page.html").to_owned(), put)
}

fn steps(of: &Distribution) -> Vec<(u64, u64)> {
    let steps = of.latency.histogram().iter_recorded();
    let longest_ns = of.latency.max_ns();
    let step = |ns: u64, count| (ns.min(longest_ns), count);
    steps.map(|it| step(it.value_iterated_to(), it.count_since_last_iteration())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::output::report::tests::odd;

    /// What the script reads.
    fn data(page: &str) -> &str {
        let (_, data) = page.split_once("type=\"application/json\">").expect("the data");
        data.split_once("</script>").expect("its end").0
    }

    #[test]
    fn the_page_has_the_whole_result_and_every_sample() {
        let mut odd = odd(&["core 1 was away"]);
        odd.failures.push("it leaks".into());
        let page = text(&odd);
        let data: Value = serde_json::from_str(data(&page)).expect("JSON");
        let result: Value = serde_json::from_str(&odd.json()).expect("JSON");
        assert_eq!(data["result"], result);
        assert_eq!(data["steps"], serde_json::json!([[[5, 1], [7, 1]]]));
        assert_eq!(data["failures"][0], "it leaks");
        assert_eq!(data["text"], odd.text());
        let is_left = |mark: &&str| page.contains(&**mark);
        let marks = ["@uplot.css@", "@page.css@", "@uplot.js@", "@page.js@", "@data@"];
        assert_eq!(marks.iter().find(|mark| is_left(mark)), None, "every part has its place");
    }

    #[test]
    fn nothing_of_a_name_ends_the_script_or_is_a_mark() {
        let mut odd = odd(&[]);
        odd.what = "</script><!--<script>@page.js@".into();
        let page = text(&odd);
        let data = data(&page);
        assert!(!data.contains('<'));
        let read: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(read["result"]["what"], odd.what);
    }

    #[test]
    fn the_page_asks_for_nothing_that_is_not_in_it() {
        let page = text(&odd(&[])).to_lowercase();
        for word in ["<link", "<img", "<iframe", " src=", " href=", "@import", "url(", "import("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
