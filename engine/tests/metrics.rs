//! Metrics over HTTP: what a scrape shows, and what the endpoint refuses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use rpcrdma::metrics::MetricsServer;
use rpcrdma::{Address, Answer, Call, Client, Engine, Fabric, Handler, Reply, ShardHandle, Ticket};
use rpcrdma_config::{Config, Raw};

/// Answers with nothing; panics at a call with a number.
struct Server;

impl Handler for Server {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        assert_eq!(call.reader().u32().unwrap_or(0), 0, "an unlucky number");
        reply.send()
    }
}

/// An engine of two serving shards and a client, with its metrics.
struct Scene {
    // Dropped first: the shards wait for the ends of its connections.
    client: Client<Fabric>,
    engine: Engine<Fabric>,
    shards: Vec<ShardHandle>,
    at: Address,
    server: MetricsServer,
}

impl Scene {
    fn new() -> Scene {
        let mut raw = Raw::default();
        raw.engine.provider = "fabric".into();
        raw.engine.shards = 2;
        raw.engine.idle.policy = "block".into();
        raw.connections.max = 4;
        raw.stats.sample = 1;
        let config = Config::try_from(raw).expect("a configuration");
        let mut engine = Engine::new(Fabric::new(), config).expect("an engine");
        let shards = engine.start(|_| Server).expect("two shards");
        let at = engine.listen("127.0.0.1:0".parse::<Address>().expect("an address"));
        let client = engine.client().expect("a client");
        let server = engine.metrics().serve(any_port()).expect("a port");
        Scene { shards, client, at: at.expect("a port"), server, engine }
    }

    /// Calls, one at a time; connects first.
    fn call(&mut self, count: u64, number: u32) {
        let peer = self.client.connect(self.at).expect("a connection");
        for cookie in 0..count {
            let mut call = self.client.call(peer, cookie).expect("room for a call");
            call.payload().put_u32(number);
            call.submit().expect("a call");
            let mut is_done = false;
            while !is_done {
                self.client.poll_for(Duration::from_secs(1), |_| is_done = true);
            }
        }
    }

    fn get(&self, request: &str) -> String {
        ask(self.server.address(), request)
    }

