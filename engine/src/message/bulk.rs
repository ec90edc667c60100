//! Memory that bulk data is gathered from without a copy.

use core::ops::Deref;

use rpcrdma_mempool::{Loan, RegisteredBytes, RegisteredSlice, Sge};

/// Contiguous pieces of bulk of one message.
pub const PIECES_MAX: usize = 24;
/// Bulk items of one message.
pub const ITEMS_MAX: usize = 8;

/// Registered memory that a message gathers bulk from, without a copy.
#[derive(Debug)]
pub enum Bulk {
    /// Memory of the program; it returns to its pool when the message has left.
    Loan(Loan),
    /// A part of permanent bytes that are sent repeatedly and stay in place.
    Registered(RegisteredSlice),
}

impl Bulk {
    /// Makes a loan constant, so that it stays when a message with it has left. Allocates.
    pub(crate) fn share(self) -> Bulk {
        match self {
            Bulk::Loan(loan) => {
                let len = loan.len();
                let all = RegisteredBytes::new(loan).slice(0..len);
                Bulk::Registered(all.expect("all of it is inside"))
            }
            Bulk::Registered(_) => self,
        }
    }

    /// The same constant bytes once more. `None` for a loan, which has one owner.
    pub(crate) fn again(&self) -> Option<Bulk> {
        match self {
            Bulk::Loan(_) => None,
            Bulk::Registered(slice) => Some(Bulk::Registered(slice.clone())),
        }
    }

    #[inline]
    pub(crate) fn sge(&self, start: u32, len: u32) -> Sge {
        let range = start as usize..(start + len) as usize;
        match self {
            Bulk::Loan(loan) => loan.sge(range),
            Bulk::Registered(slice) => slice.sge(range),
        }
    }
}

impl Deref for Bulk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bulk::Loan(loan) => loan,
            Bulk::Registered(slice) => slice,
        }
    }
}

impl From<Loan> for Bulk {
    fn from(loan: Loan) -> Bulk {
        Bulk::Loan(loan)
    }
}

impl From<RegisteredSlice> for Bulk {
    fn from(bytes: RegisteredSlice) -> Bulk {
        Bulk::Registered(bytes)
    }
}
