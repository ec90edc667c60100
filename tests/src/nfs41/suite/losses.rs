//! A connection that is lost while a recall is under way.

use rpcrdma::Provider;

use super::recall::{is_delayed, open_to_write};
use super::refusals::held;
use super::{Scene, end};
use crate::nfs41::callbacks::RecallAnswer;
use crate::nfs41::numbers::{access, direction, flag, status};
use crate::nfs41::session::Options;

/// The holder connects again, and both directions of its session go on over the new connection.
///
/// # Panics
/// If not.
pub fn a_connection_lost_during_a_recall<P: Provider>(scene: Scene<'_, P>) {
    let (mut holder, file, delegation) = held(&scene, "lost");
    let mut writer = scene.client("writer");
    holder.wire.callbacks().answers.push_back(RecallAnswer::Never);
    is_delayed(&mut writer, "lost");
    holder.wire.until("a recall", |wire| wire.callbacks().late.len() == 1);
    let before = holder.wire.peer();
    holder.wire.disconnect();
    is_delayed(&mut writer, "lost");
    let directions = holder.reconnect(scene.at).expect("BIND_CONN_TO_SESSION");
    assert_eq!(directions, direction::BOTH, "the new connection is the back channel, too");
    assert_ne!(holder.wire.peer(), before);
    // The ticket of the old connection is void: its answer goes nowhere.
    holder.wire.answer_late();
    assert_eq!(holder.size(&file.handle).expect("the session goes on"), 10_000);
    println!("after the loss the server states flags {:#x}", holder.flags);
    let unknown =
        holder.flags & !(flag::CB_PATH_DOWN | flag::CB_PATH_DOWN_SESSION | flag::BACKCHANNEL_FAULT);
    assert_eq!(unknown, 0, "{:#x}", holder.flags);
    holder.give_back(&file.handle, delegation).expect("it is returned");
    let other = open_to_write(&mut writer, "lost");
    writer.close_file(&other).expect("it is closed");

    // The back channel of the new connection works.
    scene.file("lost-later", b"another");
    let later = holder.open_file("lost-later", access::READ | access::WANT_READ_DELEG);
    let later = later.expect("it is open");
    println!("a delegation over the new connection: {:?}", later.delegation);
    let state = super::read_delegation(&later.delegation);
    is_delayed(&mut writer, "lost-later");
    holder.wire.until("a recall on the new connection", |wire| {
        let peer = wire.peer();
        let recalls = wire.callbacks().recalls();
        recalls.filter(|(seen, recall)| seen.peer == peer && recall.handle == later.handle).count()
            == 1
    });
    let sequences = holder.wire.callbacks().seen.iter().filter_map(|seen| seen.sequence);
    println!(
        "sequence numbers of the recalls: {:?}",
        sequences.map(|it| it.sequence).collect::<Vec<_>>()
    );
    holder.give_back(&later.handle, state).expect("it is returned");
    let other = open_to_write(&mut writer, "lost-later");
    writer.close_file(&other).expect("it is closed");
    holder.close_file(&file).expect("it is closed");
    holder.close_file(&later).expect("it is closed");
    end(writer);
    end(holder);
}

/// The holder comes back as another run of itself: the server forgets the delegation of the first.
///
/// # Panics
/// If not.
pub fn another_session_after_a_loss<P: Provider>(scene: Scene<'_, P>) {
    let (mut holder, file, delegation) = held(&scene, "restarted");
    let mut writer = scene.client("writer");
    holder.wire.callbacks().answers.push_back(RecallAnswer::Never);
    is_delayed(&mut writer, "restarted");
    holder.wire.until("a recall", |wire| wire.callbacks().late.len() == 1);
    let before = (holder.client, holder.id);
    holder.wire.disconnect();
    holder.wire.reconnect(scene.at).expect("a connection");
    holder.begin(&Options::named("holder")).expect("a session");
    holder.call(&[crate::nfs41::compound::Op::ReclaimComplete]).expect("nothing is reclaimed");
    assert_ne!((holder.client, holder.id), before, "another client, another session");
    let other = open_to_write(&mut writer, "restarted");
    let gone = holder.give_back(&file.handle, delegation).expect_err("it went with its client");
    let stale = gone.status();
    assert!(stale == Some(status::BAD_STATEID) || stale == Some(STALE_STATEID), "{gone:?}");
    writer.close_file(&other).expect("it is closed");
    end(writer);
    end(holder);
}

/// `NFS4ERR_STALE_STATEID`.
const STALE_STATEID: u32 = 10_023;
