//! What the program polls: one use at a time, and at most one call under construction.

use core::cell::{Cell, UnsafeCell};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;

use ::rpcrdma_engine::Armed;

use crate::arguments::{OK, caught, taken_back};
use crate::call::{Lender, rpcrdma_call, under_construction};
use crate::failure::invalid;
use crate::turn::rpcrdma_turn;

/// A client, session or shard, with its call under construction and its turn.
///
/// The call borrows from the object. Nothing else uses the object meanwhile: `free` refuses.
pub(crate) struct Polled<T> {
    // Dropped before what it borrows from.
    call: UnsafeCell<rpcrdma_call>,
    turn: UnsafeCell<rpcrdma_turn>,
    /// A callback of the object runs.
    is_busy: Cell<bool>,
    object: UnsafeCell<T>,
}

#[expect(clippy::mut_from_ref, reason = "one use at a time: `is_busy`, and the header")]
impl<T> Polled<T> {
    pub fn new(object: T) -> Polled<T> {
        Polled {
            call: UnsafeCell::new(rpcrdma_call::nothing()),
            turn: UnsafeCell::new(rpcrdma_turn::nothing()),
            is_busy: Cell::new(false),
            object: UnsafeCell::new(object),
        }
    }

    /// The object, and the place of its call, which is discarded.
    #[inline(always)]
    pub fn beginning(&self) -> Result<(&mut T, &mut rpcrdma_call), c_int> {
        if self.is_busy.get() {
            return Err(inside());
        }
        // SAFETY: one thread at a time uses this, and no callback of it runs: no other reference
        // exists, because every function gives its own up when it returns.
        let call = unsafe { &mut *self.call.get() };
        call.clear();
        // SAFETY: as above; the call that borrowed from it is discarded.
        Ok((unsafe { &mut *self.object.get() }, call))
    }

    /// The object, if no call is under construction.
    #[inline(always)]
    pub fn free(&self) -> Result<&mut T, c_int> {
        if self.is_busy.get() {
            return Err(inside());
        }
        // SAFETY: as in `beginning`.
        if unsafe { &*self.call.get() }.is_open() {
            return Err(under_construction());
        }
        // SAFETY: as in `beginning`; no call borrows from it.
        Ok(unsafe { &mut *self.object.get() })
    }

    /// Uses the object while its callbacks run: they cannot use it.
    #[inline(always)]
    pub fn polling<R>(&self, act: impl FnOnce(&mut T) -> R) -> Result<R, c_int> {
        let object = self.free()?;
        let busy = Busy::new(&self.is_busy);
        let result = act(object);
        drop(busy);
        Ok(result)
    }

    /// The object, for a call of it that was refused and borrows nothing.
    pub fn with_kept_call(&self) -> Result<&mut T, c_int> {
        if self.is_busy.get() {
            return Err(inside());
        }
        // SAFETY: as in `beginning`; the only call of the object is the caller's.
        Ok(unsafe { &mut *self.object.get() })
    }

    /// Lends turns at this time, until it lends others. NULL if the object is in use.
    pub fn lend(&self, now: u64, lender: Lender) -> *mut rpcrdma_turn {
        if self.free().is_err() {
            return ptr::null_mut();
        }
        // SAFETY: as in `beginning`.
        let turn = unsafe { &mut *self.turn.get() };
        turn.lend(lender, now);
        turn
    }

    /// The place of its call, before the first.
    pub fn call(&mut self) -> &mut rpcrdma_call {
        self.call.get_mut()
    }

    /// The object, without the rest.
    pub fn into_object(self) -> T {
        self.object.into_inner()
    }
}

/// Frees an object that the program was given, unless a callback of it runs.
///
/// # Safety
/// `object` is NULL or from [`give`](crate::arguments::give), and the program does not use it any
/// more, but perhaps in the callbacks of its end.
pub(crate) unsafe fn free<O, T>(object: *mut O, polled: impl FnOnce(&O) -> &Polled<T>) {
    // SAFETY: the caller guarantees it.
    let Some(polled) = unsafe { object.as_ref() }.map(polled) else { return };
    // Those callbacks cannot use it, or free it again.
    if polled.is_busy.replace(true) {
        inside();
        return;
    }
    // SAFETY: as above.
    let object = unsafe { taken_back(object) };
    caught(|| {
        drop(object);
        OK
    });
}

/// What the program may do after it has armed an object: 0 to poll, 1 to sleep at most `most_ns`.
pub(crate) fn armed(armed: Armed, most_ns: &mut MaybeUninit<u64>) -> c_int {
    match armed {
        Armed::Ready => 0,
        Armed::AtMost(most) => {
            most_ns.write(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX));
            1
        }
    }
}

/// While a callback runs.
struct Busy<'a>(&'a Cell<bool>);

impl<'a> Busy<'a> {
    fn new(flag: &'a Cell<bool>) -> Busy<'a> {
        flag.set(true);
        Busy(flag)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[cold]
fn inside() -> c_int {
    invalid("the object is used inside its own callback")
}
