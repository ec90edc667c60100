//! Sessions: calls to a service whose connections come and go.
//!
//! ```text
//!   Session::call ─▶ submit ─▶ the connection with most credits ─▶ completion
//!                      │  no connection, no credit      │ lost
//!                      └──▶ waits, in order ◀───────────┘ Resend::SameXid
//! ```
//! A session does not know what a call does: [`Resend`] says whether it may be sent twice.

mod api;
mod backoff;
mod calls;
mod ending;
mod events;
mod handler;
mod lines;
mod outage;
mod outcome;
mod sending;
mod sleep;
mod state;
mod writing;

pub use api::{Session, SessionOptions};
pub use calls::{Resend, SessionCallId};
pub use events::SessionEvent;
pub use outage::Outage;
pub use outcome::{SessionCompletion, SessionError};
pub use writing::{SessionCall, SessionRefused, SessionUnsent};
