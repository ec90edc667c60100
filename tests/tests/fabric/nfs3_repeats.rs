//! Calls that change something, in flight when their connection is lost: repeated with their XIDs
//! over other connections, each is executed once.
//!
//! The system counts the executions: a watch of the exported directory reports each name that is
//! made, each that is moved, and each write.

use std::collections::HashMap;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use nfs3_types::nfs3::{
    CREATE3args, CREATE3resok, Nfs3Result, RENAME3args, createhow3, nfs_fh3, post_op_fh3, sattr3,
    stable_how,
};
use nfs3_types::xdr_codec::{Unpack, Void};
use rpcrdma::provider::ConnectError;
use rpcrdma::ulb::nfs3;
use rpcrdma::{Address, CallError, Fabric, SetupError};
use rpcrdma_tests::nfs::client::write_request;
use rpcrdma_tests::nfs::{Caller, Failure, Give, Request, at};
use rpcrdma_tests::script::Random;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::nfs3_fabric::{Configs, calling, serving, status, with_server};

/// Connections that are lost with calls in flight.
const LOSSES: usize = 1_000;

#[test]
fn calls_repeated_over_a_thousand_lost_connections_are_executed_once() {
    let server = serving(|raw| raw.engine.shards = 2);
    let both = Configs { server, client: calling(|_| {}) };
    with_server(both, 4096, |scene, to| {
        let (dir, path) = scene.fresh("lost");
        let mut watch = Watch::new(&path);
        let (mut random, mut lost, mut round) = (Random(5), 0, 0);
        let mut file = scene.nfs.create(&dir, b"made-0").expect("a file");
        while lost < LOSSES {
            round += 1;
            let calls = Calls::of(round, &dir, &path, &file);
            lost += calls.lose(&mut scene.nfs.rpc, to, &mut random, &mut watch);
            file = calls.finish(&mut scene.nfs.rpc);
            watch.look();
            calls.check(&path, &watch);
        }
        // What can be repeated without harm would prove nothing.
        let again = scene.nfs.create_as(&dir, b"made-1", createhow3::GUARDED(sattr3::default()));
        assert!(matches!(again, Err(Failure::Status(_))), "a second execution fails");
        println!("{round} rounds, {lost} connections lost");
    });
}

/// The calls of a round, each with an XID of its own.
struct Calls {
    round: u32,
    requests: [Request; 3],
    data: Vec<u8>,
}

impl Calls {
    /// A CREATE of a new name, a RENAME of a name that there is, and a WRITE to the file that the
    /// round before has made.
    fn of(round: u32, dir: &nfs_fh3, path: &Path, file: &nfs_fh3) -> Calls {
        let name = |what: &str| format!("{what}-{round}").into_bytes();
        fs::write(path.join(format!("old-{round}")), "moved").expect("a file");
        let (made, old, new) = (name("made"), name("old"), name("new"));
        let how = createhow3::GUARDED(sattr3::default());
        let create = CREATE3args { where_: at(dir, &made), how };
        let rename = RENAME3args { from: at(dir, &old), to: at(dir, &new) };
        let data = round.to_be_bytes().repeat(100);
        let requests = [
            Request::new(nfs3::CREATE, &create),
            Request::new(nfs3::RENAME, &rename),
            write_request(file, 0, &data, stable_how::UNSTABLE, Give::InLine),
        ];
        let xid = |at: usize| 1_000_000 + 3 * round + at as u32;
        let mut at = 0;
        let requests = requests.map(|request| {
            at += 1;
            request.repeating(xid(at))
        });
        Calls { round, requests, data }
    }

    /// Makes the calls and loses their connection, one to three times. Returns how often.
    fn lose(
        &self,
        rpc: &mut Caller<Fabric>,
        to: Address,
        random: &mut Random,
        watch: &mut Watch,
    ) -> usize {
        let times = 1 + random.below(3) as usize;
        for _ in 0..times {
            let calls = self.requests.each_ref().map(|it| rpc.submit(it).expect("there is room"));
            // They have not left, are under way, in execution or answered.
            for _ in 0..random.below(4) {
                rpc.poll();
            }
            let peer = rpc.peer();
            assert!(rpc.client().handle().close(peer));
            for call in calls {
                match rpc.finish(call) {
                    Ok(reply) => assert_eq!(status(&reply.results), 0),
                    Err(Failure::Call { error: CallError::ConnectionLost(..), .. }) => {}
                    Err(other) => panic!("round {}: {other:?}", self.round),
                }
            }
            watch.look();
            reconnect(rpc, to);
        }
        times
    }

    /// Repeats the calls, and is answered: all have succeeded. Returns the file that is made.
    fn finish(&self, rpc: &mut Caller<Fabric>) -> nfs_fh3 {
        let calls = self.requests.each_ref().map(|it| rpc.submit(it).expect("there is room"));
        let replies = calls.map(|call| rpc.finish(call).expect("an answer"));
        let all = replies.each_ref().map(|reply| status(&reply.results));
        assert_eq!(all, [0; 3], "round {}: as the first time", self.round);
        let made = Nfs3Result::<CREATE3resok, Void>::unpack(&mut replies[0].results.as_slice());
        match made.expect("the results of CREATE").0 {
            Nfs3Result::Ok(CREATE3resok { obj: post_op_fh3::Some(file), .. }) => file,
            other => panic!("round {}: {other:?}", self.round),
        }
    }

    /// Each call was executed once.
    fn check(&self, path: &Path, watch: &Watch) {
        let round = self.round;
        let count = |what: &str, number: u32, kind| {
            watch.seen.get(&(format!("{what}-{number}"), kind)).copied().unwrap_or(0)
        };
        let counted = [
            count("made", round, Kind::Made),
            count("new", round, Kind::Moved),
            count("made", round - 1, Kind::Written),
        ];
        assert_eq!(counted, [1; 3], "round {round}: CREATE, RENAME and WRITE were executed once");
        assert_eq!(
            fs::read(path.join(format!("made-{}", round - 1))).expect("it is there"),
            self.data
        );
        assert!(!path.join(format!("old-{round}")).exists());
    }
}

/// Connects again. The server may not know yet that connections have ended.
fn reconnect(rpc: &mut Caller<Fabric>, to: Address) {
    loop {
        match rpc.reconnect(to) {
            Ok(()) => return,
            Err(SetupError::Connect { reason: ConnectError::Rejected(why), .. })
                if why.is_transient() => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Made,
    Moved,
    Written,
}

/// What happens in a directory, as the system reports it. It reports two writes to one file as one
/// if no process has read between them.
struct Watch {
    queue: OwnedFd,
    seen: HashMap<(String, Kind), u32>,
}

impl Watch {
    fn new(path: &Path) -> Watch {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("a queue");
        let kinds = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MODIFY;
        inotify::add_watch(&queue, path, kinds).expect("a directory");
        Watch { queue, seen: HashMap::new() }
    }

    /// Counts what has happened since.
    fn look(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.queue, &mut buffer);
        while let Ok(event) = events.next() {
            let kind = match event.events() {
                flags if flags.contains(ReadFlags::CREATE) => Kind::Made,
                flags if flags.contains(ReadFlags::MOVED_TO) => Kind::Moved,
                flags if flags.contains(ReadFlags::MODIFY) => Kind::Written,
                other => panic!("{other:?}"),
            };
            let name = event.file_name().expect("of a name in the directory");
            let name = name.to_str().expect("a name of this test").to_owned();
            *self.seen.entry((name, kind)).or_default() += 1;
        }
    }
}
