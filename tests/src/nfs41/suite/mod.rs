//! Checks of a server of NFS version 4.1 and its back channel, compared with its own directory.

pub mod data;
pub mod load;
pub mod losses;
pub mod recall;
pub mod refusals;
pub mod served;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rpcrdma_engine::{Address, Engine, Provider};

use super::results::Delegation;
use super::session::{Options, Session};
use super::words::StateId;
pub use crate::nfs::suite::pattern;

/// A server, as the checks see it.
#[derive(Clone, Copy)]
pub struct Scene<'a, P: Provider> {
    /// The engine of the clients.
    pub engine: &'a Engine<P>,
    /// Where the server is.
    pub at: Address,
    /// The directory that it exports as its root.
    pub path: &'a Path,
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
        fs::write(self.path.join(name), bytes).expect("a file");
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

/// Ends a client, and checks that its shard has everything back.
///
/// # Panics
/// If not.
pub fn end<P: Provider>(mut session: Session<P>) {
    session.close().expect("the client ends");
    let stats = session.wire.stats();
    assert_eq!((stats.leaked, stats.failed_completions, stats.violations), (0, 0, 0), "{stats:?}");
    // Every call of the server was answered.
    let ends = stats.replies_out + stats.refusals_out + stats.calls_unanswered;
    assert_eq!(stats.calls_in, ends, "{stats:?}");
}
