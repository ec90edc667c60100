//! A call, and how it is made.

use crate::{OwnedCall, Resend};

/// A call, what becomes of it when its connection is lost, and what its results are.
#[derive(Debug, Default)]
pub struct Request {
    pub(crate) call: OwnedCall,
    pub(crate) resend: Resend,
    pub(crate) keeps_loans: bool,
}

impl Request {
    /// What becomes of the call when its connection is lost; [`Resend::Never`] by default.
    #[must_use]
    pub fn resend(mut self, resend: Resend) -> Request {
        self.resend = resend;
        self
    }

    /// The data items of the reply stay in the memory that they have arrived in, as loans. Without
    /// this they are copied. A piece that cannot be taken out is copied in any case.
    #[must_use]
    pub fn keep_loans(mut self) -> Request {
        self.keeps_loans = true;
        self
    }

    /// When it ends at the latest; `u64::MAX` if it has no deadline.
    pub(crate) fn until(&self) -> u64 {
        self.call.deadline_at().unwrap_or(u64::MAX)
    }
}

impl From<OwnedCall> for Request {
    fn from(call: OwnedCall) -> Request {
        Request { call, ..Request::default() }
    }
}
