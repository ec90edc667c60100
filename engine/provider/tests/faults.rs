//! What the faults of queues do to posts and completions, around queues that take everything and
//! complete a Send in each poll.
#![expect(unsafe_code, reason = "posting is unsafe; nothing is done with what is posted here")]

use rpcrdma_mempool::{Access, RegisterError, Sge};
use rpcrdma_provider::fault::{FaultPlan, Faulty};
use rpcrdma_provider::{
    Armed, Attached, Bells, CqError, PostError, QueueEvent, Queues, RecvWr, Requests, SendFlags,
    SendWr, SetupError, Taken, WcBatch, WcOpcode, WcStatus, Window, WindowId, WorkCompletion, WrId,
};

/// Takes all requests. Each poll has the completion of one more Send, numbered from 1.
#[derive(Default)]
struct Willing {
    polls: u64,
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
            status: WcStatus::Success,
            opcode: WcOpcode::Send,
            byte_len: 0,
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

    fn disconnect(&mut self, _: u8) {}

    fn destroy(&mut self, _: u8) {}

    fn next_event(&mut self) -> Option<QueueEvent> {
        None
    }

    fn bells(&self) -> Bells<'_> {
        [None; 2]
    }

    fn arm(&mut self) -> Result<Armed, CqError> {
        Ok(Armed::Ready)
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
