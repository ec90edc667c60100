//! Loans: registered memory that the program owns.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use ::rpcrdma::{Bulk, Loan, RegisteredBytes};
use rpcrdma_mempool::RawLoan;

use crate::arguments::{give, given, taken_back};
use crate::failure::invalid;

/// Registered memory with one owner: a buffer, or a segment that was taken out of a message.
///
/// The program reads and writes `data`, and may lower `len`; the other fields are the library's.
/// Copying the structure moves the loan: only one copy may be used. A function that takes it sets
/// `data` to NULL. It ends by being placed, given as a sink, released or freed.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_loan {
    /// The bytes; NULL for none.
    pub data: *mut u8,
    /// Its pool.
    pub owner: *mut c_void,
    /// How many bytes there are.
    pub len: u32,
    /// Its place in the pool.
    pub slot: u32,
}

/// Constant registered bytes that are sent repeatedly and stay in place.
pub struct rpcrdma_bytes(pub(crate) RegisteredBytes);

/// Bytes that belong to someone else.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_slice {
    /// The first byte; NULL if there are none.
    pub data: *const u8,
    /// How many there are.
    pub len: usize,
}

impl rpcrdma_loan {
    /// The loan, for the program.
    #[inline]
    pub(crate) fn of(loan: Loan) -> rpcrdma_loan {
        let RawLoan { bytes, owner, len, slot } = loan.into_raw();
        rpcrdma_loan { data: bytes.as_ptr(), owner: owner.as_ptr(), len, slot }
    }

    /// Takes the loan from the program; `None` if it was given away.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Loan> {
        let rpcrdma_loan { data, owner, len, slot } = *self;
        let bytes = NonNull::new(data)?;
        let owner = NonNull::new(owner)?;
        self.data = ptr::null_mut();
        // SAFETY: `data` is not NULL, so `of` has filled this, and no function has taken it since.
        // The program owns one copy, and has changed nothing but `len`, which it may lower.
        Some(unsafe { Loan::from_raw(RawLoan { bytes, owner, len, slot }) })
    }
}

impl rpcrdma_slice {
    /// No bytes.
    pub(crate) const NONE: rpcrdma_slice = rpcrdma_slice { data: ptr::null(), len: 0 };

    /// These bytes, for the program.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> rpcrdma_slice {
        rpcrdma_slice { data: bytes.as_ptr(), len: bytes.len() }
    }
}

/// The loan of placed memory; `None` for constant bytes.
pub(crate) fn loan_of(bulk: Bulk) -> Option<Loan> {
    match bulk {
        Bulk::Loan(loan) => Some(loan),
        Bulk::Registered(_) => None,
    }
}

/// Writes pieces for the program, as many as there is room for; the others return to their pools.
pub(crate) fn write_loans(
    loans: impl Iterator<Item = Loan>,
    places: &mut [MaybeUninit<rpcrdma_loan>],
) -> usize {
    // The places come first, so that no piece is taken without a place.
    places.iter_mut().zip(loans).map(|(place, loan)| place.write(rpcrdma_loan::of(loan))).count()
}

/// Returns a loan to its pool. `rpcrdma_release` costs less on the pool's own thread. A loan
/// whose `data` is NULL is ignored. A loan may outlive its shard and engine.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_loan_free(loan: Option<&mut rpcrdma_loan>) {
    if let Some(loan) = loan {
        drop(loan.take());
    }
}

/// Makes the bytes of a loan constant, to be sent repeatedly. Takes the loan.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_bytes_new(
    loan: Option<&mut rpcrdma_loan>,
    bytes: Option<&mut MaybeUninit<*mut rpcrdma_bytes>>,
) -> c_int {
    given!(loan, bytes);
    let Some(loan) = loan.take() else { return invalid("loan") };
    give(bytes, rpcrdma_bytes(RegisteredBytes::new(loan)))
}

/// One more owner of the same bytes; NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_bytes_clone(bytes: Option<&rpcrdma_bytes>) -> *mut rpcrdma_bytes {
    bytes.map_or(ptr::null_mut(), |bytes| Box::into_raw(Box::new(rpcrdma_bytes(bytes.0.clone()))))
}

/// The bytes, to read.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_bytes_slice(bytes: Option<&rpcrdma_bytes>) -> rpcrdma_slice {
    bytes.map_or(rpcrdma_slice::NONE, |bytes| rpcrdma_slice::of(&bytes.0))
}

/// Ends one owner. The memory returns to its pool after the last, and after every message that
/// sends it has left. NULL is ignored.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_bytes_free(bytes: *mut rpcrdma_bytes) {
    // SAFETY: the program had it from `rpcrdma_bytes_new` or `rpcrdma_bytes_clone`.
    drop(unsafe { taken_back(bytes) });
}
