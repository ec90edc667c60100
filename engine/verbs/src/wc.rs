//! Completions: converts all status and opcode numbers of the library.

use rpcrdma_provider::{WcOpcode, WcStatus, WorkCompletion, WrId};

use crate::sys::verbs as sys;

/// Marks Receives in work request numbers: a failed completion does not state what it completes.
/// Programs do not use this bit ([`WrId`]).
pub(crate) const RECEIVE: u64 = WrId::PROVIDER_BIT;

/// Converts a completion, with the mark of Receives.
///
/// Of a failed one, only number, status and queue pair are read: drivers do not write the rest
/// (`ibv_poll_cq(3)`).
#[inline]
pub(crate) fn completion(wc: &sys::ibv_wc, invalidated: u32) -> WorkCompletion {
    if wc.status != sys::IBV_WC_SUCCESS {
        return failed(wc);
    }
    let is_receive = wc.wr_id & RECEIVE != 0;
    let is_invalidating = is_receive && wc.wc_flags & invalidated != 0;
    WorkCompletion {
        wr_id: WrId(wc.wr_id),
        qp_num: wc.qp_num,
        status: status(wc.status),
        opcode: if is_receive { WcOpcode::Recv } else { opcode(wc.opcode) },
        byte_len: wc.byte_len,
        invalidated: is_invalidating.then_some(wc.invalidated_rkey),
    }
}

/// A message that arrived and invalidates no key, as [`completion`] and [`reported`] have it.
/// `None` for any other completion.
#[inline]
pub(crate) fn plain_receive(wc: &sys::ibv_wc, invalidated: u32) -> Option<WorkCompletion> {
    if wc.status != sys::IBV_WC_SUCCESS || wc.wr_id & RECEIVE == 0 || wc.wc_flags & invalidated != 0
    {
        return None;
    }
    Some(WorkCompletion {
        wr_id: WrId(wc.wr_id & !RECEIVE),
        qp_num: wc.qp_num,
        status: WcStatus::Success,
        opcode: WcOpcode::Recv,
        byte_len: wc.byte_len,
        invalidated: None,
    })
}

#[cold]
fn failed(wc: &sys::ibv_wc) -> WorkCompletion {
    WorkCompletion {
        wr_id: WrId(wc.wr_id),
        qp_num: wc.qp_num,
        status: status(wc.status),
        opcode: if wc.wr_id & RECEIVE != 0 { WcOpcode::Recv } else { WcOpcode::Send },
        byte_len: 0,
        invalidated: None,
    }
}

/// Whether it completes a Receive, with any status.
pub(crate) fn is_receive(done: &WorkCompletion) -> bool {
    done.wr_id.0 & RECEIVE != 0
}

/// The completion that its program gets: with the number that it has posted.
#[inline]
pub(crate) fn reported(done: WorkCompletion) -> WorkCompletion {
    WorkCompletion { wr_id: WrId(done.wr_id.0 & !RECEIVE), ..done }
}

/// `enum ibv_wc_status`.
#[inline]
fn status(number: u32) -> WcStatus {
    match number {
        sys::IBV_WC_SUCCESS => WcStatus::Success,
        sys::IBV_WC_LOC_LEN_ERR => WcStatus::LocalLength,
        sys::IBV_WC_LOC_QP_OP_ERR => WcStatus::LocalOperation,
        sys::IBV_WC_LOC_PROT_ERR => WcStatus::LocalProtection,
        sys::IBV_WC_MW_BIND_ERR => WcStatus::MemoryWindowBind,
        sys::IBV_WC_WR_FLUSH_ERR => WcStatus::Flushed,
        sys::IBV_WC_REM_INV_REQ_ERR => WcStatus::RemoteInvalidRequest,
        sys::IBV_WC_REM_ACCESS_ERR => WcStatus::RemoteAccess,
        sys::IBV_WC_RETRY_EXC_ERR => WcStatus::RetryExceeded,
        sys::IBV_WC_RNR_RETRY_EXC_ERR => WcStatus::RnrRetryExceeded,
        other => WcStatus::Other(other),
    }
}

