//! A client of one call at a time.

use std::net::SocketAddr;

use nfs3_types::nfs3::{
    Nfs3Option, Nfs3Result, READ3args, READ3resfail, READLINK3args, READLINK3resfail, WRITE3res,
    diropargs3, nfs_fh3, stable_how,
};
use nfs3_types::xdr_codec::{Pack, Unpack};

use rpcrdma_engine::onc::{AcceptStatus, Auth, CallHeader, HeaderRoom, ReplyHeader, auth_flavor};
use rpcrdma_engine::ulb::{Bound, BoundCall, Items, Protection, nfs3};
use rpcrdma_engine::{
    CallError, CallRefused, Clock, Config, Engine, Fabric, PayloadReader, PeerId, Raw, Want,
};

use crate::data::{ReadHead, WriteHead};
use crate::files::ReadlinkHead;

/// A client.
pub struct Client {
    client: rpcrdma_engine::Client<Fabric>,
    _engine: Engine<Fabric>,
    peer: PeerId,
    clock: Clock,
    /// Of calls that nobody has waited for yet.
    statuses: Vec<u32>,
    /// The exported directory.
    pub root: nfs_fh3,
    /// AUTH_SYS credentials: user and group; none are AUTH_NONE.
    pub user: Option<(u32, u32)>,
}

impl Client {
    pub fn connect(fabric: Fabric, to: SocketAddr, root: nfs_fh3) -> Client {
        Client::made(fabric, to, root, |_| {}, |_| {})
    }

    /// A client whose transaction ids are those of every other one with the same seed.
    pub fn seeded(fabric: Fabric, to: SocketAddr, root: nfs_fh3, seed: u64) -> Client {
        Client::made(fabric, to, root, |_| {}, |engine| engine.seed_xids(seed))
    }

    /// A client whose calls can be long, with their data in the stream.
    pub fn wordy(fabric: Fabric, to: SocketAddr, root: nfs_fh3) -> Client {
        let change = |raw: &mut Raw| {
            (raw.send.slots, raw.send.length) = (192, "128KiB".into());
            // Half of them hold calls.
            raw.explicit.buffers.count = 40;
        };
        Client::made(fabric, to, root, change, |_| {})
    }

    fn made(
        fabric: Fabric,
        to: SocketAddr,
        root: nfs_fh3,
        change: impl FnOnce(&mut Raw),
        prepare: impl FnOnce(&mut Engine<Fabric>),
    ) -> Client {
        let mut raw = Config::default().raw().clone();
        raw.protocol.version = "one".into();
        raw.explicit.buffers.length = "1MiB".into();
        change(&mut raw);
        let mut engine = Engine::new(fabric, Config::try_from(raw).expect("a sound configuration"))
            .expect("an engine");
        prepare(&mut engine);
        let mut client = engine.client().expect("a client");
        let peer = client.connect(to).expect("a connection");
        let (clock, user) = (Clock::new(), Some((0, 0)));
        Client { client, _engine: engine, peer, clock, statuses: Vec::new(), root, user }
    }

    /// A call without anything that may be placed.
    pub fn call<R: Unpack>(&mut self, procedure: u32, arguments: &impl Pack) -> R {
        self.exchange(procedure, arguments, None, None, rest).1
    }

    /// Words that follow the transaction id and message type of a reply that may be any.
    pub fn words(&mut self, call: &[u32]) -> Vec<u32> {
        self.try_words(call).expect("an answer")
    }

    /// As [`Client::words`], of a reply that may be too long for anything that was offered for it.
    pub fn try_words(&mut self, call: &[u32]) -> Result<Vec<u32>, CallError> {
        let mut builder = self.client.call(self.peer, 0).expect("a credit");
        call.iter().for_each(|word| builder.payload().put_u32(*word));
        builder.reply_payload_max(1000);
        builder.submit().expect("it can be sent");
        let mut words = None;
        while words.is_none() {
            self.client.poll(self.clock.now(), |done| {
                words = Some(done.result().map(|reply| {
                    let mut reader = reply.reader();
                    std::iter::from_fn(|| reader.u32().ok()).collect()
                }));
            });
        }
        words.expect("the loop ends with them")
    }

    pub fn read(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        count: u32,
    ) -> Nfs3Result<(ReadHead, Vec<u8>), READ3resfail> {
        let arguments = READ3args { file: file.clone(), offset, count };
        let (data, results) =
            self.exchange(nfs3::READ, &arguments, None, Some(count.max(1)), |items| {
                head(items, 96)
            });
        match results {
            Nfs3Result::Ok(head) => Nfs3Result::Ok((head, data)),
            Nfs3Result::Err(failed) => Nfs3Result::Err(failed),
        }
    }

    pub fn readlink(&mut self, symlink: &nfs_fh3) -> Nfs3Result<Vec<u8>, READLINK3resfail> {
        let arguments = READLINK3args { symlink: symlink.clone() };
        let (path, results) =
            self.exchange(nfs3::READLINK, &arguments, None, Some(4096), |items| head(items, 88));
        match results {
            Nfs3Result::Ok(ReadlinkHead { .. }) => Nfs3Result::Ok(path),
            Nfs3Result::Err(failed) => Nfs3Result::Err(failed),
        }
    }

    pub fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> WRITE3res {
        let head = WriteHead { file: file.clone(), offset, count: data.len() as u32, stable };
        self.exchange(nfs3::WRITE, &head, Some(data), None, rest).1
    }

