//! The RPC as futures: as many tasks as calls are under way, on one thread; a client whose own thread
//! polls, or that is polled by the thread of the tasks; and the server.
//!
//! ```text
//!   tasks, on the client's core ─▶ AsyncClient, its thread on any core ─▶ server, on its core
//!   tasks and LocalClient, on the client's core ────────────────────────▶ server, on its core
//! ```
//! The thread of the first sleeps when it has nothing to do, so that it takes no core from other
//! contenders in their rounds. The second is made for each round, before what is measured: it stays
//! on its thread.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use futures::executor::block_on;
use futures::stream::{FuturesUnordered, TryStreamExt};
use rpcrdma::future::{AsyncClient, AsyncOptions, CallFailed, LocalClient, Response};
use rpcrdma::{Address, Engine, OwnedCall, Provider, Session, SessionOptions, Shard};
use rpcrdma_config::Config;
use rpcrdma_config::section::{IdlePolicy, IdleSection};

use super::ends::{make_engine, make_server, serve};
use super::idle::Idling;
use super::message::{PREFIX_LEN, REPLY_HEADER, call_header};
use super::server::Server;
use crate::call::Load;
use crate::contenders::blocks::pattern;
use crate::device::Device;
use crate::error::BenchError;
use crate::machine::{CorePair, on_core, pair};
use crate::stats::{Contender, Meter, Quota, Round};
use crate::values::{Op, Placement};

/// Tasks, and a server.
pub struct Tasks<P: Provider> {
    cores: CorePair,
    idle: IdleSection,
    timed: bool,
    calls: TaskCalls,
    /// None if it is made for each round.
    client: Option<AsyncClient>,
    at: Address,
    server: Shard<P, Server>,
    // Last, so that the control plane outlives the shards.
    engine: Arc<Engine<P>>,
}

/// By which thread the session is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled {
    ByOwnThread,
    ByTasks,
}

/// What the tasks call, and how many there are.
struct TaskCalls {
    window: usize,
    /// What a call says behind transaction id and message type, and what its reply says there.
    call: Box<[u8]>,
    reply: Box<[u8]>,
}

impl<P: Provider> Tasks<P> {
    /// Sets both up in this process: a client and a server. Round trips are timed when `timed`; else they
    /// are counted.
    ///
    /// # Errors
    /// For a load or a configuration that it does not take.
    pub fn new<D: Device<Provider = P>>(
        device: &D,
        cores: CorePair,
        config: &Config,
        load: &Load,
        timed: bool,
        polled: Polled,
    ) -> Result<Tasks<P>, BenchError> {
        check(load, config, device.far().is_some())?;
        let engine = make_engine(device.open()?, config, load)?;
        let at = engine.listen(device.at())?;
        let server = make_server(&engine, cores.server, load)?;
        let client = match polled {
            Polled::ByTasks => None,
            Polled::ByOwnThread => {
                let session = on_core(cores.client, || session(&engine, at))?;
                let client = AsyncClient::spawn(session, &AsyncOptions::default());
                Some(client.map_err(|error| BenchError::device(NAME, error))?)
            }
        };
        let calls = TaskCalls::new(load);
        let idle = config.engine().idle;
        Ok(Tasks { cores, idle, timed, calls, client, at, server, engine })
    }

    pub fn note(&self) -> String {
        let IdleSection { policy, spin, .. } = self.idle;
        let polls = match self.client {
            Some(_) => "a thread that polls on any core",
            None => "whose thread polls",
        };
        format!(
            "{}: {} task(s) on core {}, {polls}, idle policy {policy:?} after {spin:?}",
            self.name(),
            self.calls.window,
            self.cores.client
        )
    }
}

/// A session of a new client.
fn session<P: Provider>(engine: &Engine<P>, at: Address) -> Result<Session<P>, BenchError> {
    Ok(Session::new(engine.client()?, [at], &SessionOptions::default())?)
}

impl<P: Provider> Contender for Tasks<P> {
    fn name(&self) -> &'static str {
        match self.client {
            Some(_) => NAME,
            None => LOCAL_NAME,
        }
    }

    fn round(&mut self, quota: Quota) -> Result<Round, BenchError> {
        let Tasks { cores, idle, timed, calls, client, at, server, engine } = self;
        let (calls, timed, at) = (&*calls, *timed, *at);
        let outcome = pair::run(
            *cores,
            |_| match client {
                Some(client) => block_on(calls.round(client, quota, timed)),
                None => {
                    let client = LocalClient::new(session(engine, at)?);
                    client.block_on(async {
                        let round = calls.round(&client, quota, timed).await;
                        client.close().await;
                        round
                    })
                }
            },
            |stop| serve(server, Idling::new(*idle), stop),
        )?;
        Ok(Round { preempted: outcome.preempted, ..outcome.client })
    }
}

/// What makes calls of tasks.
trait Calling {
    fn call(&self, call: OwnedCall) -> impl Future<Output = Result<Response, CallFailed>>;
}

impl Calling for AsyncClient {
    fn call(&self, call: OwnedCall) -> impl Future<Output = Result<Response, CallFailed>> {
        AsyncClient::call(self, call)
    }
}

impl<P: Provider> Calling for LocalClient<P> {
    fn call(&self, call: OwnedCall) -> impl Future<Output = Result<Response, CallFailed>> {
        LocalClient::call(self, call)
    }
}

