//! What the faults of queues do to posts and completions, around queues that take everything and
//! complete a Send in each poll.
#![expect(unsafe_code, reason = "posting is unsafe; nothing is done with what is posted here")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rpcrdma_mempool::{Access, RegisterError, Sge};
use rpcrdma_provider::{
    Armed, Attached, Bells, CqError, PostError, QueueEvent, Queues, RecvWr, Requests, SendFlags,
    SendWr, SetupError, Taken, WcBatch, WcOpcode, WcStatus, Window, WindowId, WorkCompletion, WrId,
};
use rpcrdma_testing::fault::{FaultPlan, Faulty};

/// Takes all requests. Each poll has one more completion, numbered from 1.
#[derive(Default)]
struct Willing {
    polls: u64,
    /// What is completed; Sends, if it is `None`.
    opcode: Option<WcOpcode>,
    /// Why it has failed, if it has.
    failure: Option<WcStatus>,
    byte_len: u32,
    disconnected: Arc<Mutex<Vec<u8>>>,
}

impl Queues for Willing {
    type Qp = u8;
    type Endpoint = u8;
    type Handle = ();

    fn handle(&self) {}

    fn attach(&mut self, endpoint: u8) -> Result<Attached<u8>, SetupError> {
        Ok(Attached { qp: endpoint, qp_num: endpoint.into() })
    }

    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        self.polls += 1;
        out.push(WorkCompletion {
            wr_id: WrId(self.polls),
            // None is behind another of its queue pair.
            qp_num: self.polls as u32,
            status: self.failure.unwrap_or(WcStatus::Success),
            opcode: self.opcode.unwrap_or(WcOpcode::Send),
            byte_len: self.byte_len,
            invalidated: None,
        });
        Ok(())
    }

    unsafe fn describe_recv(&mut self, _: u32, _: &[Sge]) {}

    unsafe fn post_srq_recv(&mut self, wrs: impl Requests<RecvWr>) -> Taken {
        Taken::without_error(wrs.len())
    }

    unsafe fn post_send<'a>(&mut self, _: u8, wrs: impl Requests<SendWr<'a>>) -> Taken {
        Taken::without_error(wrs.len())
    }

    fn open_window(&mut self) -> Result<Window, SetupError> {
        Err(SetupError::Stopped)
    }

    fn renew_window(&mut self, _: WindowId) -> Result<Option<Window>, SetupError> {
        Ok(None)
    }

    unsafe fn expose(&mut self, _: &Sge, _: Access) -> Result<u32, RegisterError> {
        Ok(0)
    }

    fn conceal(&mut self, _: u32) -> std::io::Result<()> {
        Ok(())
    }

    fn disconnect(&mut self, qp: u8) {
        self.disconnected.lock().expect("no test panics with it").push(qp);
    }

    fn destroy(&mut self, _: u8) {}

    fn next_event(&mut self) -> Option<QueueEvent> {
        None
    }

    fn bells(&self) -> Bells<'_> {
        [None; 2]
    }

    fn arm(&mut self) -> Result<Armed, CqError> {
        Ok(Armed::AtMost(Duration::MAX))
    }

    fn disarm(&mut self, _: bool) -> Result<(), CqError> {
        Ok(())
    }
}

const ALWAYS: u32 = 1_000_000;

fn faulty(plan: FaultPlan) -> Faulty<Willing> {
    Faulty::new(Willing::default(), plan)
}

#[test]
fn a_late_completion_comes_one_poll_later_or_more_and_at_most_as_many_as_the_plan_says() {
    let plan =
        FaultPlan { completion_delayed_ppm: ALWAYS, polls_late_max: 3, ..FaultPlan::default() };
    let mut queues = faulty(plan);
    let mut delays = Vec::new();
    for poll in 1..=100 {
        let mut out = WcBatch::new();
        queues.poll_cq(&mut out).expect("they do not fail");
        delays.extend(out.iter().map(|completion| poll - completion.wr_id.0));
    }
    delays.sort_unstable();
    delays.dedup();
    assert_eq!(delays, [1, 2, 3], "polls between a completion and its report");
}

/// How many of so many Sends and Receives are taken, with which error.
fn posted(plan: FaultPlan, count: u32) -> [(usize, Option<PostError>); 2] {
    let mut queues = faulty(plan);
    let sends = (0..count).map(|id| SendWr::send(WrId(id.into()), &[], SendFlags::empty()));
    // SAFETY: the queues do nothing with the memory.
    let sent = unsafe { queues.post_send(1, sends) };
    let receives = (0..count).map(|id| RecvWr { wr_id: WrId(id.into()), buffer: 1 });
    // SAFETY: as above.
    let received = unsafe { queues.post_srq_recv(receives) };
    [sent, received].map(|taken| taken.of(count as usize))
}

