//! What a device on this transport can have.

use rpcrdma_provider::{DeviceCaps, QueueAttr, SetupError};

use crate::qp::QP_MAX;

/// Whether a device with these capabilities can make queues of this size.
///
/// # Errors
/// [`SetupError::Limit`], naming the first limit that is exceeded.
pub(crate) fn check(attr: &QueueAttr, caps: &DeviceCaps) -> Result<(), SetupError> {
    let limits = [
        ("Receives of a shared receive queue", attr.srq_depth, caps.srq_depth),
        ("entries of a completion queue", attr.cq_depth, caps.cq_depth),
        ("queue pairs of one shard", attr.qp_max, QP_MAX),
        ("send requests of a queue pair", attr.send_depth, caps.send_depth),
        ("gather entries of a send request", attr.send_sge, caps.send_sge),
        ("scatter entries of a Receive", attr.recv_sge, caps.recv_sge),
    ];
    for (what, needed, limit) in limits {
        if needed > limit {
            let (needed, limit) = (needed.into(), limit.into());
            return Err(SetupError::Limit { what, needed, limit, device: caps.name.clone() });
        }
    }
    let requests_max = u64::from(attr.qp_max) * u64::from(attr.send_depth);
    if requests_max > BACKLOG_MAX {
        return Err(SetupError::Limit {
            what: "send requests of all queue pairs",
            needed: requests_max,
            limit: BACKLOG_MAX,
            device: caps.name.clone(),
        });
    }
    Ok(())
}

/// The device has no windows, or none left.
#[cold]
pub(crate) fn no_window_left() -> SetupError {
    SetupError::Invalid {
        what: "memory windows",
        value: "one more than the device has left".to_owned(),
        allowed: "as many as its capabilities state (windows)".to_owned(),
    }
}

/// A window that was never opened.
#[cold]
pub(crate) fn no_such_window() -> SetupError {
    SetupError::Invalid {
        what: "memory window",
        value: "one that these queues do not have".to_owned(),
        allowed: "one that they have opened".to_owned(),
    }
}

/// Requests that may wait for room in one set of queues: at most 4 GiB, touched only when used.
const BACKLOG_MAX: u64 = 1 << 24;
