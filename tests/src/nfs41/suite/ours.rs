//! Our small server in place of the kernel's: on an engine and a thread of its own, with the clients on
//! another engine.

use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use rpcrdma::{Address, Clock, Engine, Provider, ShardHandle};
use rpcrdma_config::Config;

use super::{Files, Scene};
use crate::nfs41::server::Server;

/// The server, from the thread of a check.
pub struct Ours {
    /// Its shard.
    pub shard: ShardHandle,
    orders: Sender<Order>,
}

/// What the server's thread does between two turns.
type Order = Box<dyn FnOnce(&mut Server) + Send>;

impl Ours {
    /// Does something with the server, between two of its turns.
    ///
    /// # Panics
    /// If its thread has ended.
    pub fn with<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Server) -> T + Send + 'static,
    ) -> T {
        let (done, result) = mpsc::channel();
        let order: Order = Box::new(move |server| {
            // Who has asked waits for it.
            let _ = done.send(what(server));
        });
        self.orders.send(order).expect("the server runs");
        self.shard.wake();
        result.recv().expect("the server runs")
    }

    /// Waits until something holds of the server.
    ///
    /// # Panics
    /// If it does not in time.
    pub fn until(&self, what: &str, is_so: fn(&Server) -> bool) {
        let end = Instant::now() + WAIT_MAX;
        while !self.with(move |server| is_so(server)) {
            assert!(
                Instant::now() < end,
                "{what}: {}",
                self.with(|server| format!("{:?}", server.recalls))
            );
            thread::yield_now();
        }
    }
}

impl Files for Ours {
    fn put(&self, name: &str, bytes: &[u8]) {
        let (name, bytes) = (name.to_owned(), bytes.to_vec());
        self.with(move |server| server.tree.add(&name, &bytes));
    }

    fn get(&self, name: &str) -> Vec<u8> {
        let name = name.to_owned();
        self.with(move |server| server.tree.bytes_of(&name))
    }
}

/// Runs a check with our server, which listens at this address, and with clients of an engine of the
/// same configuration.
///
/// # Panics
/// If the check does, or the server has lost or kept something.
pub fn with_ours<P: Provider + Clone>(
    device: &P,
    config: &Config,
    at: Address,
    check: impl FnOnce(Scene<'_, P>, &Ours),
) {
    let engine = || Engine::new(device.clone(), config.clone()).expect("an engine");
    let (serving, calling) = (engine(), engine());
    thread::scope(|scope| {
        let ((orders, ordered), (listening, started)) = (mpsc::channel(), mpsc::channel());
        let serving = &serving;
        scope.spawn(move || serve(serving, at, &listening, &ordered));
        let (at, shard) = started.recv().expect("it listens");
        // Dropped at the end of the check, also by a panic, which ends the server.
        let ours = Ours { shard, orders };
        check(Scene { engine: &calling, at, files: &ours }, &ours);
        let stats = ours.shard.stats();
        assert_eq!((stats.buffers_leaked, stats.violations), (0, 0), "{stats:?}");
    });
}

/// Makes the tests that run with our server. `$open` makes, for each test, an
/// [`OnDevice`](crate::opener::OnDevice), and `$change` changes the configuration of both ends;
/// attributes of the tests may follow.
#[macro_export]
macro_rules! ours_suite {
    ($open:expr, $change:expr $(; $(#[$attr:meta])+)?) => {
        $crate::ours_suite! { tests $open, $change, [$($(#[$attr])+)?],
            a_recalled_delegation_is_returned: |scene, _| recall::a_recalled_delegation_is_returned(scene),
            data_move_by_every_way: |scene, _| data::data_move_by_every_way(scene),
            a_refused_recall_comes_again: |scene, _| refusals::a_refused_recall_comes_again(scene),
            a_recall_may_be_answered_late: |scene, _| refusals::a_recall_may_be_answered_late(scene),
            the_limits_of_the_back_channel_are_kept:
                |scene, _| refusals::the_limits_of_the_back_channel_are_kept(scene),
            a_connection_lost_during_a_recall:
                |scene, _| losses::a_connection_lost_during_a_recall(scene),
            another_session_after_a_loss: |scene, _| losses::another_session_after_a_loss(scene),
            recalls_under_load: |scene, ours| many::recalls_under_load(scene, ours),
            more_recalls_than_slots: |scene, ours| many::more_recalls_than_slots(scene, ours),
            a_connection_that_its_client_ends_with_recalls:
                |scene, ours| many::a_connection_lost_with_recalls(scene, ours, many::Who::Client),
            a_connection_that_its_server_ends_with_recalls:
                |scene, ours| many::a_connection_lost_with_recalls(scene, ours, many::Who::Server),
        }
    };
    (tests $open:expr, $change:expr, $attrs:tt, $($name:ident: $check:expr),+ $(,)?) => {
        $($crate::ours_suite! { one $open, $change, $attrs, $name, $check })+
    };
    (one $open:expr, $change:expr, [$(#[$attr:meta])*], $name:ident, $check:expr) => {
        #[test]
        $(#[$attr])*
        fn $name() {
            use $crate::nfs41::suite::*;
            let $crate::opener::OnDevice { device, address } = $open;
            let config = config(&device, $change);
            ours::with_ours(&device, &config, address, $check);
        }
    };
}

/// Serves until no one gives orders any more.
fn serve<P: Provider>(
    engine: &Engine<P>,
    at: Address,
    listening: &Sender<(Address, ShardHandle)>,
    orders: &Receiver<Order>,
) {
    let (mut shard, clock) = (engine.shard(Server::new(&[])).expect("a shard"), Clock::new());
    let at = engine.listen(at).expect("a port");
    // The check waits for it.
    let _ = listening.send((at, shard.handle().clone()));
    loop {
        match orders.try_recv() {
            Ok(order) => order(shard.handler()),
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                if !shard.poll_once(clock.now()) {
                    shard.wait(Duration::from_millis(1));
                }
            }
        }
    }
}

/// Time after which a check has hung.
const WAIT_MAX: Duration = Duration::from_secs(60);
