//! Recalls that are refused or answered late, and the limits of a back channel.

use std::time::{Duration, Instant};

use rpcrdma::Provider;

use super::recall::{is_delayed, open_to_write};
use super::{Scene, end, pattern, read_delegation};
use crate::nfs41::callbacks::RecallAnswer;
use crate::nfs41::compound::Channel;
use crate::nfs41::files::Opened;
use crate::nfs41::numbers::{access, op, status};
use crate::nfs41::results::Failure;
use crate::nfs41::session::{BACK, Options, Session};
use crate::nfs41::words::StateId;

/// A holder that does not know the file handle, as when the recall has overtaken the OPEN, is asked
/// once more.
///
/// # Panics
/// If not.
pub fn a_refused_recall_comes_again<P: Provider>(scene: Scene<'_, P>) {
    let (mut holder, file, delegation) = held(&scene, "refused");
    let mut writer = scene.client("writer");
    holder.wire.callbacks().answers.push_back(RecallAnswer::Refuse(status::BADHANDLE));
    is_delayed(&mut writer, "refused");
    holder.wire.until("the recall comes again", |wire| wire.callbacks().recalls().count() == 2);
    let (first, again) = {
        let mut recalls = holder.wire.callbacks().recalls();
        let (first, again) = (recalls.next().expect("one"), recalls.next().expect("two"));
        assert_eq!(first.1, again.1, "the same delegation of the same file");
        (first.0.clone(), again.0.clone())
    };
    assert_eq!((first.status, again.status), (status::BADHANDLE, status::OK));
    let [first, again] = [first, again].map(|seen| seen.sequence.expect("of a session"));
    assert_eq!((first.slot, again.slot), (0, 0));
    assert_eq!(again.sequence, first.sequence + 1, "a request of its own");
    returned(holder, writer, file, delegation);
}

/// The server waits for the answer, and goes on answering the forward direction meanwhile.
///
/// # Panics
/// If not.
pub fn a_recall_may_be_answered_late<P: Provider>(scene: Scene<'_, P>) {
    let (mut holder, file, delegation) = held(&scene, "late");
    let mut writer = scene.client("writer");
    holder.wire.callbacks().answers.push_back(RecallAnswer::Later);
    is_delayed(&mut writer, "late");
    holder.wire.until("a recall", |wire| wire.callbacks().late.len() == 1);
    let until = Instant::now() + Duration::from_millis(500);
    let mut calls = 0;
    while Instant::now() < until {
        assert_eq!(holder.size(&file.handle).expect("a GETATTR"), 10_000);
        is_delayed(&mut writer, "late");
        calls += 1;
    }
    assert!(calls > 0);
    holder.wire.answer_late();
    assert_eq!(holder.wire.callbacks().recalls().count(), 1, "it is not asked twice");
    returned(holder, writer, file, delegation);
}

/// The server makes no session whose back channel is too small for its callbacks, and keeps the
/// limits of one that is just large enough.
///
/// # Panics
/// If not.
pub fn the_limits_of_the_back_channel_are_kept<P: Provider>(scene: Scene<'_, P>) {
    let asked = |request_max| {
        let back = Channel { request_max, response_max: request_max, ..BACK };
        Options { back, ..Options::named("limited") }
    };
    let (mut refused, mut accepted) = (0, BACK.request_max);
    // The smallest back channel that the server accepts.
    while accepted - refused > 4 {
        let middle = (refused + accepted) / 2;
        match Session::open(scene.engine, scene.at, &asked(middle)) {
            Ok(session) => {
                accepted = middle;
                end(session);
            }
            Err(Failure::Status { operation: op::CREATE_SESSION, status: status::TOOSMALL }) => {
                refused = middle;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!((100..=2_048).contains(&accepted), "CB_RECALL has some 200 bytes, not {accepted}");
    println!("the smallest back channel has calls of {accepted} bytes");
    let (mut holder, file, delegation) = held_as(&scene, "limited", &asked(accepted));
    let mut writer = scene.client("writer");
    is_delayed(&mut writer, "limited");
    holder.wire.until("a recall", |wire| wire.callbacks().recalls().count() == 1);
    let len = holder.wire.callbacks().seen[0].len;
    assert!((100..=accepted as usize).contains(&len), "{len} bytes");
    println!("its CB_RECALL has {len} bytes");
    returned(holder, writer, file, delegation);
}

/// A client that has a file open with a read delegation.
///
/// # Panics
/// If it gets none.
pub fn held<P: Provider>(scene: &Scene<'_, P>, name: &str) -> (Session<P>, Opened, StateId) {
    held_as(scene, name, &Options::named("holder"))
}

fn held_as<P: Provider>(
    scene: &Scene<'_, P>,
    name: &str,
    asked: &Options,
) -> (Session<P>, Opened, StateId) {
    scene.file(name, &pattern(45, 10_000));
    let mut holder = scene.client_as(asked);
    let file = holder.open_file(name, access::READ | access::WANT_READ_DELEG).expect("it is open");
    let delegation = read_delegation(&file.delegation);
    (holder, file, delegation)
}

/// The holder returns its delegation, the writer goes on, and all ends.
///
/// # Panics
/// If not.
pub fn returned<P: Provider>(
    mut holder: Session<P>,
    mut writer: Session<P>,
    file: Opened,
    delegation: StateId,
) {
    holder.give_back(&file.handle, delegation).expect("it is returned");
    let other = open_to_write(&mut writer, &file.name);
    writer.close_file(&other).expect("it is closed");
    holder.close_file(&file).expect("it is closed");
    end(writer);
    end(holder);
}