/// `enum ibv_wc_opcode`, of a successful completion. An opcode that this crate never posts counts
/// as a Send, which has no further effect.
#[inline]
fn opcode(number: u32) -> WcOpcode {
    match number {
        number if number & sys::IBV_WC_RECV != 0 => WcOpcode::Recv,
        sys::IBV_WC_RDMA_WRITE => WcOpcode::Write,
        sys::IBV_WC_RDMA_READ => WcOpcode::Read,
        sys::IBV_WC_BIND_MW => WcOpcode::Bind,
        sys::IBV_WC_LOCAL_INV => WcOpcode::Invalidate,
        _ => WcOpcode::Send,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(flags: u32) -> sys::ibv_wc {
        sys::ibv_wc {
            wr_id: 7 | RECEIVE,
            opcode: sys::IBV_WC_RECV,
            byte_len: 40,
            qp_num: 17,
            wc_flags: flags,
            invalidated_rkey: 0x1234,
            ..sys::ibv_wc::EMPTY
        }
    }

    #[test]
    fn every_number_of_a_device_is_a_status_and_an_opcode() {
        for number in (0..1000).chain([u32::MAX]) {
            let known = matches!(number, 0 | 1 | 2 | 4 | 5 | 6 | 9 | 10 | 12 | 13);
            assert_eq!(status(number) != WcStatus::Other(number), known, "status {number}");
            let _ = opcode(number);
        }
        assert_eq!(opcode(sys::IBV_WC_RECV + 1), WcOpcode::Recv, "with immediate data");
        let own = [
            (sys::IBV_WC_RDMA_WRITE, WcOpcode::Write),
            (sys::IBV_WC_RDMA_READ, WcOpcode::Read),
            (sys::IBV_WC_BIND_MW, WcOpcode::Bind),
            (sys::IBV_WC_LOCAL_INV, WcOpcode::Invalidate),
            (sys::IBV_WC_SEND, WcOpcode::Send),
        ];
        assert_eq!(own.map(|(number, _)| opcode(number)), own.map(|(_, named)| named));
    }

    #[test]
    fn a_receive_keeps_its_number_and_names_the_invalidated_key() {
        let done = completion(&received(sys::IBV_WC_WITH_INV), sys::IBV_WC_WITH_INV);
        assert!(is_receive(&done));
        let done = reported(done);
        assert_eq!((done.wr_id, done.qp_num, done.byte_len), (WrId(7), 17, 40));
        assert_eq!((done.opcode, done.status), (WcOpcode::Recv, WcStatus::Success));
        assert_eq!(done.invalidated, Some(0x1234));
        assert_eq!(completion(&received(0), sys::IBV_WC_WITH_INV).invalidated, None);
    }

    #[test]
    fn a_plain_message_is_the_same_by_both_ways() {
        let flag = sys::IBV_WC_WITH_INV;
        let plain = received(0);
        let same = |wc| plain_receive(wc, flag) == Some(reported(completion(wc, flag)));
        assert!(same(&plain));
        assert!(same(&sys::ibv_wc { wc_flags: !flag, opcode: sys::IBV_WC_RECV + 1, ..plain }));
        for other in [
            received(flag),
            sys::ibv_wc { status: sys::IBV_WC_WR_FLUSH_ERR, ..plain },
            sys::ibv_wc { wr_id: 7, ..plain },
        ] {
            assert_eq!(plain_receive(&other, flag), None, "{other:?}");
        }
    }

    #[test]
    fn other_fields_of_a_failed_completion_are_ignored() {
        let stale = received(sys::IBV_WC_WITH_INV);
        let flushed = sys::ibv_wc { status: sys::IBV_WC_WR_FLUSH_ERR, opcode: 3, ..stale };
        let done = completion(&flushed, sys::IBV_WC_WITH_INV);
        assert_eq!((done.wr_id, done.status), (WrId(7 | RECEIVE), WcStatus::Flushed));
        assert_eq!((done.opcode, done.byte_len, done.invalidated), (WcOpcode::Recv, 0, None));
    }

    #[test]
    fn the_flag_of_soft_roce_counts_on_soft_roce_only() {
        let odd = received(1 << 2);
        assert_eq!(completion(&odd, sys::IBV_WC_WITH_INV | 1 << 2).invalidated, Some(0x1234));
        assert_eq!(completion(&odd, sys::IBV_WC_WITH_INV).invalidated, None);
    }

    #[test]
    fn the_completion_of_a_send_invalidates_no_key() {
        let sent = sys::ibv_wc { wr_id: 7, opcode: sys::IBV_WC_SEND, ..received(1 << 3) };
        let done = completion(&sent, 1 << 3);
        assert_eq!((done.invalidated, is_receive(&done)), (None, false));
    }
}
