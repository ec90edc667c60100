//! The program as a process: what it prints for scripts, and what the dashboard of docs/grafana
//! asks for, against an engine.

mod terminal;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use rpcrdma::{Address, Answer, Call, Engine, Fabric, Handler, Reply};
use rpcrdma_config::{Config, Raw};
use serde_json::Value;

/// Answers with nothing.
struct Server;

impl Handler for Server {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        reply.send()
    }
}

/// An engine that has answered so many calls of a client, which is connected until `then` ends.
fn with_engine(calls: u64, then: impl FnOnce(&Engine<Fabric>)) {
    let mut raw = Raw::default();
    raw.engine.provider = "fabric".into();
    raw.engine.idle.policy = "block".into();
    raw.connections.max = 2;
    raw.stats.sample = 1;
    let config = Config::try_from(raw).expect("a configuration");
    let mut engine = Engine::new(Fabric::new(), config).expect("an engine");
    engine.start(|_| Server).expect("a shard");
    let at = engine.listen("127.0.0.1:0".parse::<Address>().expect("an address"));
    let mut client = engine.client().expect("a client");
    let peer = client.connect(at.expect("a port")).expect("a connection");
    for cookie in 0..calls {
        client.call(peer, cookie).expect("room for a call").submit().expect("a call");
        let mut is_done = false;
        while !is_done {
            client.poll_for(Duration::from_secs(1), |_| is_done = true);
        }
    }
    then(&engine);
}

fn top(connect: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rpcrdma-top"));
    command.args(["--connect", connect]).args(options).output().expect("it is built with the tests")
}

/// Answers one request with a text.
fn serve_once(text: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let request = BufReader::new(&stream).lines();
        let lines = request.map(|line| line.expect("text")).take_while(|line| !line.is_empty());
        assert_eq!(lines.take(99).next().as_deref(), Some("GET /metrics HTTP/1.1"));
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
        stream.write_all((head + &text).as_bytes()).expect("sent");
    });
    at
}

/// Every line of a JSON answer as Prometheus would write it.
fn lines(json: &Value) -> BTreeSet<String> {
    let names = json.as_object().expect("an object of names");
    let of_name = |(name, samples): (&String, &Value)| {
        let line = |sample: &Value| {
            let labels = sample["labels"].as_object().expect("labels");
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
            let braces =
                if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            format!("{name}{braces} {}", sample["value"].as_f64().expect("a number"))
        };
        samples.as_array().expect("samples").iter().map(line).collect::<Vec<_>>()
    };
    names.iter().flat_map(of_name).collect()
}

#[test]
fn json_agrees_with_the_metrics() {
    with_engine(5, |engine| {
        let text = engine.metrics().scrape();
        let expected = text.lines().filter(|line| !line.starts_with('#'));
        let expected: BTreeSet<String> = expected.map(as_written).collect();
        assert!(expected.len() > 100, "{text}");
        let output = top(&serve_once(text).to_string(), &["--once", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let json = serde_json::from_slice(&output.stdout).expect("JSON");
        let shown = lines(&json);
        let differences: Vec<_> = shown.symmetric_difference(&expected).collect();
        assert!(differences.is_empty(), "{differences:#?}");
    });
}

/// A line with its value as Rust writes it.
fn as_written(line: &str) -> String {
    let (sample, value) = line.rsplit_once(' ').expect("a value");
    format!("{sample} {}", value.parse::<f64>().expect("a number"))
}

#[test]
fn a_running_engine_is_shown_as_json_and_as_tables() {
    with_engine(7, |engine| {
        let server = engine.metrics().serve(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = server.expect("a port");
        let output = top(&server.url(), &["--once", "--json"]);
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let shards = json["rpcrdma_calls_received_total"].as_array().expect("shards");
        let calls: i64 = shards.iter().map(|shard| shard["value"].as_i64().expect("whole")).sum();
        assert_eq!(calls, 7);

        let output = top(&server.address().to_string(), &["--once", "--interval", "0.1"]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        for title in ["Shards", "Peers", "Latencies", "Counters"] {
            assert!(text.lines().any(|line| line == title), "{title} in {text}");
        }
        let received = text.lines().find(|line| line.starts_with("calls_received "));
        let received = received.expect("the counter").split_whitespace().collect::<Vec<_>>();
        assert_eq!(received, ["calls_received", "7", "0"]);
    });
}

#[test]
fn a_process_that_does_not_answer_is_an_error_that_names_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let output = top(&at, &["--once"]);
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains(&format!("no answer from http://{at}/metrics: ")), "{said}");
    let output = top(&serve_once("<html>\n".to_owned()).to_string(), &["--once", "--json"]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("line 1 is no metric: <html>"), "{said}");
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words.filter(|word| word.starts_with("rpcrdma_")).collect()
}

#[test]
fn a_reader_that_has_gone_ends_it_without_a_word() {
    with_engine(1, |engine| {
        let server = engine.metrics().serve(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = server.expect("a port");
        for options in [&["--once", "--json"][..], &["--once", "--interval", "0.1"], &[]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_rpcrdma-top"));
            command.args(["--connect", &server.url()]).args(options);
            let unread = std::io::pipe().expect("two descriptors").1;
            let ended = command.stdout(unread).output().expect("it is built with the tests");
            assert!(ended.status.success() && ended.stderr.is_empty(), "{options:?}: {ended:?}");
        }
    });
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana/rpcrdma.json");
    let text = std::fs::read_to_string(path).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() >= 8, "{} panels", panels.len());
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let asked: Vec<&str> =
        targets.map(|target| target["expr"].as_str().expect("a query")).collect();
    assert!(asked.len() >= panels.len() / 2);
    with_engine(1, |engine| {
        let scrape = engine.metrics().scrape();
        let samples = scrape.lines().filter(|line| !line.starts_with('#'));
        let there: BTreeSet<&str> =
            samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
        // A program without bindings has none; a test of the exporter has its name.
        let of_bindings = "rpcrdma_procedure_seconds_bucket";
        for name in asked.iter().flat_map(|query| names(query)) {
            assert!(there.contains(name) || name == of_bindings, "{name} is no metric");
        }
    });
}
