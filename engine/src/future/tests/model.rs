//! Any order of calls, polls, drops, turns, losses: every future that is kept ends as it should,
//! and nothing is lost.

use crate::{Resend, SessionOptions, Sink, Want};
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Copy)]
enum Step {
    Call { ask: Ask, again: bool, places: bool, sinks: bool, keeps: bool },
    Poll(usize),
    Drop(usize),
    Turn(u8),
    Answer,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let ask = prop_oneof![Just(Ask::Number), Just(Ask::Later), (1_u32..9000).prop_map(Ask::Bytes),];
    let call = (ask, any::<[bool; 4]>()).prop_map(|(ask, [again, places, sinks, keeps])| {
        Step::Call { ask, again, places, sinks, keeps }
    });
    prop_oneof![
        4 => call,
        4 => any::<usize>().prop_map(Step::Poll),
        2 => any::<usize>().prop_map(Step::Drop),
        6 => (1_u8..40).prop_map(Step::Turn),
        1 => Just(Step::Answer),
        1 => Just(Step::Restart),
    ]
}

/// A future that is kept.
struct Kept {
    call: Pending,
    ask: Ask,
    number: u32,
    /// What is placed in it.
    sum: u32,
    /// The peer may write to memory of the call: if it is given up, its connection ends.
    exposes: bool,
}

impl Kept {
    /// Whether it is over; what it is then is checked.
    fn is_over(&mut self, was_lost: bool) -> bool {
        let Some(outcome) = ended(&mut self.call) else { return false };
        match outcome {
            Ok(reply) => {
                let mut reader = reply.reader();
                assert_eq!(reader.u32(), Ok(self.number));
                if self.ask != Ask::Later {
                    assert_eq!(reader.u32(), Ok(self.sum));
                }
                if let Ask::Bytes(len) = self.ask {
                    let pieces = reply.items().iter().flat_map(|item| &item.pieces);
                    let placed = pieces.flat_map(|piece| piece.to_vec()).collect();
                    assert_eq!(item(&mut reader, placed), vec![FILL; len as usize]);
                }
            }
            Err(failed) => {
                let is_loss = matches!(failed.why(), AsyncError::Session(SessionError::Call(_)));
                assert!(was_lost && is_loss, "{failed}");
            }
        }
        true
    }
}

fn begin<S: Side>(harness: &mut Harness<S>, step: Step, number: u32) -> Option<Kept> {
    let Step::Call { ask, again, places, sinks, keeps } = step else { return None };
    let mut call = ask.write(number);
    let (mut sum, mut exposes) = (0, false);
    if places && let Some(mut data) = harness.free_buffer() {
        data.truncate(5000);
        data.fill(2);
        sum = 10_000;
        call.place(data);
    }
    if let Ask::Bytes(len) = ask {
        let want = Want { len_min: 0, len_max: len };
        match harness.free_buffer().filter(|_| sinks) {
            Some(sink) => {
                exposes = true;
                call.want_into(want, Sink::from(sink));
            }
            None => call.want(want),
        }
    }
    let mut request = Request::from(call);
    if again {
        request = request.resend(Resend::SameXid);
    }
    if keeps {
        request = request.keep_loans();
    }
    Some(Kept { call: harness.call(request), ask, number, sum, exposes })
}

/// The futures of a client.
fn run<S: Side>(steps: Vec<Step>) {
    let options = SessionOptions { waiting_calls: 4, ..SessionOptions::default() };
    let mut harness = Harness::<S>::new(2, &options);
    let (mut kept, mut was_lost) = (Vec::new(), false);
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Call { .. } => kept.extend(begin(&mut harness, step, number as u32)),
            Step::Poll(at) if !kept.is_empty() => {
                let at = at % kept.len();
                if kept[at].is_over(was_lost) {
                    kept.swap_remove(at);
                }
            }
            Step::Drop(at) if !kept.is_empty() => {
                was_lost |= kept.swap_remove(at % kept.len()).exposes;
            }
            Step::Poll(_) | Step::Drop(_) => {}
            Step::Turn(turns) => (0..turns).for_each(|_| harness.step()),
            Step::Answer => harness.answer_later(),
            Step::Restart => {
                was_lost = true;
                harness.kill();
                harness.begin();
            }
        }
    }
    harness.until("all are over", |harness| {
        harness.answer_later();
        kept.retain_mut(|call| !call.is_over(was_lost));
        kept.is_empty()
    });
    harness.check_nothing_is_lost();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn futures_are_dropped_at_any_point(steps in prop::collection::vec(step(), 1..60)) {
        run::<OwnThread>(steps);
    }

    #[test]
    fn futures_of_one_thread_are_dropped_at_any_point(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run::<LocalClient<Fabric>>(steps);
    }
}
