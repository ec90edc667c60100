//! The identities of calls, by which they are cancelled.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;

use ::rpcrdma::{CallHandle, SessionCallId};

use crate::failure::invalid;

/// Identifies a call that was made, to cancel it. Its content is the library's. All zero for none.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_call_id {
    /// The library's: a name of the engine, and the tag behind it.
    pub words: [MaybeUninit<u64>; 4],
}

/// Words of a name; the tag is behind them.
const NAME_WORDS: usize = 3;

const _: () = assert!(size_of::<CallHandle>() <= NAME_WORDS * size_of::<u64>());
const _: () = assert!(align_of::<CallHandle>() <= align_of::<rpcrdma_call_id>());
const _: () = assert!(size_of::<SessionCallId>() <= NAME_WORDS * size_of::<u64>());
const _: () = assert!(align_of::<SessionCallId>() <= align_of::<rpcrdma_call_id>());

impl rpcrdma_call_id {
    /// A name of the engine, of a call of the shard with this number, for the program.
    pub(crate) fn of<T: Copy + Name>(name: T, shard: u32) -> rpcrdma_call_id {
        let mut id = rpcrdma_call_id { words: [MaybeUninit::new(0); NAME_WORDS + 1] };
        // SAFETY: the words have the size and the alignment of both names, as is asserted above.
        unsafe { ptr::from_mut(&mut id.words).cast::<T>().write(name) };
        id.words[NAME_WORDS] = MaybeUninit::new(tag::<T>(shard));
        id
    }

    /// The name, for the shard with this number.
    ///
    /// # Errors
    /// The id is of another client, session or shard, or of none.
    pub(crate) fn name<T: Copy + Name>(&self, shard: u32) -> Result<T, c_int> {
        // SAFETY: `of` has written it, or the program has.
        if unsafe { self.words[NAME_WORDS].assume_init() } != tag::<T>(shard) {
            return Err(invalid("call: not an id of this client, session or shard"));
        }
        // SAFETY: as in `of`. Both names are made of numbers, of which any are valid; the program
        // passes what `of` has made, or bytes that it has written itself.
        Ok(unsafe { ptr::from_ref(&self.words).cast::<T>().read() })
    }
}

/// What distinguishes the ids of a client, session or shard from all others, and from zero.
fn tag<T: Name>(shard: u32) -> u64 {
    u64::from(T::KIND) << 32 | u64::from(shard)
}

/// Names that consist of numbers only.
pub(crate) trait Name {
    /// The kind of name; not 0.
    const KIND: u32;
}

impl Name for CallHandle {
    const KIND: u32 = 1;
}

impl Name for SessionCallId {
    const KIND: u32 = 2;
}
