//! Fake libraries without a device: their functions record the calls, and fail on request.
//!
//! Everything that they make leads back to its device, a [`Fake`], so tests do not see each other's calls.
//! The feature `fake` has them in a program that counts what this crate executes itself.
#![expect(unsafe_code, reason = "a structure of a foreign library begins as zeros")]

mod cm;
mod data;
mod device;
mod pointers;
mod state;
mod wire;

use std::ffi::c_int;

pub(crate) use self::device::VERBS;
pub use self::state::Fake;
use self::state::event_fd;
use crate::device::Libraries;
use crate::sys::verbs::{IBV_TRANSPORT_IWARP, ibv_context};
use crate::{Verbs, VerbsOptions};

impl Fake {
    /// A device, which is that of this thread from now on. What is posted completes when a test
    /// says so, and no peer answers.
    pub fn new() -> &'static Fake {
        Fake::of(0)
    }

    /// As [`Fake::wired`], for an iWARP device with no more than software iWARP has: no windows,
    /// no inline data, one scatter entry for a Read. Its queue pairs are moved by the connection
    /// manager alone.
    pub fn wired_iwarp() -> &'static Fake {
        let fake = Fake::of(IBV_TRANSPORT_IWARP);
        fake.state().wire.is_there = true;
        fake
    }

    fn of(transport_type: c_int) -> &'static Fake {
        // SAFETY: all members are integers, pointers and functions that may be absent, for which
        // zeros are values.
        let mut context: Box<ibv_context> = Box::new(unsafe { std::mem::zeroed() });
        context.num_comp_vectors = 1;
        context.async_fd = event_fd();
        data::fill(&mut context.ops);
        Fake::leaked(context, transport_type)
    }

    /// A device whose listener receives all requests to connect, at any address, and whose connected
    /// queue pairs deliver what they send.
    pub fn wired() -> &'static Fake {
        let fake = Fake::new();
        fake.state().wire.is_there = true;
        fake
    }

    /// The device, opened.
    ///
    /// # Errors
    /// If a call of the libraries was to fail.
    pub fn open(&self) -> Result<Verbs, rpcrdma_provider::SetupError> {
        self.open_with(&VerbsOptions {
            device: Some("fake0".to_owned()),
            ..VerbsOptions::default()
        })
    }

    /// The device that the options choose, opened.
    pub(crate) fn open_with(
        &self,
        options: &VerbsOptions,
    ) -> Result<Verbs, rpcrdma_provider::SetupError> {
        Verbs::with_libraries(self.libraries(), options)
    }

    /// The fake libraries, which all fake devices share.
    pub(crate) fn libraries(&self) -> Libraries {
        Libraries { verbs: &VERBS, cm: &cm::CM }
    }

    /// The device, opened, with a fast path of functions that callgrind finds by their names.
    ///
    /// # Errors
    /// As for [`Fake::open`].
    pub fn open_named(&self) -> Result<Verbs, rpcrdma_provider::SetupError> {
        data::name(&mut self.context().ops);
        let opened = self.open();
        data::fill(&mut self.context().ops);
        opened
    }
}
