//! The endpoint: answers `GET /metrics` and `HEAD /metrics` on a thread of its own.
//!
//! Everything that a client can make it hold or wait for is bounded: connections at a time, the
//! time and the length of a request, and one scrape at a time. Further clients wait in the kernel's
//! queue of the listener.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};

use crate::provider::CloseOnFork;

/// Serves metrics until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    at: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A forked child keeps no port.
type Listener = CloseOnFork<TcpListener>;

/// Makes the text of a scrape.
pub(super) type ScrapeFn = Arc<dyn Fn() -> String + Send + Sync>;

/// Metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics at {at}: {source}")]
pub struct MetricsError {
    /// The address.
    pub at: SocketAddr,
    /// Why not.
    pub source: io::Error,
}

impl MetricsServer {
    pub(super) fn start(listener: std::net::TcpListener, scrape: ScrapeFn) -> io::Result<Self> {
        let at = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name("rpcrdma-scrape")
            .max_blocking_threads(1)
            .build()?;
        let listener = {
            let _guard = runtime.enter();
            CloseOnFork::open(|| TcpListener::from_std(listener))?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("rpcrdma-metrics".into())
            .spawn(move || run(runtime, listener, scrape, stopped))?;
        Ok(MetricsServer { at, stop: Some(stop), thread: Some(thread) })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// Where Prometheus, or a browser, finds the metrics.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.at)
    }
}

impl Drop for MetricsServer {
    /// Ends the thread; requests in progress are not answered.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(runtime: Runtime, listener: Listener, scrape: ScrapeFn, stopped: oneshot::Receiver<()>) {
    runtime.spawn(accept(listener, scrape));
    // An error means to stop: the sender is dropped.
    let _ = runtime.block_on(stopped);
    // A scrape in progress ends by itself.
    runtime.shutdown_background();
}

/// Serves connections, some at a time.
async fn accept(listener: Listener, scrape: ScrapeFn) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let scrape = scrape.clone();
                // Not free before its scrape is done: clients that leave would queue any number.
                let scrape: ScrapeFn = Arc::new(move || {
                    let _held = &place;
                    scrape()
                });
                // A client that takes longer loses the connection.
                tokio::spawn(tokio::time::timeout(TIME_MAX, serve(stream, scrape)));
            }
            // No descriptor is free, or the like: it passes.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Serves one request.
async fn serve(stream: TcpStream, scrape: ScrapeFn) {
    let service = service_fn(|request| respond(request, scrape.clone()));
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(REQUEST_LEN_MAX).max_headers(HEADERS_MAX);
    // A write of one piece raises no SIGPIPE if the client has gone; writev(2) may.
    http.writev(false);
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME_MAX);
    // The client has gone, or spoke no HTTP: no answer would arrive.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(
    request: Request<Incoming>,
    scrape: ScrapeFn,
) -> Result<Response<String>, Infallible> {
    let mut response = Response::new(String::new());
    let is_browser = is_browser(&request);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PLAIN_TEXT));
    if request.uri().path() != PATH {
        *response.status_mut() = StatusCode::NOT_FOUND;
        *response.body_mut() = format!("nothing but {PATH} is here\n");
    } else if ![Method::GET, Method::HEAD].contains(request.method()) {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    } else if let Ok(text) = tokio::task::spawn_blocking(move || scrape()).await {
        if !is_browser {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPENMETRICS));
        }
        *response.body_mut() = text;
    } else {
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    }
    Ok(response)
}

/// Whether the client shows pages. It would save OpenMetrics to a file.
fn is_browser(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get_all(ACCEPT).into_iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.to_ascii_lowercase().contains("text/html"))
}

const PATH: &str = "/metrics";
/// Of the one format that there is, whatever a parser accepts: one of another format would find no
/// counters in it.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Of errors, and of what a browser shows.
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
/// Connections at a time.
const CONNECTIONS_MAX: usize = 8;
/// Bytes of a request.
const REQUEST_LEN_MAX: usize = 8 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// For the request.
const HEADER_TIME_MAX: Duration = Duration::from_secs(2);
/// For request, scrape and response.
const TIME_MAX: Duration = Duration::from_secs(10);
/// After an error of the listener.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::sync::{Mutex, mpsc};

    use super::*;

    #[test]
    fn clients_that_leave_do_not_queue_scrapes() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let scrape =
            move || wait.lock().expect("no panic").recv().map_or_else(|_| "a 1\n", |()| "");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = MetricsServer::start(listener, Arc::new(move || scrape().to_owned()));
        let server = server.expect("a thread");
        let ask = |patience| {
            let mut stream = TcpStream::connect(server.address()).expect("the kernel's queue");
            stream.set_read_timeout(Some(patience)).expect("a socket");
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
            stream
        };
        let is_let_go = |_: &usize| {
            let mut stream = ask(HEADER_TIME_MAX / 4);
            stream.shutdown(Shutdown::Write).expect("a socket");
            matches!(stream.read(&mut [0]), Ok(0))
        };
        // One that leaves before its request is read has no scrape, and holds no place.
        let clients = 64 * CONNECTIONS_MAX;
        let count = (0..clients).take_while(is_let_go).count();
        assert!(count < clients, "all were let go, and the scrapes of most of them wait");
        drop(go);
        let mut answer = String::new();
        ask(TIME_MAX).read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("a 1\n"), "{answer}");
    }
}
