//! The output formats and files.

use serde_json::Value;

use crate::{bench, errors, has, scratch, short, text};

/// What a short run has written to a file by such an option, beside what it printed.
fn written(options: &str, option: &str) -> Option<(String, String)> {
    let path = scratch(option);
    let printed = short(&format!("{options} --{option} {}", path.display()))?;
    let file = std::fs::read_to_string(&path).expect("the file was written");
    std::fs::remove_file(&path).expect("the file is ours");
    Some((printed, file))
}

#[test]
fn a_page_of_html_is_written_beside_the_table() {
    let Some((table, page)) = written("lat", "html") else { return };
    assert!(table.contains("round trip, ns"), "{table}");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    has(&page, &["\"of\":\"rpc/floor\"", "serial floor"]);
}

#[test]
fn json_in_a_file_leaves_the_table_on_the_output() {
    let Some((table, json)) = written("floor", "json") else { return };
    assert!(table.contains("round trip, ns"), "{table}");
    let json: Value = serde_json::from_str(&json).expect("nothing but JSON");
    assert_eq!(json["figures"][0]["samples"], 300);
}

#[test]
fn csv_has_a_line_for_every_figure_of_json() {
    let Some((json, csv)) = written("rate -k 3 --format json", "csv") else { return };
    let json: Value = serde_json::from_str(&json).expect("nothing but JSON");
    let figures = json["figures"].as_array().expect("a list");
    let start = "mode,of,axis,at,figure,value,unit,samples\nrate,floor,,,rate,";
    assert!(csv.starts_with(start), "{csv}");
    assert_eq!(csv.lines().count(), figures.len() + 1);
    assert!(csv.contains("\nrate,\"rpc, one\",,,rate,"), "{csv}");
}

#[test]
fn an_hdr_log_has_the_samples_of_every_contender() {
    let Some(log) = short("raw --hdr -") else { return };
    let intervals: Vec<&str> = log.lines().filter(|line| line.starts_with("Tag=")).collect();
    let tags: Vec<&str> = intervals.iter().filter_map(|line| line.split(',').next()).collect();
    assert_eq!(tags, ["Tag=floor", "Tag=raw"], "{log}");
    assert!(intervals.iter().all(|line| line.contains(",HISTFA")), "{log}");
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let output = bench("floor -n 10 -r 1 --json /nowhere/result.json");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "", "nothing is measured for nothing");
    assert!(text(&output.stderr).contains("/nowhere/result.json"), "{output:?}");
}

/// What a parser of `ib_send_lat` reads: the row under the names of the columns.
fn columns(text: &str) -> Vec<(String, f64)> {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let head = lines.next().expect("a line with the names of the columns");
    let head = head.replace("% percentile", "%").replace("BW ", "BW");
    let row = lines.next().expect("a row");
    let numbers = row.split_whitespace().map(|word| word.parse::<f64>().expect("a number"));
    let all: Vec<_> = head.split_whitespace().map(str::to_owned).zip(numbers).collect();
    assert_eq!(all.len(), row.split_whitespace().count(), "a name for each number");
    let rest: Vec<&str> = lines.collect();
    assert!(rest.len() == 1 && rest[0].bytes().all(|byte| byte == b'-'), "{rest:?}");
    all
}

fn names(columns: &[(String, f64)]) -> Vec<&str> {
    columns.iter().map(|(name, _)| name.as_str()).collect()
}

const IB_SEND_LAT: &str = include_str!("../peers/ib_send_lat-4.5-64.txt");

#[test]
fn a_parser_of_ib_send_lat_reads_the_round_trip_of_an_rpc() {
    let theirs = columns(IB_SEND_LAT);
    assert_eq!((theirs[0].1, theirs[4].1), (64.0, 13.15), "the parser is one of ib_send_lat");
    let head = IB_SEND_LAT.lines().find(|line| line.starts_with(" #bytes")).expect("a table");
    let Some(printed) = short("lat --format perftest") else { return };
    assert!(printed.lines().any(|line| line == head), "{printed}");
    let ours = columns(&printed);
    assert_eq!(names(&ours), names(&theirs));
    let value = |name: &str| ours.iter().find(|(of, _)| of == name).expect("a column").1;
    assert_eq!((value("#bytes"), value("#iterations")), (64.0, 300.0));
    let rising =
        ["t_min[usec]", "t_typical[usec]", "99%[usec]", "99.9%[usec]", "t_max[usec]"].map(value);
    assert!(rising.is_sorted() && rising[0] > 0.0, "{printed}");
}

#[test]
fn a_parser_of_ib_send_bw_reads_a_rate() {
    let Some(printed) = short("bw -s 4KiB --format perftest") else { return };
    let ours = columns(&printed);
    let expected =
        ["#bytes", "#iterations", "BWpeak[MB/sec]", "BWaverage[MB/sec]", "MsgRate[Mpps]"];
    assert_eq!(names(&ours), expected, "{printed}");
    let (average, rate) = (ours[3].1, ours[4].1);
    let of_rate = rate * 1e6 * 4096.0 / f64::from(1 << 20);
    assert!((average / of_rate - 1.0).abs() < 0.01, "{printed}");
    assert!(ours[2].1 >= average, "{printed}");
}

#[test]
fn a_sweep_has_no_form_in_perftest() {
    let output = bench("distance --op read -s 4KiB --delay 5us -n 10 -r 1 --format perftest");
    let Some(errors) = errors(&output) else { return };
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("no form for distance"), "{output:?}");
}

#[test]
fn a_recipe_is_taken_and_what_is_typed_wins() {
    let path = scratch("recipe.toml");
    let run = |recipe: &str, options: &str| {
        std::fs::write(&path, recipe).expect("a writable place");
        let output = bench(&format!("floor --recipe {} {options}", path.display()));
        std::fs::remove_file(&path).expect("the file is ours");
        output
    };
    let recipe = "iterations = 20\nwarm-up = 1\n[floor]\nrounds = 3\nformat = \"csv\"\n";
    let taken = run(recipe, "");
    if errors(&taken).is_none() {
        return;
    }
    assert!(text(&taken.stdout).contains(",ns,21\n"), "3 rounds of 7: {taken:?}");
    let typed = run(recipe, "-r 1");
    assert!(text(&typed.stdout).contains(",ns,20\n"), "1 round of 20: {typed:?}");
    let wrong = run("\n[floor]\nruonds = 3\n", "");
    assert_eq!(wrong.status.code(), Some(1));
    let expected = format!("{}, line 3: `floor` has no option --ruonds", path.display());
    assert!(text(&wrong.stderr).contains(&expected), "{wrong:?}");
}

#[test]
fn help_completions_and_the_man_page_are_printed() {
    for (options, part) in [
        ("--help", "Examples:"),
        ("man", ".TH rpcrdma-bench 1"),
        ("completions bash", "complete -F"),
    ] {
        let output = bench(options);
        assert!(output.status.success() && text(&output.stdout).contains(part), "{output:?}");
    }
}