impl TaskCalls {
    fn new(load: &Load) -> TaskCalls {
        let (call, reply) = words(load);
        TaskCalls { window: load.window as usize, call, reply }
    }

    /// A round, once there is a connection.
    async fn round(
        &self,
        client: &impl Calling,
        quota: Quota,
        timed: bool,
    ) -> Result<Round, BenchError> {
        self.call(client).await?;
        let meter = Meter::new(quota);
        match timed {
            true => self.one_by_one(client, meter).await,
            false => self.all(client, meter).await,
        }
    }

    async fn one_by_one(
        &self,
        client: &impl Calling,
        mut meter: Meter,
    ) -> Result<Round, BenchError> {
        loop {
            let from = meter.now();
            self.call(client).await?;
            let to = meter.now();
            if !meter.timed(from, to) {
                return Ok(meter.finish());
            }
        }
    }

    /// As many tasks as calls are under way, until it is enough.
    async fn all(&self, client: &impl Calling, meter: Meter) -> Result<Round, BenchError> {
        let (meter, enough) = (RefCell::new(meter), Cell::new(false));
        let task = || async {
            while !enough.get() {
                self.call(client).await?;
                if !meter.borrow_mut().counted(1) {
                    enough.set(true);
                }
            }
            Ok::<(), BenchError>(())
        };
        let tasks: FuturesUnordered<_> = (0..self.window).map(|_| task()).collect();
        tasks.try_collect::<()>().await?;
        Ok(meter.into_inner().finish())
    }

    async fn call(&self, client: &impl Calling) -> Result<(), BenchError> {
        let mut call = OwnedCall::new();
        call.put_fixed(&self.call);
        call.reply_payload_max((PREFIX_LEN + self.reply.len()) as u32);
        let reply = client.call(call).await.map_err(|why| BenchError::device(NAME, why))?;
        match reply.payload().get(PREFIX_LEN..) == Some(&self.reply) {
            true => Ok(()),
            false => Err(BenchError::device(NAME, "a reply is not what was sent")),
        }
    }
}

/// What can be measured so.
fn check(load: &Load, config: &Config, is_far: bool) -> Result<(), BenchError> {
    let shape = load.shape;
    let is_echo = matches!(shape.op, Op::Null | Op::Echo) && shape.request_data == shape.reply_data;
    let wrong = if !is_echo || load.placement != Placement::Inline {
        "null calls and echoes in line only"
    } else if is_far {
        "both ends in this process only: --provider fabric or verbs"
    } else if config.engine().idle.policy != IdlePolicy::Block {
        "with --idle block only: a thread that spins takes a core from the others"
    } else {
        return Ok(());
    };
    Err(BenchError::Usage(format!("--futures: {wrong}")))
}

/// What calls and replies say behind transaction id and message type.
fn words(load: &Load) -> (Box<[u8]>, Box<[u8]>) {
    let mut data = Vec::new();
    if load.shape.op == Op::Echo {
        let len = load.shape.request_data;
        data.extend((len as u32).to_be_bytes());
        data.extend(&pattern(len)[..len]);
        data.resize(data.len().next_multiple_of(4), 0);
    }
    let with = |header: &[u8]| [header, &data].concat().into();
    (with(&call_header(load.shape.op)), with(&REPLY_HEADER))
}

/// The names in results.
const NAME: &str = "futures";
const LOCAL_NAME: &str = "local_futures";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Devices;
    use crate::modes::contest::{Contest, Plan};
    use crate::stats::End;

    /// A round with these options; `None` on a machine with one core.
    fn round(options: &str, polled: Polled) -> Option<Result<Round, BenchError>> {
        let contest = Contest::parse(options).expect("the options parse");
        let plan = match contest.plan() {
            Err(BenchError::OneCore { .. }) => return None,
            plan => plan.expect("the options fit together"),
        };
        let device = Devices::fabrics(&plan.config).expect("a fabric");
        let Plan { cores, config, load, .. } = &plan;
        let tasks = Tasks::new(&device, *cores, config, load, plan.is_timed(), polled);
        let quota = Quota { warm_up: 3, end: End::Count(100) };
        Some(tasks.and_then(|mut tasks| tasks.round(quota).and_then(|_| tasks.round(quota))))
    }

    #[test]
    fn calls_are_timed_one_by_one_or_counted() {
        for options in ["lat", "lat -s 5", "lat --op null", "rate -w 7", "rate -w 100"] {
            for polled in [Polled::ByOwnThread, Polled::ByTasks] {
                let all = format!("{options} --idle block --futures");
                let Some(round) = round(&all, polled) else { return };
                let round = round.unwrap_or_else(|error| panic!("{options}: {error}"));
                assert!(round.completed >= 100, "{options}: {round:?}");
                assert_eq!(round.latency.count() > 0, options.starts_with("lat"), "{options}");
            }
        }
    }

    #[test]
    fn what_would_not_be_comparable_is_refused() {
        for options in ["lat --op read --idle block", "lat -p send --idle block", "lat"] {
            let Some(refused) = round(&format!("{options} --futures"), Polled::ByTasks) else {
                return;
            };
            assert!(matches!(refused, Err(BenchError::Usage(_))), "{options}");
        }
        let raw = Contest::parse("raw --futures").expect("it parses").plan();
        assert!(matches!(raw, Err(BenchError::Usage(_) | BenchError::OneCore { .. })));
    }
}
