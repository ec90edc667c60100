//! A completion queue that is there to be in the way.
//!
//! siw gives each queue that a program maps a place among the mappings of its context, the lowest
//! that is free. libsiw takes one of these places for "none" (`SIW_INVAL_UOBJ_KEY` of siw-abi.h):
//! the queue that is given it cannot be made, nor can any after it, because the place stays free. A
//! queue of nobody's which begins before that place and ends behind it is made first.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::ptr;

use rpcrdma_provider::SetupError;

use crate::error;
use crate::sys::verbs as sys;

/// The queue; it lives as long as the context.
pub(super) struct Filler {
    lib: &'static sys::Verbs,
    cq: *mut sys::ibv_cq,
}

impl Filler {
    pub fn make(
        lib: &'static sys::Verbs,
        context: *mut sys::ibv_context,
    ) -> Result<Filler, SetupError> {
        // SAFETY: the context is open; a completion queue without a channel has the first vector.
        let cq = error::made("ibv_create_cq", || unsafe {
            (lib.ibv_create_cq)(context, ENTRIES, ptr::null_mut(), ptr::null_mut(), 0)
        })?;
        Ok(Filler { lib, cq })
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        // SAFETY: the queue is alive, and nothing completes to it.
        let _ = unsafe { (self.lib.ibv_destroy_cq)(self.cq) };
    }
}

/// The place, in bytes from the first.
const PLACE: i32 = 0x9_0000;
/// Bytes of an entry of a completion queue of siw.
const ENTRY_LEN: i32 = 32;
/// So many that a queue which begins anywhere before the place ends behind it.
const ENTRIES: i32 = PLACE / ENTRY_LEN;