    fn scrape(&self) -> String {
        let answer = self.get("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Sends a request and returns all that is answered.
fn ask(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    // The end may be a reset: what was sent too much is not read.
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// The value of the sample with this name and these labels.
fn value(text: &str, sample: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{sample} in {text}")).parse().expect("a number")
}

#[test]
fn a_scrape_shows_every_counter_of_every_shard() {
    let mut scene = Scene::new();
    scene.call(3, 0);
    scene.call(4, 0);
    let text = scene.scrape();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut calls = 0;
    for shard in &scene.shards {
        let label = format!("{{shard=\"{}\"}}", shard.shard());
        let pool = |pool: &str| label.replace('}', &format!(",pool=\"{pool}\"}}"));
        assert_eq!(value(&text, &format!("rpcrdma_up{label}")), 1);
        let received = value(&text, &format!("rpcrdma_calls_received_total{label}"));
        assert_eq!(received, shard.stats().calls_received);
        calls += received;
        let bytes = value(&text, &format!("rpcrdma_memory_bytes{label}"));
        assert_eq!(bytes, shard.resources().bytes() as u64);
        let places = pool("connections");
        assert_eq!(value(&text, &format!("rpcrdma_pool_used{places}")), 1);
        assert_eq!(value(&text, &format!("rpcrdma_pool_size{places}")), 4);
        assert_eq!(value(&text, &format!("rpcrdma_calls_open{label}")), 0);
        let peers = |line: &&str| {
            line.starts_with(&format!("rpcrdma_peer_info{}", &label[..label.len() - 1]))
        };
        let peers: Vec<&str> = text.lines().filter(peers).collect();
        assert_eq!(peers.len(), 1, "{text}");
        assert!(peers[0].contains("state=\"up\",version=\"2\",requested_by=\"peer\""), "{text}");
    }
    assert_eq!(calls, 7);
    let client = format!("{{shard=\"{}\"}}", scene.client.handle().shard());
    assert_eq!(value(&text, &format!("rpcrdma_calls_completed_total{client}")), 7);
    // No thread polls it.
    assert_eq!(value(&text, &format!("rpcrdma_up{client}")), 0);
    assert_eq!(value(&text, "rpcrdma_connection_requests_total{outcome=\"accepted\"}"), 2);
    assert_eq!(value(&text, "rpcrdma_panics_total"), 0);
    let samples = |shard: &str| text.lines().filter(|line| line.contains(shard)).count();
    let counters = scene.shards[0].stats().iter().count();
    assert!(samples(&client) > counters, "every counter is there");
}

/// Answers a call with 0 at once; refuses one with 1; keeps the right to answer one with 2.
#[derive(Default)]
struct EveryAnswer {
    kept: Vec<Ticket>,
}

impl Handler for EveryAnswer {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        match call.reader().u32() {
            Ok(0) => reply.send(),
            Ok(1) => reply.refuse(),
            _ => {
                let (answer, ticket) = reply.defer();
                self.kept.push(ticket);
                answer
            }
        }
    }
}

#[test]
fn calls_that_were_received_are_replied_to_refused_unanswered_or_open() {
    let mut raw = Raw::default();
    raw.engine.provider = "fabric".into();
    raw.engine.idle.policy = "block".into();
    let config = Config::try_from(raw).expect("a configuration");
    let mut engine = Engine::new(Fabric::new(), config).expect("an engine");
    let shard = engine.start(|_| EveryAnswer::default()).expect("a shard").remove(0);
    let at = engine.listen("127.0.0.1:0".parse::<Address>().expect("an address"));
    let at = at.expect("a port");
    let terms = |engine: &Engine<Fabric>| {
        let text = engine.metrics().scrape();
        let label = format!("{{shard=\"{}\"}}", shard.shard());
        let of = |name: &str| value(&text, &format!("rpcrdma_{name}{label}"));
        let terms = ["replies_sent_total", "refusals_sent_total", "calls_unanswered_total"];
        let [replies, refusals, unanswered] = terms.map(of);
        let terms = [replies, refusals, unanswered, of("calls_open")];
        assert_eq!(of("calls_received_total"), terms.iter().sum::<u64>(), "{text}");
        terms
    };
    let mut client = engine.client().expect("a client");
    let peer = client.connect(at).expect("a connection");
    // The last is answered behind the others.
    for (cookie, number) in [1, 2, 2, 0, 0, 0].into_iter().enumerate() {
        let mut call = client.call(peer, cookie as u64).expect("room for a call");
        call.payload().put_u32(number);
        call.submit().expect("a call");
    }
    let mut done = 0;
    while done < 4 {
        client.poll_for(Duration::from_secs(1), |_| done += 1);
    }
    assert_eq!(terms(&engine), [3, 1, 0, 2]);
    drop(client);
    let is_gone = |[_, _, unanswered, _]: [u64; 4]| unanswered == 2;
    let end = (0..PATIENCE).map(|_| terms(&engine)).find(|terms| is_gone(*terms));
    assert_eq!(end, Some([3, 1, 2, 0]));
}

/// Looks until a shard has seen that a connection has ended.
const PATIENCE: u32 = 100_000;

#[test]
fn every_family_is_described_and_named_by_the_conventions() {
    let mut scene = Scene::new();
    scene.call(1, 0);
    let text = scene.scrape();
    let described = |what: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(what));
        lines.map(|line| line.split_once(' ').expect("a name and a text")).collect::<Vec<_>>()
    };
    let (helps, types) = (described("# HELP "), described("# TYPE "));
    assert_eq!(helps.len(), types.len());
    for ((name, help), (_, kind)) in helps.iter().zip(&types) {
        assert!(name.starts_with("rpcrdma_") && !name.ends_with("_total"), "{name}");
        assert!(help.ends_with('.') && !help.contains("  "), "{name}: {help}");
        let suffix = match *kind {
            "counter" => "_total",
            "histogram" => "_count",
            _ => "",
        };
        let sample = format!("{name}{suffix}");
        let is_it = |line: &str| {
            line.strip_prefix(&sample).is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        assert!(text.lines().any(is_it), "{sample} has a sample");
    }
}

#[test]
fn a_shard_that_has_ended_is_not_shown_and_one_that_has_panicked_is_down() {
    let mut scene = Scene::new();
    let other = scene.engine.client().expect("a client");
    let label = format!("shard=\"{}\"", other.handle().shard());
    assert!(scene.scrape().contains(&label));
    drop(other);
    assert!(!scene.scrape().contains(&label));

    let (failed, failures) = mpsc::channel();
    scene.engine.on_failure(move |_| failed.send(()).expect("it is awaited"));
    scene.call(1, 13);
    failures.recv().expect("a panic");
    let text = scene.scrape();
    let up =
        |shard: &ShardHandle| value(&text, &format!("rpcrdma_up{{shard=\"{}\"}}", shard.shard()));
    let mut ups: Vec<u64> = scene.shards.iter().map(up).collect();
    ups.sort_unstable();
    assert_eq!(ups, [0, 1]);
    assert_eq!(value(&text, "rpcrdma_panics_total"), 1);
}

#[test]
fn the_endpoint_answers_get_metrics_only() {
    let scene = Scene::new();
    let status = |request: &str| {
        let answer = scene.get(&format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n"));
        answer.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(status("GET /metrics"), "HTTP/1.1 200 OK");
    assert_eq!(status("GET /metrics?name=x"), "HTTP/1.1 200 OK");
    assert_eq!(status("GET /"), "HTTP/1.1 404 Not Found");
    assert_eq!(status("GET /metrics/"), "HTTP/1.1 404 Not Found");
    assert_eq!(status("POST /metrics"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(status("GET"), "HTTP/1.1 400 Bad Request");
    let long = scene.get(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(64 << 10)));
    assert!(!long.contains("200 OK"), "{long}");
    let headers: String = (0..1000).map(|at| format!("h{at}: x\r\n")).collect();
    let many = scene.get(&format!("GET /metrics HTTP/1.1\r\n{headers}\r\n"));
    assert!(!many.contains("200 OK"), "{many}");
    scene.scrape();
}

/// A parser of Prometheus's older format would find counters without samples.
#[test]
fn the_content_has_the_type_that_it_is_of() {
    let scene = Scene::new();
    for accept in [
        "",
        "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.3\r\n",
        "Accept: text/plain\r\n",
        "Accept: text/plain\r\nAccept: application/openmetrics-text; q=0\r\n",
        "ACCEPT: Application/OpenMetrics-Text\r\n",
        "Accept: */*\r\n",
    ] {
        let answer = scene.get(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n"));
        let kind = answer.lines().find_map(|line| line.strip_prefix("content-type: "));
        assert_eq!(kind, Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
        // The mark of this format.
        assert!(answer.ends_with("\n# EOF\n"), "{accept}");
    }
    // A browser shows text, and saves what it has no name for.
    for accept in
        ["Accept: text/html,*/*;q=0.8\r\n", "Accept: */*\r\nACCEPT: image/png, Text/HTML\r\n"]
    {
        let answer = scene.get(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n"));
        let kind = answer.lines().find_map(|line| line.strip_prefix("content-type: "));
        assert_eq!(kind, Some("text/plain; charset=utf-8"), "{accept}");
        assert!(answer.ends_with("\n# EOF\n"), "{accept}");
    }
    let missing = scene.get("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(missing.contains("content-type: text/plain; charset=utf-8\r\n"), "{missing}");
}

#[test]
fn the_head_is_that_of_an_answer() {
    let scene = Scene::new();
    let answer = scene.get("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("content-type: application/openmetrics-text"), "{head}");
    assert_eq!(body, "");
    let refused = scene.get("POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(refused.contains("allow: GET, HEAD\r\n"), "{refused}");
}

#[test]
fn every_timed_call_is_in_a_bucket_of_its_side() {
    let mut scene = Scene::new();
    scene.call(50, 0);
    let text = scene.scrape();
    let sum = |name: &str, label: &str| {
        let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
        let values = text.lines().filter(is_it).map(|line| line.rsplit(' ').next());
        values
            .map(|value| value.and_then(|it| it.parse::<f64>().ok()).expect("a value"))
            .sum::<f64>()
    };
    for side in ["rpcrdma_service_seconds", "rpcrdma_call_seconds"] {
        assert_eq!(sum(&format!("{side}_count"), ""), 50.0, "{text}");
        assert_eq!(sum(&format!("{side}_bucket"), "le=\"+Inf\""), 50.0);
        assert!(sum(&format!("{side}_sum"), "") > 0.0);
    }
    assert_eq!(sum("rpcrdma_peer_calls_received_total", "peer="), 50.0);
}

#[test]
fn clients_that_say_nothing_delay_others_for_a_while_only() {
    let scene = Scene::new();
    // More than there are places.
    let silent: Vec<TcpStream> =
        (0..9).map(|_| TcpStream::connect(scene.server.address()).expect("it listens")).collect();
    scene.scrape();
    drop(silent);
    scene.scrape();
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let scene = Scene::new();
    let at = scene.server.address();
    let error = scene.engine.metrics().serve(at).expect_err("it is in use").to_string();
    assert!(error.starts_with(&format!("cannot serve metrics at {at}: ")), "{error}");
    assert!(error.contains("in use"), "{error}");
}

#[test]
fn dropping_the_server_closes_the_port() {
    let Scene { engine, server, .. } = Scene::new();
    let at = server.address();
    // One that is asked for just now does not hinder it.
    let open = TcpStream::connect(at).expect("it listens");
    drop(server);
    TcpStream::connect(at).expect_err("nothing listens");
    drop(open);
    let again = engine.metrics().serve(at).expect("the port is free");
    assert!(ask(at, "GET /metrics HTTP/1.0\r\n\r\n").contains("200 OK"));
    drop(again);
}
