//! Many recalls at one time on our server, with calls of the client on the same connection, and with a
//! connection that is lost meanwhile.

use rpcrdma::{CallError, Provider};

use super::ours::Ours;
use super::recall::{is_delayed, open_to_write};
use super::{Scene, end, end_after_loss, load, pattern, read_delegation};
use crate::nfs::Take;
use crate::nfs41::callbacks::RecallAnswer;
use crate::nfs41::files::{Opened, reading, was_read};
use crate::nfs41::numbers::{access, direction};
use crate::nfs41::results::Failure;
use crate::nfs41::server::CallBack;
use crate::nfs41::session::{Request, Session};
use crate::nfs41::words::StateId;

/// Who ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// Both directions under load, with recalls in several slots at one time.
///
/// # Panics
/// If a call fails, data are wrong, or something hangs.
pub fn recalls_under_load<P: Provider>(scene: Scene<'_, P>, ours: &Ours) {
    load::both_directions_under_load(scene);
    let (answered, failed, open) = ours.with(|server| {
        let recalls = &server.recalls;
        (recalls.answered, recalls.failed.clone(), recalls.open())
    });
    assert_eq!((answered, failed, open), (load::FILES * load::HOLDERS, Vec::new(), 0));
    let open_max = ours.with(|server| server.back.open_max);
    assert!(open_max > 1, "{open_max} were open at one time");
}

/// More recalls than a back channel has slots, none of which is answered for a while: the slots are
/// all in use, the others wait, and the client's own calls go on.
///
/// # Panics
/// If not.
pub fn more_recalls_than_slots<P: Provider>(scene: Scene<'_, P>, ours: &Ours) {
    let mut scene = Held::new(&scene, ours, MANY, RecallAnswer::Later);
    let slots = scene.holder.back.slots as usize;
    assert!(slots < MANY, "{slots} slots");
    scene.demand();
    let mut left = MANY;
    while left > 0 {
        let some = left.min(slots);
        scene.holder.wire.until("some are recalled", |wire| wire.callbacks().late.len() == some);
        for (file, state) in &scene.files {
            let read = scene.holder.read(&file.handle, *state, (7, 5_000), Take::Sink(1));
            assert!(read.expect("a READ").0 == scene.bytes[7..5_007]);
        }
        assert_eq!(scene.holder.wire.callbacks().late.len(), some, "the others wait for a slot");
        scene.holder.wire.answer_late();
        left -= some;
    }
    assert_eq!(ours.with(|server| server.back.open_max), slots);
    scene.recalled_once();
    assert_eq!(ours.with(|server| server.recalls.failed.clone()), [""; 0]);
    end(scene.finish());
}

/// The connection is lost while recalls are unanswered and calls of the client are under way. Each of
/// them ends with a reason. The client connects again, the recalls come on the new connection, and
/// everything goes on.
///
/// # Panics
/// If not.
pub fn a_connection_lost_with_recalls<P: Provider>(scene: Scene<'_, P>, ours: &Ours, by: Who) {
    let at = scene.at;
    let mut scene = Held::new(&scene, ours, FEW, RecallAnswer::Never);
    scene.demand();
    scene.holder.wire.until("the recalls", |wire| wire.callbacks().late.len() == FEW);
    let requests = scene.ask();
    let before = scene.holder.wire.peer();
    match by {
        Who::Client => scene.holder.wire.disconnect(),
        Who::Server => {
            let client = scene.holder.client;
            let peer = ours.with(move |server| {
                let made = server.clients.made.iter().find(|made| made.client == client);
                made.expect("it has a session").peer
            });
            assert!(ours.shard.close(peer), "there is room for an order");
            scene.holder.wire.until("the connection is gone", |wire| {
                wire.calls().closed.iter().any(|(closed, _)| *closed == before)
            });
        }
    }
    scene.answered_or_lost(requests);
    ours.until("the recalls have failed", |server| server.recalls.failed.len() == FEW);
    for why in ours.with(|server| server.recalls.failed.clone()) {
        assert!(why.contains("the connection was lost"), "{why}");
    }
    assert_eq!(ours.with(|server| server.recalls.open()), FEW, "they are not forgotten");
    is_delayed(&mut scene.writer, &scene.files[0].0.name);

    let directions = scene.holder.reconnect(at).expect("BIND_CONN_TO_SESSION");
    assert_eq!(directions, direction::BOTH);
    // The tickets of the old connection are void: their answers go nowhere.
    scene.holder.wire.answer_late();
    scene.holder.wire.until("the recalls come again", |wire| {
        let peer = wire.peer();
        wire.callbacks().recalls().filter(|(seen, _)| seen.peer == peer).count() == FEW
    });
    ours.until("they are answered", |server| server.recalls.open() == 0);
    let requests = scene.ask();
    for request in requests {
        let read = scene.holder.finish(request).and_then(was_read);
        assert!(read.expect("a READ").0 == scene.bytes[7..5_007]);
    }
    end_after_loss(scene.finish());
}

