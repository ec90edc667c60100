//! Why an attempt to connect has failed, and whether to try again.

use std::io;

use rpcrdma_provider::{ConnectError, Rejection};

use crate::error::likely_cause;
use crate::sys::cm as sys;

/// Whether a failure is permanent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// Another attempt would fail the same way.
    Final(ConnectError),
    /// A message may have been lost, or the peer may not be ready yet.
    Passing(ConnectError),
}

/// The meaning of a failed attempt's event. `status` is an error number, or the peer's reason;
/// `private` is what the peer adds to it.
pub(super) fn of_event(event: u32, status: i32, private: &[u8]) -> Failure {
    match event {
        sys::RDMA_CM_EVENT_ADDR_ERROR | sys::RDMA_CM_EVENT_ROUTE_ERROR => {
            let is_address = event == sys::RDMA_CM_EVENT_ADDR_ERROR;
            of_errno(if is_address { RESOLVE_ADDR } else { RESOLVE_ROUTE }, status.saturating_abs())
        }
        sys::RDMA_CM_EVENT_UNREACHABLE => Failure::Passing(ConnectError::TimedOut),
        sys::RDMA_CM_EVENT_REJECTED => of_rejection(status, Rejection::decode(private)),
        sys::RDMA_CM_EVENT_DEVICE_REMOVAL => Failure::Final(ConnectError::Lost),
        _ => Failure::Passing(ConnectError::Lost),
    }
}

/// The meaning of a call's immediate failure.
pub(super) fn of_error(call: &'static str, error: &io::Error) -> Failure {
    of_errno(call, error.raw_os_error().unwrap_or(0))
}

fn of_errno(call: &'static str, errno: i32) -> Failure {
    let failed = ConnectError::CallFailed { call, errno, hint: likely_cause(call, errno) };
    match errno {
        libc::ETIMEDOUT => Failure::Passing(ConnectError::TimedOut),
        // There is no route, or it uses an interface without an RDMA device.
        libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN => {
            Failure::Final(ConnectError::NoRoute)
        }
        libc::ENODEV | libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT | libc::EINVAL
            if [RESOLVE_ADDR, RESOLVE_ROUTE].contains(&call) =>
        {
            Failure::Final(ConnectError::NoRoute)
        }
        // iWARP: TCP answers while the request is made.
        libc::ECONNREFUSED => Failure::Final(ConnectError::NoListener),
        libc::ECONNRESET => Failure::Passing(ConnectError::Lost),
        libc::ENOMEM | libc::EAGAIN | libc::ENOBUFS => Failure::Passing(failed),
        _ => Failure::Final(failed),
    }
}

/// InfiniBand, table 113: the reasons of a rejection. iWARP has error numbers instead: ECONNRESET
/// for the peer's program, ECONNREFUSED for a peer that does not negotiate MPA as this side does.
fn of_rejection(status: i32, why: Rejection) -> Failure {
    match status {
        NO_RESOURCES | TIMEOUT | STALE_CONNECTION => Failure::Passing(ConnectError::Rejected(why)),
        NO_SUCH_SERVICE => Failure::Final(ConnectError::NoListener),
        _ if status.saturating_abs() == libc::ECONNREFUSED => {
            Failure::Final(ConnectError::NoListener)
        }
        _ => Failure::Final(ConnectError::Rejected(why)),
    }
}

/// The calls that look for a route to the peer.
const RESOLVE_ADDR: &str = "rdma_resolve_addr";
const RESOLVE_ROUTE: &str = "rdma_resolve_route";
/// The peer has no resources.
const NO_RESOURCES: i32 = 3;
/// The peer has waited too long for the third message.
const TIMEOUT: i32 = 4;
/// There is no such service.
const NO_SUCH_SERVICE: i32 = 8;
/// The peer still holds an old connection with this queue pair's number.
const STALE_CONNECTION: i32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_listener_is_not_a_rejection() {
        let rejected = |status| of_event(sys::RDMA_CM_EVENT_REJECTED, status, &[]);
        let unstated = ConnectError::Rejected(Rejection::Unstated);
        assert_eq!(rejected(8), Failure::Final(ConnectError::NoListener));
        assert_eq!(rejected(-libc::ECONNREFUSED), Failure::Final(ConnectError::NoListener));
        // The peer's program has rejected the request.
        let tcp = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        assert_eq!(of_error("rdma_connect", &tcp), Failure::Final(ConnectError::NoListener));
        assert_eq!(rejected(28), Failure::Final(unstated));
        assert_eq!(rejected(9), Failure::Final(unstated));
    }

    #[test]
    fn transient_failures_are_tried_again() {
        for (event, status, why) in [
            (sys::RDMA_CM_EVENT_ADDR_ERROR, -libc::ETIMEDOUT, ConnectError::TimedOut),
            (sys::RDMA_CM_EVENT_ROUTE_ERROR, libc::ETIMEDOUT, ConnectError::TimedOut),
            (sys::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, ConnectError::TimedOut),
            (sys::RDMA_CM_EVENT_REJECTED, 10, ConnectError::Rejected(Rejection::Unstated)),
            (sys::RDMA_CM_EVENT_CONNECT_ERROR, -libc::EINVAL, ConnectError::Lost),
            (sys::RDMA_CM_EVENT_ADDR_ERROR, -libc::ECONNRESET, ConnectError::Lost),
        ] {
            assert_eq!(of_event(event, status, &[]), Failure::Passing(why), "{event} {status}");
        }
    }

    #[test]
    fn a_reason_is_of_a_rejection_only() {
        let full = Rejection::Full.encode();
        let of = |event, status| of_event(event, status, &full);
        let rejected = ConnectError::Rejected(Rejection::Full);
        assert_eq!(of(sys::RDMA_CM_EVENT_REJECTED, 28), Failure::Final(rejected));
        assert_eq!(of(sys::RDMA_CM_EVENT_REJECTED, 3), Failure::Passing(rejected));
        let missing = Failure::Final(ConnectError::NoListener);
        assert_eq!(of(sys::RDMA_CM_EVENT_REJECTED, 8), missing, "no program has said it");
        let late = Failure::Passing(ConnectError::TimedOut);
        assert_eq!(of(sys::RDMA_CM_EVENT_UNREACHABLE, 0), late);
    }

    #[test]
    fn an_address_of_another_interface_is_not_tried_again() {
        for errno in [libc::ENODEV, libc::ENETUNREACH, libc::EHOSTUNREACH] {
            let event = of_event(sys::RDMA_CM_EVENT_ADDR_ERROR, -errno, &[]);
            assert_eq!(event, Failure::Final(ConnectError::NoRoute));
        }
        let at_once = of_error(RESOLVE_ADDR, &io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
        assert_eq!(at_once, Failure::Final(ConnectError::NoRoute));
    }

    #[test]
    fn any_event_and_any_status_has_a_meaning() {
        for event in (0..40).chain([u32::MAX]) {
            for status in [i32::MIN, -200, -1, 0, 1, 33, 200, i32::MAX] {
                let (Failure::Final(_) | Failure::Passing(_)) = of_event(event, status, &[]);
            }
        }
    }
}
