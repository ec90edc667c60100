//! The parameters of a connection request and of its answer, of both sides.
#![expect(unsafe_code, reason = "private data are behind a pointer of librdmacm")]

use rpcrdma_provider::PrivateBytes;

use crate::sys::cm as sys;

/// The numbers of concurrent RDMA Reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Depths {
    /// By the peer, of this side's memory.
    pub responder: u8,
    /// By this side.
    pub initiator: u8,
}

/// The parameters that a connection request or its answer carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer<'a> {
    pub private: &'a [u8],
    pub depths: Depths,
    /// How often the peer retries when this side has no Receive.
    pub rnr_retry: u8,
    pub retry_count: u8,
    pub qp_num: u32,
}

impl Offer<'_> {
    /// The structure that librdmacm takes.
    pub fn as_param(&self) -> sys::rdma_conn_param {
        sys::rdma_conn_param {
            private_data: self.private.as_ptr().cast(),
            private_data_len: self.private.len() as u8,
            responder_resources: self.depths.responder,
            initiator_depth: self.depths.initiator,
            flow_control: 1,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry,
            srq: 1,
            qp_num: self.qp_num,
        }
    }
}

impl Depths {
    /// The lower of both limits.
    pub fn at_most(self, other: Depths) -> Depths {
        Depths {
            responder: self.responder.min(other.responder),
            initiator: self.initiator.min(other.initiator),
        }
    }
}

/// The peer's private data, as much of it as the engine uses.
///
/// # Safety
/// The event that contains it is not acknowledged yet.
pub(crate) unsafe fn private_data(conn: &sys::rdma_conn_param) -> PrivateBytes {
    let mut private = PrivateBytes::new();
    if conn.private_data.is_null() {
        return private;
    }
    let length = usize::from(conn.private_data_len).min(private.capacity());
    // SAFETY: the library says that so many bytes are there, until the event is acknowledged.
    let bytes = unsafe { std::slice::from_raw_parts(conn.private_data.cast::<u8>(), length) };
    let _ = private.try_extend_from_slice(bytes);
    private
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn conn(bytes: &[u8], said: u8) -> sys::rdma_conn_param {
        let offer = Offer {
            private: bytes,
            depths: Depths { responder: 3, initiator: 4 },
            rnr_retry: 7,
            retry_count: 6,
            qp_num: 17,
        };
        sys::rdma_conn_param { private_data_len: said, ..offer.as_param() }
    }

    #[test]
    fn private_data_are_cut_to_what_a_request_carries() {
        let bytes: Vec<u8> = (0..=255).collect();
        for (said, kept) in [(0, 0), (8, 8), (56, 56), (57, 56), (196, 56), (255, 56)] {
            // SAFETY: no library is asked; the bytes are there.
            let private = unsafe { private_data(&conn(&bytes, said)) };
            assert_eq!(private[..], bytes[..kept], "{said}");
        }
        let none = sys::rdma_conn_param { private_data: ptr::null(), ..conn(&bytes, 9) };
        // SAFETY: as above; nothing is said to be where nothing is.
        assert!(unsafe { private_data(&none) }.is_empty());
    }

    #[test]
    fn the_fields_of_an_offer_are_read() {
        let param = conn(&[1, 2, 3], 3);
        assert_eq!((param.responder_resources, param.initiator_depth), (3, 4));
        assert_eq!((param.rnr_retry_count, param.retry_count), (7, 6));
        assert_eq!((param.srq, param.qp_num), (1, 17));
    }

    #[test]
    fn depths_are_those_that_both_have() {
        let (ours, theirs) =
            (Depths { responder: 16, initiator: 16 }, Depths { responder: 128, initiator: 0 });
        assert_eq!(ours.at_most(theirs), Depths { responder: 16, initiator: 0 });
    }
}
