//! Checks of a server of NFS version 4.1 and its back channel, compared with its own directory.

pub mod data;
pub mod load;
pub mod losses;
pub mod many;
pub mod ours;
pub mod recall;
pub mod refusals;
pub mod served;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rpcrdma::{Address, Engine, Provider, Snapshot};
use rpcrdma_config::{Config, Raw};

use super::results::Delegation;
use super::session::{Options, Session};
use super::words::StateId;
pub use crate::nfs::suite::pattern;
use crate::setup::suited;

/// A server, as the checks see it.
#[derive(Clone, Copy)]
pub struct Scene<'a, P: Provider> {
    /// The engine of the clients.
    pub engine: &'a Engine<P>,
    /// Where the server is.
    pub at: Address,
    /// The files of the directory that it exports as its root.
    pub files: &'a dyn Files,
}

/// The files of a server, without going through it.
pub trait Files {
    /// Makes a file.
    fn put(&self, name: &str, bytes: &[u8]);

    /// What is in a file.
    fn get(&self, name: &str) -> Vec<u8>;
}

/// The files of a directory of this machine.
#[derive(Debug, Clone)]
pub struct Directory(pub PathBuf);

impl Files for Directory {
    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).expect("a file");
    }

    fn get(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).expect("the file")
    }
}

impl<P: Provider> Scene<'_, P> {
    /// A name that no file of this run has had: a server remembers what it recalled.
    pub fn unused(&self, name: &str) -> String {
        static NAMES: AtomicU32 = AtomicU32::new(0);
        format!("{name}-{}", NAMES.fetch_add(1, Ordering::Relaxed))
    }

    /// A file in the root directory. Its name is used once.
    ///
    /// # Panics
    /// If there is no such file then.
    pub fn file(&self, name: &str, bytes: &[u8]) {
        self.files.put(name, bytes);
    }

    /// A client with a session.
    ///
    /// # Panics
    /// If there is none.
    pub fn client(&self, name: &str) -> Session<P> {
        self.client_as(&Options::named(name))
    }

    /// A client with a session that it asks for so.
    ///
    /// # Panics
    /// If there is none.
    pub fn client_as(&self, asked: &Options) -> Session<P> {
        let made = Session::open(self.engine, self.at, asked);
        made.unwrap_or_else(|why| panic!("a session: {why:?}"))
    }
}

/// A configuration for the checks on a device: that of programs, with little memory, in version one.
///
/// # Panics
/// If it is not valid.
pub fn config<P: Provider>(device: &P, change: impl FnOnce(&mut Raw)) -> Config {
    let mut raw = Config::default().raw().clone();
    raw.engine.numa_bind = false;
    raw.memory.pages = "4K".into();
    raw.memory.prefault = false;
    raw.protocol.version = "one".into();
    raw.receive.placement.count = 0;
    raw.connections.credits_requested = 32;
    raw.app.bulk.count = 64;
    raw.app.bulk.length = "256KiB".into();
    raw.explicit.buffers.count = 32;
    change(&mut raw);
    suited(device, &raw)
}

/// The state of a read delegation.
///
/// # Panics
/// If it is none.
pub fn read_delegation(delegation: &Delegation) -> StateId {
    match delegation {
        Delegation::Read(state) => *state,
        other => panic!("a read delegation, not {other:?}"),
    }
}

/// Ends a client, and checks that its shard has everything back, and that no Send failed.
///
/// # Panics
/// If not.
pub fn end<P: Provider>(session: Session<P>) {
    let stats = end_after_loss(session);
    assert_eq!(stats.completions_failed, 0, "{stats:?}");
}

/// Ends a client that has lost a connection with messages on their way, and checks that its shard has
/// everything back.
///
/// # Panics
/// If not.
pub fn end_after_loss<P: Provider>(mut session: Session<P>) -> Snapshot {
    session.close().expect("the client ends");
    let stats = session.wire.stats();
    assert_eq!((stats.buffers_leaked, stats.violations), (0, 0), "{stats:?}");
    // Every call of the server was answered.
    let ends = stats.replies_sent + stats.refusals_sent + stats.calls_unanswered;
    assert_eq!(stats.calls_received, ends, "{stats:?}");
    stats
}
