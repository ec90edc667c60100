//! The identities of calls, by which they are cancelled.

use core::mem::MaybeUninit;
use core::ptr;

use ::rpcrdma_engine::{CallHandle, SessionCallId};

/// Identifies a call that was made, to cancel it. Its content is the library's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_call_id {
    /// The library's.
    pub words: [MaybeUninit<u64>; 4],
}

const _: () = assert!(size_of::<CallHandle>() <= size_of::<rpcrdma_call_id>());
const _: () = assert!(align_of::<CallHandle>() <= align_of::<rpcrdma_call_id>());
const _: () = assert!(size_of::<SessionCallId>() <= size_of::<rpcrdma_call_id>());
const _: () = assert!(align_of::<SessionCallId>() <= align_of::<rpcrdma_call_id>());

impl rpcrdma_call_id {
    /// A name of the engine, for the program.
    pub(crate) fn of<T: Copy + Name>(name: T) -> rpcrdma_call_id {
        let mut id = rpcrdma_call_id { words: [MaybeUninit::new(0); 4] };
        // SAFETY: the words have the size and the alignment of both names, as is asserted above.
        unsafe { ptr::from_mut(&mut id.words).cast::<T>().write(name) };
        id
    }

    /// The name; one that the program made up names no call.
    pub(crate) fn name<T: Copy + Name>(&self) -> T {
        // SAFETY: as in `of`. Both names are made of numbers, of which any are valid; the program
        // passes what `of` has made, or bytes that it has written itself.
        unsafe { ptr::from_ref(&self.words).cast::<T>().read() }
    }
}

/// Names that consist of numbers only.
pub(crate) trait Name {}

impl Name for CallHandle {}
impl Name for SessionCallId {}
