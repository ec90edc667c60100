//! Both directions under load: holders read, write and ask for attributes without a pause, while the
//! server recalls their delegations one after another.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rpcrdma::Provider;

use super::{Scene, end, pattern};
use crate::nfs::{Give, Take};
use crate::nfs41::compound::Op;
use crate::nfs41::files::{Opened, opened, reading, was_read};
use crate::nfs41::numbers::{access, no_delegation, status};
use crate::nfs41::results::{Delegation, Done, Failure};
use crate::nfs41::session::{Request, Session};
use crate::nfs41::words::StateId;

/// Three holders of many delegations, and a writer that wants every one of their files.
///
/// # Panics
/// If a call fails, data are wrong, or something hangs.
pub fn both_directions_under_load<P: Provider>(scene: Scene<'_, P>) {
    let mut holders: Vec<_> = (0..HOLDERS).map(|number| Holder::new(&scene, number)).collect();
    let mut writer = Writer::new(scene.client("writer"), &holders);
    let end_at = Instant::now() + TIME_MAX;
    while !(writer.is_done() && holders.iter().all(Holder::is_done)) {
        let mut was_busy = writer.step();
        for holder in &mut holders {
            was_busy |= holder.step(!writer.is_done() || holder.calls < CALLS_MIN);
        }
        if !was_busy {
            std::thread::yield_now();
        }
        assert!(Instant::now() < end_at, "{} files are open to write", writer.opened.len());
    }
    assert_eq!(writer.opened.len(), FILES * HOLDERS);
    assert!(writer.delays >= FILES, "{} OPENs were delayed", writer.delays);
    for mut holder in holders {
        let (calls, recalls) = (holder.calls, holder.recalls);
        println!("a holder: {calls} calls, {recalls} recalls, {} open at once", holder.open_max);
        assert_eq!(recalls, FILES, "each delegation was recalled once");
        assert!(calls >= CALLS_MIN, "{calls} calls");
        assert!(holder.open_max > 8, "{} calls were open at once", holder.open_max);
        let mut slots: BTreeMap<u32, u32> = BTreeMap::new();
        for of in holder.session.wire.callbacks().seen.iter().filter_map(|seen| seen.sequence) {
            let last = slots.entry(of.slot).or_default();
            assert_eq!(of.sequence, *last + 1, "in its slot, in order");
            *last = of.sequence;
        }
        assert_eq!(slots.values().sum::<u32>(), FILES as u32);
        let found = scene.files.get(&holder.own.name);
        assert!(found == pattern(holder.rounds, OWN_LEN), "what was written last");
        assert_eq!(holder.session.wire.calls().closed, []);
        for file in holder.files.iter().map(|(file, _)| file.clone()).chain([holder.own.clone()]) {
            holder.session.close_file(&file).expect("it is closed");
        }
        end(holder.session);
    }
    for file in std::mem::take(&mut writer.opened) {
        writer.session.close_file(&file).expect("it is closed");
    }
    end(writer.session);
}

/// A client with delegations, which works all the time.
struct Holder<P: Provider> {
    session: Session<P>,
    /// The files, with the delegation until it is returned.
    files: Vec<(Opened, Option<StateId>)>,
    /// A file that it writes to.
    own: Opened,
    under_way: VecDeque<(Request, Kind)>,
    recalls: usize,
    /// Delegations that were recalled and are still in use.
    to_return: Vec<(usize, StateId)>,
    returned: usize,
    calls: usize,
    open_max: usize,
    /// How often its own file was written.
    rounds: u32,
    /// A WRITE is under way: the next would overtake it.
    is_writing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read { file: usize, offset: usize, len: usize, is_delegated: bool },
    Write,
    Size,
    Return,
}

