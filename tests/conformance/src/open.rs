//! Two hosts, one of which has memory open to the other.

use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{Remote, SendFlags, SendOp, WorkCompletion};

use crate::host::*;
use crate::subject::{Options, Subject};

/// The rights that A gets.
pub const BOTH: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// B's first 64 KiB are open to A.
pub struct Open<S: Subject> {
    /// The two hosts.
    pub pair: Pair<S>,
    /// The key of the open bytes.
    pub rkey: u32,
}

impl<S: Subject> Open<S> {
    /// On a device with few slots.
    pub fn small() -> Open<S> {
        Open::with(FEW)
    }

    /// On a device with these options.
    pub fn with(options: Options) -> Open<S> {
        let mut pair = Pair::with(options, &SMALL, 7);
        let rkey = pair.b.bind(pair.qb.qp, (0, 64 << 10), BOTH);
        Open { pair, rkey }
    }

    /// Open bytes.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.pair.b.at(offset), rkey: self.rkey }
    }

    /// A posts anything.
    pub fn post(&mut self, id: u64, op: SendOp, sgl: &[Sge], flags: SendFlags) {
        self.pair.a.post_with(self.pair.qa.qp, id, op, sgl, flags).unwrap();
    }

    /// A writes to open bytes, signaled.
    pub fn write(&mut self, id: u64, to: usize, sgl: &[Sge]) {
        let op = SendOp::Write(self.remote(to));
        self.post(id, op, sgl, SendFlags::SIGNALED);
    }

    /// A reads open bytes, signaled.
    pub fn read(&mut self, id: u64, from: usize, sgl: &[Sge]) {
        let op = SendOp::Read(self.remote(from));
        self.post(id, op, sgl, SendFlags::SIGNALED);
    }

    /// Polls both until nothing more comes, and returns what A has seen.
    pub fn poll_until_idle(&mut self) -> Vec<WorkCompletion> {
        let mut done = Vec::new();
        for _ in 0..4 {
            self.pair.b.poll_dry();
            done.extend(self.pair.a.poll_dry());
        }
        done
    }
}
