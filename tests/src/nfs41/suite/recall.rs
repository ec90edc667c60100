//! One delegation, and another client that wants to write: the order of events, and their fields.

use std::time::{Duration, Instant};

use rpcrdma::Provider;

use super::{Scene, end, pattern, read_delegation};
use crate::nfs::{Give, Take};
use crate::nfs41::callbacks::{RecallAnswer, Seen, What};
use crate::nfs41::compound::Security;
use crate::nfs41::files::Opened;
use crate::nfs41::numbers::{access, op, status};
use crate::nfs41::results::{Delegation, Failure};
use crate::nfs41::session::{Options, Session};

/// The server recalls a delegation on the connection of its holder, and lets another write when it
/// has it back.
///
/// # Panics
/// If not.
pub fn a_recalled_delegation_is_returned<P: Provider>(scene: Scene<'_, P>) {
    for (name, security, flavor) in
        [("sys", Security::Sys { uid: 12, gid: 34 }, 1), ("none", Security::None, 0)]
    {
        let name = scene.unused(&format!("recalled-{name}"));
        let bytes = pattern(41, 10_000);
        scene.file(&name, &bytes);
        let asked = Options { security, program: 0x4000_1234, ..Options::named("holder") };
        let mut holder = scene.client_as(&asked);
        let mut writer = scene.client("writer");
        let file = holder.open_file(&name, access::READ | access::WANT_READ_DELEG);
        let file = file.expect("it is open");
        let delegation = read_delegation(&file.delegation);
        // By the delegation itself, by Write chunk.
        let read = holder.read(&file.handle, delegation, (1, 9_000), Take::Sink(1));
        assert_eq!(read.expect("a READ"), (bytes[1..9_001].to_vec(), true));
        assert_eq!(holder.wire.callbacks().seen, [], "nothing is recalled yet");

        is_delayed(&mut writer, &name);
        holder.wire.until("a recall", |wire| wire.callbacks().recalls().count() > 0);
        let seen = holder.wire.callbacks().seen.clone();
        let [Seen { peer, flavor: stated, sequence: Some(of), what: What::Recall(recall), .. }] =
            &seen[..]
        else {
            panic!("one CB_SEQUENCE with a CB_RECALL, not {seen:?}")
        };
        assert_eq!((*peer, *stated), (holder.wire.peer(), flavor));
        assert_eq!((of.session, of.sequence, of.slot), (holder.id, 1, 0), "the first of its slot");
        assert!(of.highest < holder.back.slots, "{of:?}");
        assert_eq!((recall.state.other, &recall.handle), (delegation.other, &file.handle));
        assert!(!recall.truncate, "it is not cut");
        assert!(seen[0].len <= holder.back.request_max as usize, "{seen:?}");

        // The answer to CB_RECALL alone is not enough.
        is_delayed(&mut writer, &name);
        holder.give_back(&file.handle, delegation).expect("it is returned");
        let other = open_to_write(&mut writer, &name);
        assert!(matches!(other.delegation, Delegation::None(_)), "{other:?}");
        let written = writer.write(&other, 100, &pattern(42, 5_000), Give::Apart(1));
        assert_eq!(written.expect("a WRITE"), 5_000);
        let mut changed = bytes.clone();
        changed[100..5_100].copy_from_slice(&pattern(42, 5_000));
        assert!(scene.files.get(&name) == changed);
        // The open of the holder remains.
        let read = holder.read(&file.handle, file.state, (0, 10_000), Take::RdmaBuffer);
        assert!(read.expect("a READ").0 == changed);
        let gone = holder.give_back(&file.handle, delegation).expect_err("it was returned");
        assert_eq!(gone.status(), Some(status::BAD_STATEID));

        writer.close_file(&other).expect("it is closed");
        holder.close_file(&file).expect("it is closed");
        assert_eq!(holder.wire.callbacks().seen.len(), 1, "nothing else was called");
        assert_eq!((holder.flags, writer.flags), (0, 0), "the server misses nothing");
        end(writer);
        end(holder);
    }
}

/// The same with a server whose directory is not at hand: the file exists and has these bytes.
/// Returns the messages that were sent and received.
///
/// # Panics
/// If not.
pub fn a_recall_crosses_the_wire<P: Provider>(scene: Scene<'_, P>, name: &str, len: u32) -> u64 {
    let (mut holder, mut writer) = (scene.client("holder"), scene.client("writer"));
    let file = holder.open_file(name, access::READ | access::WANT_READ_DELEG).expect("it is open");
    let delegation = read_delegation(&file.delegation);
    for take in [Take::Sink(1), Take::InLine] {
        let read = holder.read(&file.handle, delegation, (0, len), take).expect("a READ");
        assert_eq!(read.0.len(), len as usize);
    }
    holder.wire.callbacks().answers.push_back(RecallAnswer::Refuse(status::BADHANDLE));
    is_delayed(&mut writer, name);
    holder.wire.until("two recalls", |wire| wire.callbacks().recalls().count() == 2);
    holder.give_back(&file.handle, delegation).expect("it is returned");
    let other = open_to_write(&mut writer, name);
    let written = writer.write(&other, 0, &pattern(7, len as usize), Give::Apart(1));
    assert_eq!(written.expect("a WRITE"), len);
    writer.close_file(&other).expect("it is closed");
    holder.close_file(&file).expect("it is closed");
    let (mut messages, sessions) = (0, [writer, holder]);
    for mut session in sessions {
        session.close().expect("the client ends");
        let stats = session.wire.stats();
        messages += stats.transmissions_sent + stats.transmissions_received;
    }
    messages
}

/// The file cannot be opened to write yet.
///
/// # Panics
/// If it can, or never can be.
pub fn is_delayed<P: Provider>(writer: &mut Session<P>, name: &str) {
    let delayed = writer.open_file(name, access::WRITE | access::WANT_NO_DELEG);
    let delayed = delayed.expect_err("another has a delegation");
    let Failure::Status { operation: op::OPEN, status: status::DELAY } = delayed else {
        panic!("OPEN is delayed, not {delayed:?}")
    };
}

/// Opens a file to write, which may be delayed a while.
///
/// # Panics
/// If it never can be.
pub fn open_to_write<P: Provider>(writer: &mut Session<P>, name: &str) -> Opened {
    let end = Instant::now() + DELAY_MAX;
    loop {
        match writer.open_file(name, access::WRITE | access::WANT_NO_DELEG) {
            Err(why) if why.status() == Some(status::DELAY) && Instant::now() < end => {}
            other => return other.expect("it is open"),
        }
    }
}

/// Time after which a file is delayed for ever.
const DELAY_MAX: Duration = Duration::from_secs(60);