impl<P: Provider> Holder<P> {
    fn new(scene: &Scene<'_, P>, number: usize) -> Holder<P> {
        let mut session = scene.client(&format!("holder-{number}"));
        let mut files = Vec::new();
        for index in 0..FILES {
            let name = format!("load-{number}-{index}");
            let (file, delegation) = delegated(scene, &mut session, &name, index);
            files.push((file, Some(delegation)));
        }
        let own = format!("load-{number}");
        scene.file(&own, &pattern(0, OWN_LEN));
        let own = session.open_file(&own, access::BOTH | access::WANT_NO_DELEG).expect("it opens");
        Holder {
            session,
            files,
            own,
            under_way: VecDeque::new(),
            recalls: 0,
            to_return: Vec::new(),
            returned: 0,
            calls: 0,
            open_max: 0,
            rounds: 0,
            is_writing: false,
        }
    }

    fn is_done(&self) -> bool {
        self.returned == FILES && self.calls >= CALLS_MIN && self.under_way.is_empty()
    }

    /// A turn: takes replies, answers recalls, and makes calls while it `goes_on`.
    fn step(&mut self, goes_on: bool) -> bool {
        let was_busy = self.session.wire.turn();
        for _ in 0..self.under_way.len() {
            let (request, kind) = self.under_way.pop_front().expect("so many");
            match self.session.finished(request) {
                None => self.under_way.push_back((request, kind)),
                Some(results) => self.check(kind, results),
            }
        }
        self.give_back();
        while goes_on && self.under_way.len() < WINDOW {
            let kind = self.next();
            self.make(kind);
        }
        self.open_max = self.open_max.max(self.under_way.len());
        was_busy
    }

    /// Returns what the server has recalled, once nothing is under way that it is needed for.
    fn give_back(&mut self) {
        let callbacks = self.session.wire.callbacks();
        let seen = callbacks.recalls().skip(self.recalls);
        let recalls: Vec<_> = seen.map(|(_, recall)| recall.clone()).collect();
        for recall in recalls {
            let index = self.files.iter().position(|(file, _)| file.handle == recall.handle);
            let index = index.expect("it is a file of this holder");
            let state = self.files[index].1.take().expect("it is recalled once");
            assert_eq!(recall.state.other, state.other, "{}", self.files[index].0.name);
            self.to_return.push((index, state));
            self.recalls += 1;
        }
        for (index, state) in std::mem::take(&mut self.to_return) {
            let needs = |kind: &Kind| matches!(kind, Kind::Read { file, is_delegated: true, .. } if *file == index);
            if self.under_way.iter().any(|(_, kind)| needs(kind)) {
                self.to_return.push((index, state));
                continue;
            }
            let handle = self.files[index].0.handle.clone();
            let ops = [Op::PutFh(handle), Op::DelegReturn(state)];
            let request = self.session.submit(&ops).expect("a call").expect("a slot is free");
            self.under_way.push_back((request, Kind::Return));
        }
    }

    fn next(&mut self) -> Kind {
        self.calls += 1;
        let turn = self.calls;
        match turn % 4 {
            0 if !self.is_writing => Kind::Write,
            1 => Kind::Size,
            _ => {
                let (offset, len) = (turn * 37 % 5_000, [100, 1_500, 9_000][turn % 3]);
                let file = turn % FILES;
                // The open remains when the delegation is gone.
                let is_delegated = len != 1_500 && self.files[file].1.is_some();
                Kind::Read { file, offset, len, is_delegated }
            }
        }
    }

    fn make(&mut self, kind: Kind) {
        let ops = match kind {
            Kind::Read { file, offset, len, is_delegated } => {
                let (file, delegation) = &self.files[file];
                let state = delegation.filter(|_| is_delegated).unwrap_or(file.state);
                let take = if len == 100 { Take::InLine } else { Take::Sink(1) };
                reading(&file.handle, state, (offset as u64, len as u32), take)
            }
            Kind::Write => {
                self.rounds += 1;
                self.is_writing = true;
                let (state, data) = (self.own.state, pattern(self.rounds, OWN_LEN));
                let give = Give::Apart(1);
                [Op::PutFh(self.own.handle.clone()), Op::Write { state, offset: 0, data, give }]
            }
            Kind::Size | Kind::Return => [Op::PutFh(self.own.handle.clone()), Op::Size],
        };
        let request = self.session.submit(&ops).expect("a call").expect("a slot is free");
        self.under_way.push_back((request, kind));
    }

