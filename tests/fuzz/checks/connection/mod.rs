//! Two connected ends. With valid traffic, every call is delivered and answered correctly. With
//! changed, repeated or foreign transmissions, credits and Receives stay consistent and each call
//! ends once.

mod end;

use rpcrdma_proto::{Role, Settings};
use rpcrdma_xdr::{BackwardSupport, RecvStructure, RtrSupport, SegmentGroup};

use self::end::End;
use super::choices::Choices;
use super::foreign;

/// Checks one input.
///
/// # Panics
/// If a message of valid peers is lost, changed or rejected; if a call ends twice; if a credit or
/// Receive is not returned.
pub fn check(input: &[u8]) {
    let mut choices = Choices::new(input);
    let settings = [any_settings(&mut choices), any_settings(&mut choices)];
    let states = [settings[0].properties, settings[1].properties];
    let [client, server] = settings;
    let mut ends = [End::new(Role::Client, client), End::new(Role::Server, server)];
    // Each end knows only what the other has stated.
    let mut is_lawful = states == [true, true] || settings.iter().all(is_default);
    let stays_lawful = choices.flag();
    ends[0].begin();
    // Mostly they exchange properties first.
    if !choices.rarely(4) {
        exchange(&mut ends, &mut choices, is_lawful);
    }
    for _ in 0..EVENTS_MAX {
        if choices.is_over() {
            break;
        }
        let who = usize::from(choices.flag());
        let (own, peer) = both(&mut ends, who);
        match choices.below(16) {
            0..=3 => own.call(&mut choices),
            4..=10 => {
                if !own.receive(peer, &mut choices, is_lawful) {
                    break;
                }
            }
            11 | 12 => own.answer(peer, &mut choices, is_lawful),
            _ if stays_lawful => {
                own.receive(peer, &mut choices, is_lawful);
            }
            13 => is_lawful &= !own.corrupt(&mut choices),
            14 => is_lawful &= !own.repeat(&mut choices),
            _ => {
                let xids = peer.xids();
                let len_max = peer.side.buffer_len();
                own.outbox.push_back(foreign::transmission(&mut choices, &xids, len_max));
                is_lawful = false;
            }
        }
        ends.iter().for_each(End::check);
    }
    if is_lawful {
        finish(&mut ends, &mut choices);
    }
    ends.into_iter().for_each(End::close);
}

/// One end, and the other.
fn both(ends: &mut [End; 2], who: usize) -> (&mut End, &mut End) {
    let [one, two] = ends;
    if who == 0 { (one, two) } else { (two, one) }
}

/// Delivers all transmissions.
fn exchange(ends: &mut [End; 2], choices: &mut Choices<'_>, is_lawful: bool) {
    for who in [1, 0, 1] {
        let (own, peer) = both(ends, who);
        while !peer.outbox.is_empty() {
            assert!(own.receive(peer, choices, is_lawful), "lawful peers do not part");
        }
    }
}

/// Ends valid traffic: delivers everything that was sent, and answers every call.
fn finish(ends: &mut [End; 2], choices: &mut Choices<'_>) {
    for _ in 0..ROUNDS_MAX {
        exchange(ends, choices, true);
        for who in 0..2 {
            let (own, peer) = both(ends, who);
            own.answer(peer, choices, true);
        }
        if ends.iter().all(End::is_idle) {
            return;
        }
    }
    panic!("not in {ROUNDS_MAX} rounds: every call is answered");
}

/// The events of one input.
const EVENTS_MAX: usize = 200;
/// The limit of rounds until everything is complete.
const ROUNDS_MAX: usize = 200;

/// Whether the settings are the defaults that a peer assumes.
fn is_default(own: &Settings) -> bool {
    own.structure.total_len() >= 4096 && own.backward != BackwardSupport::None
}

fn any_settings(choices: &mut Choices<'_>) -> Settings {
    let group = |count, length, placement| SegmentGroup { count, length, align: 64, placement };
    let structure = match choices.below(5) {
        0 => RecvStructure::new(&[group(1, 1024, false), group(3, 1024, true)]),
        1 => RecvStructure::new(&[group(1, 4096, false)]),
        2 => RecvStructure::new(&[group(1, 1024, false)]),
        3 => RecvStructure::new(&[
            group(1, 1100, false),
            group(2, 700, true),
            group(1, 99, false),
            group(1, 2000, true),
        ]),
        _ => RecvStructure::new(&[group(1, 4096, false), group(2, 4096, true)]),
    };
    let credits = choices.pick(&[4, 16, 1, 2, 64]);
    let count = choices.pick(&[16, 4, 1, 2, 64]);
    let xmt = RtrSupport::XREQ | RtrSupport::XRESP;
    Settings {
        credits_requested: credits,
        credits_granted_max: choices.pick(&[16, 4, 1, 2, 64]),
        call_count_max: count,
        request_rx_limit: choices.pick(&[16, 4, 1, 2, 64]),
        response_sx_limit: count,
        response_rx_max: choices.pick(&[16, 4, 1, 2, 64]),
        backward: choices.pick(&[
            BackwardSupport::Inline,
            BackwardSupport::General,
            BackwardSupport::None,
        ]),
        properties: !choices.rarely(8),
        rtr: choices.pick(&[xmt | RtrSupport::XCONT, xmt, RtrSupport::empty()]),
        ..Settings::new(structure.expect("within the limits"))
    }
}
