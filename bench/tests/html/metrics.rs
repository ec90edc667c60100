//! The page `/metrics` of a running engine in the browser: text, all of it.

use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma::metrics::MetricsServer;
use rpcrdma::{Address, Answer, Call, Engine, Fabric, Handler, Reply};
use rpcrdma_config::{Config, Raw};

use crate::browser::Browser;

/// Answers with nothing.
struct Server;

impl Handler for Server {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        reply.send()
    }
}

#[test]
#[ignore = "needs chromium: tests/run html"]
fn a_browser_shows_metrics_as_text() {
    with_metrics(|server| {
        let browser = Browser::new("metrics");
        let dom = browser.visit(&server.url(), &["--dump-dom"]);
        let text = dom.split_once("<pre").and_then(|(_, rest)| rest.split_once("</pre>"));
        let (text, _) = text.unwrap_or_else(|| panic!("no text in {dom}"));
        for line in [
            "rpcrdma_calls_received_total{shard=\"0\"} 3",
            "rpcrdma_service_seconds_count{shard=\"0\"} 3",
            "# HELP rpcrdma_calls_received Calls delivered to the handler.",
        ] {
            assert!(text.lines().any(|shown| shown.starts_with(line)), "{line} in {text}");
        }
        assert!(text.ends_with("# EOF\n"), "the end is shown: {text}");
    });
}

/// The metrics of an engine that has answered three calls.
fn with_metrics(then: impl FnOnce(&MetricsServer)) {
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
    for cookie in 0..3 {
        client.call(peer, cookie).expect("room for a call").submit().expect("a call");
        let mut is_done = false;
        while !is_done {
            client.poll_for(Duration::from_secs(1), |_| is_done = true);
        }
    }
    let server = engine.metrics().serve(SocketAddr::from(([127, 0, 0, 1], 0)));
    then(&server.expect("a port"));
}