#[test]
fn a_post_of_one_request_is_never_cut() {
    for seed in 0..20 {
        let plan =
            FaultPlan { seed, send_cut_ppm: ALWAYS, recv_cut_ppm: ALWAYS, ..FaultPlan::default() };
        assert_eq!(posted(plan, 1), [(1, None); 2], "it is whole or refused");
        assert_eq!(posted(plan, 2), [(1, Some(PostError::QueueFull)); 2], "one of two");
    }
}

/// What a poll reports: numbers of requests.
fn polled(queues: &mut Faulty<Willing>) -> Vec<u64> {
    let mut out = WcBatch::new();
    queues.poll_cq(&mut out).expect("they do not fail");
    out.iter().map(|completion| completion.wr_id.0).collect()
}

#[test]
fn a_thread_does_not_sleep_over_a_late_completion() {
    let plan =
        FaultPlan { completion_delayed_ppm: ALWAYS, polls_late_max: 1, ..FaultPlan::default() };
    let mut queues = faulty(plan);
    assert!(matches!(queues.arm(), Ok(Armed::AtMost(_))));
    assert_eq!(polled(&mut queues), [], "it is late");
    assert!(matches!(queues.arm(), Ok(Armed::Ready)));
}

#[test]
fn a_completion_of_a_read_is_withheld_until_its_queue_pair_fails_and_one_of_a_send_is_not() {
    let plan = FaultPlan { completion_withheld_ppm: ALWAYS, ..FaultPlan::default() };
    let mut queues = faulty(plan);
    assert_eq!(polled(&mut queues), [1]);
    let reading = Willing { opcode: Some(WcOpcode::Read), ..Willing::default() };
    let mut queues = Faulty::new(reading, plan);
    let first = queues.attach(1).expect("they take all");
    assert_eq!(first.qp_num, 1, "that of the first completion");
    assert_eq!([polled(&mut queues), polled(&mut queues)], [vec![], vec![]]);
    queues.disconnect(first.qp);
    assert_eq!(polled(&mut queues), [1], "the other queue pair has not failed");
}

#[test]
fn a_queue_pair_that_the_plan_lets_fail_is_disconnected_and_reported_once() {
    let plan = FaultPlan { qp_failed_ppm: ALWAYS, polls_late_max: 1, ..FaultPlan::default() };
    let (willing, disconnected) = (Willing::default(), Arc::default());
    let willing = Willing { disconnected: Arc::clone(&disconnected), ..willing };
    let mut queues = Faulty::new(willing, plan);
    queues.attach(7).expect("they take all");
    let mut events = Vec::new();
    for _ in 0..4 {
        polled(&mut queues);
        events.extend(queues.next_event());
    }
    assert_eq!(events, [QueueEvent::Failed { qp_num: 7 }]);
    assert_eq!(*disconnected.lock().expect("no test panics with it"), [7]);
}

/// The places of a Receive of 16 bytes, in two pieces, that are changed in its message.
fn changed(header_len: u32, byte_len: u32, failure: Option<WcStatus>) -> BTreeSet<usize> {
    let mut places = BTreeSet::new();
    for seed in 0..100 {
        let plan =
            FaultPlan { seed, bytes_changed_ppm: ALWAYS, header_len, ..FaultPlan::default() };
        let opcode = Some(WcOpcode::Recv);
        let mut queues =
            Faulty::new(Willing { opcode, byte_len, failure, ..Willing::default() }, plan);
        let mut memory = [0_u8; 16];
        let addr = memory.as_mut_ptr().expose_provenance() as u64;
        let sge = |skip, length| Sge { addr: addr + skip, length, lkey: 0 };
        // SAFETY: the memory lives as long as the queues, which change it in a poll only.
        unsafe { queues.describe_recv(3, &[sge(0, 3), sge(3, 13)]) };
        let receive = RecvWr { wr_id: WrId(1), buffer: 3 };
        // SAFETY: as above.
        let taken = unsafe { queues.post_srq_recv([receive].into_iter()) };
        assert_eq!(taken.of(1), (1, None));
        assert_eq!(polled(&mut queues), [1]);
        drop(queues);
        places.extend((0..16).filter(|at| memory[*at] != 0));
    }
    places
}

#[test]
fn bytes_are_changed_within_the_message_and_its_header_and_in_no_failed_one() {
    assert_eq!(changed(100, 8, None), (0..8).collect());
    assert_eq!(changed(4, 8, None), (0..4).collect());
    assert_eq!(changed(0, 8, None), (0..1).collect(), "a header has a byte at least");
    assert_eq!(changed(100, 0, None), BTreeSet::new());
    assert_eq!(changed(100, 8, Some(WcStatus::Flushed)), BTreeSet::new());
}
