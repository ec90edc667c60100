//! Two pinned threads, a client and a server, for the length of one round.

use std::fs;
use std::panic;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::error::BenchError;
use crate::machine::files::field;
use crate::machine::{CorePair, pin};

/// Set when either thread is done or has failed. Both look at it while they spin.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Whether the other side is gone: one load of a cache line without a writer.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends the other side's spinning.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub struct PairOutcome<C, S> {
    pub client: C,
    pub server: S,
    /// How often either lost its core to another program.
    pub preempted: u64,
}

/// Runs both closures on threads of their own, pinned, started together. The end of either sets
/// [`Stop`] for the other.
///
/// # Panics
/// If a closure panics.
pub fn run<C: Send, S: Send>(
    cores: CorePair,
    client: impl FnOnce(&Stop) -> Result<C, BenchError> + Send,
    server: impl FnOnce(&Stop) -> Result<S, BenchError> + Send,
) -> Result<PairOutcome<C, S>, BenchError> {
    let (mut of_client, mut of_server) = (None, None);
    let preempted = both(
        cores,
        Box::new(|stop| client(stop).map(|value| of_client = Some(value))),
        Box::new(|stop| server(stop).map(|value| of_server = Some(value))),
    )?;
    let client = of_client.expect("the client has ended well");
    let server = of_server.expect("the server has ended well");
    Ok(PairOutcome { client, server, preempted })
}

/// Runs a client on a thread of its own, pinned, while the calling thread watches over a server that
/// is elsewhere: on no core, so that it takes none from the server. Returns how often the client
/// lost its core, too.
///
/// # Panics
/// If a closure panics.
pub fn beside<C: Send>(
    core: u32,
    client: impl FnOnce(&Stop) -> Result<C, BenchError> + Send,
    watch: impl FnOnce(&Stop) -> Result<(), BenchError>,
) -> Result<(C, u64), BenchError> {
    let (stop, start, mut of_client) = (Stop::default(), Barrier::new(1), None);
    let work: Work<'_> = Box::new(|stop| client(stop).map(|value| of_client = Some(value)));
    let (client, watched) = thread::scope(|scope| {
        let client = scope.spawn(|| side(core, &start, &stop, work));
        let ends = StopOnDrop(&stop);
        let watched = watch(&stop);
        drop(ends);
        (client.join(), watched)
    });
    let client = client.unwrap_or_else(|panic| panic::resume_unwind(panic));
    watched?;
    let preempted = client?;
    Ok((of_client.expect("the client has ended well"), preempted))
}

/// What one side does. Boxed, so that what starts threads is compiled once.
type Work<'a> = Box<dyn FnOnce(&Stop) -> Result<(), BenchError> + Send + 'a>;

/// Runs both sides. Returns how often either lost its core.
fn both(cores: CorePair, client: Work<'_>, server: Work<'_>) -> Result<u64, BenchError> {
    let stop = Stop::default();
    let start = Barrier::new(2);
    let (client, server) = thread::scope(|scope| {
        let client = scope.spawn(|| side(cores.client, &start, &stop, client));
        let server = scope.spawn(|| side(cores.server, &start, &stop, server));
        (client.join(), server.join())
    });
    let server = server.unwrap_or_else(|panic| panic::resume_unwind(panic));
    let client = client.unwrap_or_else(|panic| panic::resume_unwind(panic));
    let server_preempted = server?;
    Ok(server_preempted + client?)
}

/// One thread: pinned, in step with the other, and never leaving it spinning alone.
fn side(core: u32, start: &Barrier, stop: &Stop, work: Work<'_>) -> Result<u64, BenchError> {
    let _stop = StopOnDrop(stop);
    let pinned = pin(core);
    if pinned.is_err() {
        stop.set();
    }
    start.wait();
    pinned?;
    let before = preemptions();
    work(stop)?;
    Ok(preemptions().saturating_sub(before))
}

struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// How often the kernel took the core from the calling thread so far; 0 where it does not say.
pub(crate) fn preemptions() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    field(&status, "nonvoluntary_ctxt_switches").and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cores, or none on a machine that has one: such a machine measures nothing.
    fn cores() -> Option<CorePair> {
        CorePair::choose(None).ok()
    }

    fn until_stopped(stop: &Stop) -> Result<u32, BenchError> {
        while !stop.is_set() {
            thread::yield_now();
        }
        Ok(7)
    }

    #[test]
    fn the_end_of_the_client_ends_the_server() {
        let Some(cores) = cores() else { return };
        let outcome = run(cores, |_| Ok(3), until_stopped).expect("both sides are well");
        assert_eq!((outcome.client, outcome.server), (3, 7));
    }

    #[test]
    fn a_failed_server_ends_the_client_and_is_what_is_reported() {
        let Some(cores) = cores() else { return };
        let failed = || BenchError::Usage("as the test wants".into());
        let result = run::<u32, u32>(
            cores,
            |stop| until_stopped(stop).and(Err(BenchError::PeerGone { who: "client" })),
            |_| Err(failed()),
        );
        assert_eq!(result.unwrap_err().to_string(), failed().to_string());
    }

    #[test]
    fn who_watches_over_a_server_is_stopped_by_the_client_and_stops_it() {
        let Some(cores) = cores() else { return };
        let core = cores.client;
        let watched = beside(core, |_| Ok(3), |stop| until_stopped(stop).map(|_| ()));
        assert_eq!(watched.expect("both are well").0, 3);
        let gone = |_: &Stop| Err(BenchError::Usage("it has gone".into()));
        let error = beside(core, until_stopped, gone).expect_err("the server is not there");
        assert_eq!(error.to_string(), "it has gone");
    }

    #[test]
    fn a_core_that_is_not_there_fails_and_does_not_hang() {
        let Some(cores) = cores() else { return };
        let cores = CorePair { server: 1000, ..cores };
        let result = run(cores, until_stopped, until_stopped);
        assert!(matches!(result, Err(BenchError::Core { core: 1000, .. })), "{result:?}");
    }
}
