//! Polling: completions of the device become ours, in batches.
#![expect(unsafe_code, reason = "the driver fills in completions")]

use std::mem::MaybeUninit;

use rpcrdma_engine::provider::{CqError, WC_BATCH, WcBatch, WorkCompletion};

use super::VerbsQueues;
use crate::port::Chores;
use crate::sys::verbs as sys;
use crate::wc;

impl VerbsQueues {
    /// Appends at most the free capacity of `out`.
    #[inline]
    pub(super) fn poll(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        if !self.ready.is_empty() {
            self.report_ready(out);
        }
        let mut space = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; WC_BATCH];
        let found = self.poll_device(&mut space, out.remaining_capacity())?;
        if found.is_empty() {
            return Ok(());
        }
        // Whatever has completed something here was made before: if it is not attached, it is seen.
        if self.port.chores().contains(Chores::UNATTACHED) {
            self.sort(found, out);
            return Ok(());
        }
        for wc in found {
            out.push(wc::reported(wc::completion(wc, self.invalidated)));
        }
        Ok(())
    }

    /// The next completions of the device, at most `room`.
    #[inline]
    pub(super) fn poll_device<'a>(
        &mut self,
        space: &'a mut [MaybeUninit<sys::ibv_wc>; WC_BATCH],
        room: usize,
    ) -> Result<&'a [sys::ibv_wc], CqError> {
        let room = room.min(WC_BATCH);
        if room == 0 {
            return Ok(&[]);
        }
        let first = space.as_mut_ptr().cast::<sys::ibv_wc>();
        // SAFETY: the queue is alive, this thread is the only one that polls it, and there is room
        // for so many completions.
        let count = unsafe { (self.ops.poll_cq)(self.cq, room as i32, first) };
        if count < 0 {
            return Err(CqError::Device(count.saturating_neg()));
        }
        // SAFETY: the driver has filled in so many, from the first; it was given room for no more.
        Ok(unsafe { std::slice::from_raw_parts(first, room.min(count as usize)) })
    }

    /// Reports what was taken from the device before.
    #[cold]
    fn report_ready(&mut self, out: &mut WcBatch) {
        let has_unattached = self.port.chores().contains(Chores::UNATTACHED);
        while !out.is_full()
            && let Some(done) = self.ready.pop_front()
        {
            if has_unattached && !self.is_attached(&done) {
                self.held.push_back(done);
            } else {
                out.push(wc::reported(done));
            }
        }
    }

    /// Reports completions, but for those of queue pairs that are not attached: they are held.
    #[cold]
    fn sort(&mut self, found: &[sys::ibv_wc], out: &mut WcBatch) {
        for wc in found {
            let done = wc::completion(wc, self.invalidated);
            if self.is_attached(&done) {
                out.push(wc::reported(done));
            } else {
                self.held.push_back(done);
            }
        }
    }

    /// Whether a completion is one that the program knows the queue pair of. The number 0 is of no
    /// queue pair: a Receive that a dead one has taken along.
    fn is_attached(&self, done: &WorkCompletion) -> bool {
        done.qp_num == 0 || self.attached.binary_search(&done.qp_num).is_ok()
    }
}