/// A client with delegations, and another that wants to write to their files.
struct Held<P: Provider> {
    holder: Session<P>,
    writer: Session<P>,
    files: Vec<(Opened, StateId)>,
    bytes: Vec<u8>,
}

impl<P: Provider> Held<P> {
    /// So many delegations, whose first recalls are all answered like this.
    fn new(
        scene: &Scene<'_, P>,
        ours: &Ours,
        count: usize,
        recall_answer: RecallAnswer,
    ) -> Held<P> {
        let (mut holder, writer) = (scene.client("holder"), scene.client("writer"));
        let bytes = pattern(46, 10_000);
        let mut files = Vec::new();
        for index in 0..count {
            let name = format!("many-{index}");
            scene.file(&name, &bytes);
            let file = holder.open_file(&name, access::READ | access::WANT_READ_DELEG);
            let file = file.expect("it is open");
            let delegation = read_delegation(&file.delegation);
            files.push((file, delegation));
        }
        granted(ours, &mut holder);
        holder.wire.callbacks().answers.extend(vec![recall_answer; count]);
        Held { holder, writer, files, bytes }
    }

    /// The other client asks for every file.
    fn demand(&mut self) {
        for (file, _) in &self.files {
            is_delayed(&mut self.writer, &file.name);
        }
    }

    /// A READ of each file, by its delegation.
    fn ask(&mut self) -> Vec<Request> {
        let Held { holder, files, .. } = self;
        let asked = files.iter().map(|(file, state)| {
            let ops = reading(&file.handle, *state, (7, 5_000), Take::Sink(1));
            holder.submit(&ops).expect("a call").expect("a slot is free")
        });
        asked.collect()
    }

    /// Each READ has its data, or was lost with the connection.
    fn answered_or_lost(&mut self, requests: Vec<Request>) {
        for request in requests {
            match self.holder.finish(request).and_then(was_read) {
                Ok((data, _)) => assert!(data == self.bytes[7..5_007]),
                Err(Failure::Call(CallError::ConnectionLost(..))) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    /// Each delegation was recalled, and none of them twice.
    fn recalled_once(&mut self) {
        let mut recalled: Vec<_> =
            self.holder.wire.callbacks().recalls().map(|(_, it)| it.state.other).collect();
        let mut held: Vec<_> = self.files.iter().map(|(_, state)| state.other).collect();
        recalled.sort_unstable();
        held.sort_unstable();
        assert_eq!(recalled, held);
    }

    /// The delegations are returned, the other client opens every file and ends.
    fn finish(self) -> Session<P> {
        let Held { mut holder, mut writer, files, .. } = self;
        for (file, state) in files {
            holder.give_back(&file.handle, state).expect("it is returned");
            let other = open_to_write(&mut writer, &file.name);
            writer.close_file(&other).expect("it is closed");
            holder.close_file(&file).expect("it is closed");
        }
        end(writer);
        holder
    }
}

/// Has a first callback answered: until then the server has one credit (RFC 8166 3.3.3).
fn granted<P: Provider>(ours: &Ours, holder: &mut Session<P>) {
    let client = holder.client;
    ours.with(move |server| {
        let made = server.clients.made.iter().find(|made| made.client == client);
        server.back.call(CallBack::null(made.expect("it has a session")));
    });
    holder.wire.until("CB_NULL", |wire| wire.callbacks().seen.len() == 1);
    ours.until("its answer", |server| server.back.is_idle());
}

/// Delegations, more than a back channel has slots.
const MANY: usize = 40;
/// Delegations, no more than a back channel has slots.
const FEW: usize = 12;