    /// Makes a call and waits for nothing; false if it has no credit for one.
    pub fn ask(&mut self, procedure: u32, arguments: &impl Pack) -> bool {
        let Ok(mut call) = self.begin(procedure, arguments) else { return false };
        if procedure == nfs3::READ {
            call.result(Want { len_min: 0, len_max: 8 }).expect("it has a result");
        }
        let is_asked = call.submit().is_ok();
        self.turn();
        is_asked
    }

    /// Lets calls leave and answers come.
    pub fn turn(&mut self) {
        self.client.poll(self.clock.now(), |done| {
            let mut reader = done.result().expect("an answer").reader();
            executed(&mut reader);
            self.statuses.push(reader.u32().expect("a status"));
        });
    }

    /// Waits for the answers to so many calls, and says the status of each, in the order of their coming.
    pub fn statuses(&mut self, count: usize) -> Vec<u32> {
        while self.statuses.len() < count {
            self.turn();
        }
        self.statuses.drain(..count).collect()
    }

    fn begin(
        &mut self,
        procedure: u32,
        arguments: &impl Pack,
    ) -> Result<BoundCall<'_>, CallRefused> {
        let mut call = bound(procedure).call(self.client.call(self.peer, 0)?);
        // Stamp, machine, user, group, groups.
        let (uid, gid) = self.user.unwrap_or_default();
        let user = [0, 0, uid, gid, 0].map(u32::to_be_bytes);
        let says = self.user.and_then(|_| Auth::new(auth_flavor::SYS, user.as_flattened()));
        let header = CallHeader {
            program: nfs3::PROGRAM,
            version: nfs3::BINDING.version,
            procedure,
            credentials: says.unwrap_or(Auth::NONE),
            verifier: Auth::NONE,
        };
        call.payload().put_fixed(&header.bytes());
        let mut bytes = Vec::new();
        arguments.pack(&mut bytes).expect("it is short");
        call.payload().put_fixed(&bytes);
        Ok(call)
    }

    /// One call. What may be placed of its results comes apart.
    fn exchange<R: Unpack>(
        &mut self,
        procedure: u32,
        arguments: &impl Pack,
        data: Option<&[u8]>,
        want: Option<u32>,
        read: impl FnOnce(&mut Items<'_>) -> Vec<u8>,
    ) -> (Vec<u8>, R) {
        let bulk = data.map(|data| {
            let mut buffer =
                self.client.turn(self.clock.now()).buffer().expect("a buffer is at home");
            buffer.truncate(data.len());
            buffer.copy_from_slice(data);
            buffer
        });
        let bound = bound(procedure);
        let mut call = self.begin(procedure, arguments).expect("a credit");
        if let Some(bulk) = bulk {
            call.argument(bulk).expect("a WRITE has data");
        }
        if let Some(len_max) = want {
            call.result(Want { len_min: 0, len_max }).expect("it has a result");
        }
        if matches!(procedure, nfs3::READDIR | nfs3::READDIRPLUS) {
            call.asks(64 << 10);
        }
        call.submit().expect("it can be sent");
        let (mut outcome, mut read) = (None, Some(read));
        while outcome.is_none() {
            self.client.poll(self.clock.now(), |done| {
                let reply = done.result().expect("an answer");
                let mut items = bound.results(reply);
                executed(items.reader());
                let read = read.take().expect("one answer");
                let stream = read(&mut items);
                let (results, len) = R::unpack(&mut &stream[..]).expect("results");
                let mut placed = Vec::new();
                if len == stream.len() && is_ok(&stream) && want.is_some() {
                    let data = items.data().expect("it has data");
                    placed = data.slices().flatten().copied().collect();
                }
                items.end().expect("nothing else was placed");
                outcome = Some((placed, results));
            });
        }
        outcome.expect("the loop ends with one")
    }
}

fn bound(procedure: u32) -> Bound {
    nfs3::BINDING.bind(procedure, Protection::None).expect("a procedure")
}

/// A name in a directory.
pub fn name<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: name.as_bytes().into() }
}

pub fn handle(of: Nfs3Option<nfs_fh3>) -> nfs_fh3 {
    match of {
        Nfs3Option::Some(handle) => handle,
        Nfs3Option::None => panic!("a handle is always given"),
    }
}

fn is_ok(stream: &[u8]) -> bool {
    stream.starts_with(&[0; 4])
}

/// All that is in the stream.
fn rest(items: &mut Items<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Ok(word) = items.reader().u32() {
        bytes.extend(word.to_be_bytes());
    }
    bytes
}

/// What stands in front of data: with the attributes that a file always has; and all of a failure.
fn head(items: &mut Items<'_>, len: usize) -> Vec<u8> {
    let mut bytes = items.reader().u32().expect("a status").to_be_bytes().to_vec();
    if !is_ok(&bytes) {
        bytes.extend(rest(items));
        return bytes;
    }
    for _word in 0..len / 4 {
        bytes.extend(items.reader().u32().expect("results").to_be_bytes());
    }
    bytes
}

/// Reads the header of a reply to a call that was executed.
fn executed(reader: &mut PayloadReader<'_>) {
    let mut room = HeaderRoom::new();
    let header = reader.reply_header(&mut room);
    assert_eq!(header, Ok(ReplyHeader::accepted(AcceptStatus::Success)), "it was executed");
}
