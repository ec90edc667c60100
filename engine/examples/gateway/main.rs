//! A gateway on tokio: each request of a text protocol calls two services at a time.
//!
//! ```text
//!   client ── "GET 17" ─▶ gateway ─┬─ call ─▶ prices     both at a time, and both within
//!          ◀─ "200 34 5" ──────────┴─ call ─▶ stocks     a time limit: otherwise "504"
//! ```
//! The services are in this process, over the software fabric or TCP; a program that has them
//! elsewhere gives the sessions other addresses.

mod services;

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Parser;
use rpcrdma::future::{AsyncClient, AsyncOptions, CallFailed, Request};
use rpcrdma::{
    Address, Config, Engine, OwnedCall, Provider, ProviderKind, Resend, Session, SessionOptions,
    SetupError, with_provider,
};
use services::Service;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// What the program does and fails with.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Answers requests with the numbers of two services.
#[derive(Debug, Parser)]
#[command(name = "gateway")]
struct Args {
    /// What carries the calls to the services.
    #[arg(short, long, default_value = "fabric")]
    provider: ProviderKind,
}

/// The services that a request needs. Each connection has a clone.
#[derive(Clone)]
struct Gateway {
    prices: AsyncClient,
    stocks: AsyncClient,
    /// How long a request may take.
    patience: Duration,
}

impl Gateway {
    /// Answers a line.
    async fn answer(&self, line: &str) -> String {
        let Some(item) = line.strip_prefix("GET ").and_then(|item| item.trim().parse().ok()) else {
            return "400 GET and a number\n".to_owned();
        };
        let both = async { tokio::join!(ask(&self.prices, item), ask(&self.stocks, item)) };
        // A call whose time is over is cancelled with its future.
        match timeout(self.patience, both).await {
            Ok((Ok(price), Ok(stock))) => format!("200 {price} {stock}\n"),
            Ok((Err(failed), _) | (_, Err(failed))) => format!("503 {failed}\n"),
            Err(_) => "504 a service takes too long\n".to_owned(),
        }
    }

    /// Accepts connections until the task is dropped.
    async fn serve(self, listener: TcpListener) -> Outcome<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let gateway = self.clone();
            // A connection that breaks concerns no other.
            tokio::spawn(async move { gateway.talk(stream).await });
        }
    }

    async fn talk(self, mut stream: TcpStream) -> Outcome<()> {
        let (read, mut write) = stream.split();
        let mut lines = BufReader::new(read).lines();
        while let Some(line) = lines.next_line().await? {
            write.write_all(self.answer(&line).await.as_bytes()).await?;
        }
        Ok(())
    }
}

/// Asks a service for the number of an item. It may be asked twice.
async fn ask(service: &AsyncClient, item: u32) -> Result<u32, CallFailed> {
    let mut call = OwnedCall::new();
    call.put_u32(item);
    let request = Request::from(call).resend(Resend::SameXid);
    let reply = service.call(request).await?;
    Ok(reply.reader().u32().unwrap_or(0))
}

/// A client of a service.
fn client<P: Provider>(engine: &Engine<P>, at: Address) -> Outcome<AsyncClient> {
    let session = Session::new(engine.client()?, [at], &SessionOptions::default())?;
    Ok(AsyncClient::spawn(session, &AsyncOptions::default())?)
}

/// Has `clients` send the lines to a gateway over this provider, and returns the answers.
async fn answers(
    over: ProviderKind,
    clients: u32,
    lines: &[&str],
    patience: Duration,
) -> Outcome<Vec<String>> {
    with_provider!(over, |Device| run(Device::from_config, clients, lines, patience).await)
}

/// The same, over what `open` opens: starts both services and the gateway.
async fn run<P: Provider>(
    open: fn(&Config) -> Result<P, SetupError>,
    clients: u32,
    lines: &[&str],
    patience: Duration,
) -> Outcome<Vec<String>> {
    let mut raw = Config::default().raw().clone();
    // Threads that have nothing to do leave the processors to tokio.
    raw.engine.idle.policy = "block".into();
    // The end waits for calls that were given up, but no longer than this.
    raw.connections.stop_timeout = "100ms".into();
    let config = Config::try_from(raw)?;
    let own: Address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into();
    let mut engines = Vec::new();
    let mut both = Vec::new();
    for service in [Service::Prices, Service::Stocks] {
        let mut engine = Engine::new(open(&config)?, config.clone())?;
        engine.start(move |_| service.handler())?;
        let at = engine.listen(own)?;
        both.push(client(&engine, at)?);
        engines.push(engine);
    }
    let [prices, stocks] = both.try_into().expect("two");
    let gateway = Gateway { prices, stocks, patience };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let at = listener.local_addr()?;
    let serving = tokio::spawn(gateway.clone().serve(listener));
    let mut answers = Vec::new();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let talks: Vec<_> = (0..clients).map(|_| tokio::spawn(talk(at, text.clone()))).collect();
    for talk in talks {
        answers.extend(talk.await??);
    }
    serving.abort();
    tokio::join!(gateway.prices.close(), gateway.stocks.close());
    Ok(answers)
}

/// Sends lines, and reads an answer to each.
async fn talk(at: SocketAddr, text: String) -> Outcome<Vec<String>> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    let mut lines = BufReader::new(stream).lines();
    let mut answers = Vec::new();
    while let Some(answer) = lines.next_line().await? {
        answers.push(answer);
    }
    Ok(answers)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let lines = ["GET 1", "GET 2", "GET 13", "GET 3", "PUT 4"];
    let over = Args::parse().provider;
    for answer in answers(over, 1, &lines, Duration::from_millis(200)).await? {
        println!("gateway: {answer}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_line_is_answered_with_both_numbers() {
        let lines = ["GET 1", "GET 20", "GET", "GET 400"];
        for over in [ProviderKind::Fabric, ProviderKind::Tcp] {
            let answers = answers(over, 20, &lines, Duration::from_secs(60)).await;
            let answers = answers.expect("the gateway serves");
            assert_eq!(answers.len(), 80);
            for talk in answers.chunks(4) {
                assert_eq!(talk, ["200 2 1", "200 40 6", "400 GET and a number", "200 800 1"]);
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_service_that_does_not_answer_delays_no_request_for_long() {
        let lines = ["GET 13"; 30];
        for over in [ProviderKind::Fabric, ProviderKind::Tcp] {
            let answers = answers(over, 3, &lines, Duration::from_millis(5)).await;
            let answers = answers.expect("the gateway serves");
            assert_eq!(answers, ["504 a service takes too long"; 90]);
        }
    }
}
