//! A client of the server, which can also send calls without waiting for the replies.

use std::ops::{Deref, DerefMut};

use nfs3_types::nfs3::{WRITE3resok, nfs_fh3, nfsstat3, stable_how};
use nfs3_types::rpc::auth_unix;
use nfs3_types::xdr_codec::Pack;
use rpcrdma::ulb::nfs3;
use rpcrdma::{Address, CallError, Clock, Config, Engine, Raw};
use rpcrdma_tests::nfs::{Failure, Give, Nfs, Read, Request, Take};

use super::Device;

/// A client; it derefs to `Nfs`, which makes the calls.
pub struct Client<P: Device> {
    nfs: Nfs<P>,
    _engine: Engine<P>,
    /// The exported directory.
    pub root: nfs_fh3,
}

impl<P: Device> Deref for Client<P> {
    type Target = Nfs<P>;

    fn deref(&self) -> &Nfs<P> {
        &self.nfs
    }
}

impl<P: Device> DerefMut for Client<P> {
    fn deref_mut(&mut self) -> &mut Nfs<P> {
        &mut self.nfs
    }
}

impl<P: Device> Client<P> {
    pub fn connect(device: P, to: Address, root: nfs_fh3) -> Client<P> {
        Client::made(device, to, root, |_| {}, |_| {})
    }

    /// A client whose XIDs are the same as those of every client with the same seed.
    pub fn seeded(device: P, to: Address, root: nfs_fh3, seed: u64) -> Client<P> {
        Client::made(device, to, root, |_| {}, |engine| engine.seed_xids(seed))
    }

    /// As [`Client::seeded`], whose calls can be long, with their data in the payload stream.
    pub fn wordy(device: P, to: Address, root: nfs_fh3, seed: u64) -> Client<P> {
        let change = |raw: &mut Raw| {
            (raw.send.slots, raw.send.length) = (192, "128KiB".into());
            // Half of them hold calls.
            raw.explicit.buffers.count = 40;
        };
        Client::made(device, to, root, change, |engine| engine.seed_xids(seed))
    }

    fn made(
        device: P,
        to: Address,
        root: nfs_fh3,
        change: impl FnOnce(&mut Raw),
        prepare: impl FnOnce(&mut Engine<P>),
    ) -> Client<P> {
        let mut raw = Config::default().raw().clone();
        raw.engine.provider = P::NAME.into();
        raw.protocol.version = "one".into();
        raw.explicit.buffers.length = "1MiB".into();
        change(&mut raw);
        let mut engine = Engine::new(device, Config::try_from(raw).expect("a sound configuration"))
            .expect("an engine");
        prepare(&mut engine);
        let client = engine.client().expect("a client");
        let nfs = Nfs::connect(client, to).expect("a connection");
        Client { nfs, _engine: engine, root }
    }

    /// Sets the user and group of the following calls; `None` is AUTH_NONE.
    pub fn be(&mut self, user: Option<(u32, u32)>) {
        let says = user.map(|(uid, gid)| auth_unix { uid, gid, ..auth_unix::default() });
        self.rpc.set_credentials(says.as_ref());
    }

    /// Sends an encoded call, and returns the words of the reply after XID and message type.
    pub fn words(&mut self, call: &[u32]) -> Vec<u32> {
        self.try_words(call).expect("an answer")
    }

    /// As [`Client::words`], for a reply that may be longer than the memory offered for it.
    pub fn try_words(&mut self, call: &[u32]) -> Result<Vec<u32>, CallError> {
        let (clock, peer) = (Clock::new(), self.rpc.peer());
        let client = self.rpc.client();
        let mut builder = client.call(peer, 0).expect("a credit");
        call.iter().for_each(|word| builder.payload().put_u32(*word));
        builder.reply_payload_max(1000);
        builder.submit().expect("it can be sent");
        let mut words = None;
        while words.is_none() {
            client.poll(clock.now(), |done| {
                words = Some(done.result().map(|reply| {
                    let mut reader = reply.reader();
                    std::iter::from_fn(|| reader.u32().ok()).collect()
                }));
            });
        }
        words.expect("the loop ends with them")
    }

    pub fn read(&mut self, file: &nfs_fh3, offset: u64, count: u32) -> Result<Read, Failure> {
        self.nfs.read(file, offset, count, Take::RdmaBuffer)
    }

    pub fn readlink(&mut self, symlink: &nfs_fh3) -> Result<Vec<u8>, Failure> {
        self.nfs.readlink(symlink, 4096, Take::RdmaBuffer).map(|(path, _)| path)
    }

    pub fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<WRITE3resok, Failure> {
        self.nfs.write(file, offset, data, stable, Give::Apart(1))
    }

    /// Sends a call without waiting for the reply; false if no credit is free.
    pub fn ask(&mut self, procedure: u32, arguments: &impl Pack) -> bool {
        let mut request = Request::new(procedure, arguments);
        if procedure == nfs3::READ {
            request = request.taking(8, Take::RdmaBuffer);
        }
        let is_asked = self.rpc.submit_now(&request).expect("it can be sent").is_some();
        self.rpc.poll();
        is_asked
    }

    /// Waits for the replies to `count` calls, and returns their statuses.
    pub fn statuses(&mut self, count: usize) -> Vec<u32> {
        let mut statuses = Vec::new();
        while statuses.len() < count {
            self.rpc.poll();
            let more = count - statuses.len();
            statuses.extend(self.rpc.take_done(more).into_iter().map(|done| {
                let results = done.expect("it was executed").results;
                results.first_chunk().map_or(u32::MAX, |word| u32::from_be_bytes(*word))
            }));
        }
        statuses
    }

    /// The status of a READ of a removed file. It repeats the call after NFS3ERR_JUKEBOX, which the
    /// server returns when it has just searched the export.
    pub fn read_gone(&mut self, file: &nfs_fh3) -> nfsstat3 {
        loop {
            match failed(self.read(file, 0, 100)) {
                nfsstat3::NFS3ERR_JUKEBOX => {}
                status => return status,
            }
        }
    }
}

/// The status of a failed procedure.
pub fn failed<T: std::fmt::Debug>(done: Result<T, Failure>) -> nfsstat3 {
    match done {
        Err(Failure::Status(status)) => status,
        other => panic!("it cannot be done: {other:?}"),
    }
}