    fn check(&mut self, kind: Kind, results: Result<Vec<Done>, Failure>) {
        let done = results.unwrap_or_else(|why| panic!("{kind:?}: {why:?}"));
        match kind {
            Kind::Read { file, offset, len, .. } => {
                let (data, _) = was_read(done).expect("a READ");
                let expected = pattern(file as u32, LEN);
                assert!(data == expected[offset..][..len], "{kind:?}");
            }
            Kind::Write => {
                self.is_writing = false;
                assert_eq!(done, [Done::Nothing, Done::Written(OWN_LEN as u32)]);
            }
            Kind::Size => assert_eq!(done, [Done::Nothing, Done::Size(OWN_LEN as u64)]),
            Kind::Return => self.returned += 1,
        }
    }
}

/// A file with a delegation. Linux grants none for a file whose handle has the hashes of files that
/// were recalled in the last half minute: then another file is taken.
fn delegated<P: Provider>(
    scene: &Scene<'_, P>,
    session: &mut Session<P>,
    name: &str,
    index: usize,
) -> (Opened, StateId) {
    for attempt in 0..ATTEMPTS {
        let name = format!("{name}-{attempt}");
        scene.file(&name, &pattern(index as u32, LEN));
        let file = session.open_file(&name, access::READ | access::WANT_READ_DELEG);
        let file = file.expect("it is open");
        match file.delegation {
            Delegation::Read(state) => return (file, state),
            Delegation::None(Some(no_delegation::RESOURCE)) => {
                session.close_file(&file).expect("it is closed");
            }
            other => panic!("a read delegation of {name}, not {other:?}"),
        }
    }
    panic!("no delegation of {ATTEMPTS} files");
}

/// A client that opens every file to write, several at a time.
struct Writer<P: Provider> {
    session: Session<P>,
    names: VecDeque<String>,
    under_way: VecDeque<(Request, String)>,
    opened: Vec<Opened>,
    delays: usize,
}

impl<P: Provider> Writer<P> {
    fn new(session: Session<P>, holders: &[Holder<P>]) -> Writer<P> {
        // One file of each holder after another.
        let names = (0..FILES)
            .flat_map(|index| holders.iter().map(move |holder| holder.files[index].0.name.clone()));
        let (names, under_way) = (names.collect(), VecDeque::new());
        Writer { session, names, under_way, opened: Vec::new(), delays: 0 }
    }

    fn is_done(&self) -> bool {
        self.names.is_empty() && self.under_way.is_empty()
    }

    fn step(&mut self) -> bool {
        let was_busy = self.session.wire.turn();
        for _ in 0..self.under_way.len() {
            let (request, name) = self.under_way.pop_front().expect("so many");
            match self.session.finished(request) {
                None => self.under_way.push_back((request, name)),
                Some(Ok(results)) => {
                    self.opened.push(opened(&name, results).expect("an OPEN"));
                }
                Some(Err(why)) => {
                    assert_eq!(why.status(), Some(status::DELAY), "{why:?}");
                    self.delays += 1;
                    self.names.push_back(name);
                }
            }
        }
        while self.under_way.len() < OPENS
            && let Some(name) = self.names.pop_front()
        {
            let ops = self.session.opening(&name, access::WRITE | access::WANT_NO_DELEG);
            let request = self.session.submit(&ops).expect("a call").expect("a slot is free");
            self.under_way.push_back((request, name));
        }
        was_busy
    }
}

/// Files that are tried for one delegation.
const ATTEMPTS: usize = 4;
/// Clients with delegations.
pub const HOLDERS: usize = 3;
/// Delegations of each.
pub const FILES: usize = 12;
/// Calls that a holder makes at least.
const CALLS_MIN: usize = 300;
/// Calls that a holder has under way.
const WINDOW: usize = 12;
/// OPENs that the writer has under way.
const OPENS: usize = 6;
/// The length of a file with a delegation.
const LEN: usize = 20_000;
/// The length of the file that a holder writes.
const OWN_LEN: usize = 30_001;
/// Time after which the test has hung.
const TIME_MAX: Duration = Duration::from_secs(100);
