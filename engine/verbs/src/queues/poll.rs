//! Polling: converts completions of the device, in batches.
#![expect(unsafe_code, reason = "the driver fills in completions")]

use std::mem::MaybeUninit;

use rpcrdma_provider::{CqError, WC_BATCH, WcBatch, WorkCompletion};

use super::VerbsQueues;
use super::control::filtered;
use crate::port::Pending;
use crate::sys::verbs as sys;
use crate::wc;

impl VerbsQueues {
    /// Appends at most the free capacity of `out`.
    #[inline]
    pub(super) fn poll(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        if !self.ready.is_empty() {
            self.report_ready(out);
        }
        let count = self.poll_device(out.remaining_capacity())?;
        if count == 0 {
            return Ok(());
        }
        // A queue pair is in the list before it can complete anything: an unattached one is seen
        // here.
        if self.port.pending().intersects(SORTED) {
            self.sort(count, out);
            return Ok(());
        }
        let (len, invalidated) = (out.len(), self.invalidated);
        let mut place = out.as_mut_ptr().wrapping_add(len).cast::<MaybeUninit<WorkCompletion>>();
        for wc in &self.polled[..count] {
            // SAFETY: `count` is at most the free capacity, in which this place is.
            let done = unsafe { &mut *place };
            match wc::plain_receive(wc, invalidated) {
                Some(plain) => done.write(plain),
                None => done.write(other(wc, invalidated)),
            };
            place = place.wrapping_add(1);
        }
        // SAFETY: so many were just written.
        unsafe { out.set_len(len + count) };
        Ok(())
    }

    /// Takes up to `room` completions from the device into `polled`. Returns their number.
    #[inline]
    pub(super) fn poll_device(&mut self, room: usize) -> Result<usize, CqError> {
        let room = room.min(WC_BATCH);
        if room == 0 {
            return Ok(0);
        }
        // For a failed completion a driver writes only the valid fields. The rest of its entry is
        // stale, and is not read.
        let first = self.polled.as_mut_ptr();
        // SAFETY: the queue is alive, this thread is the only one that polls it, and there is room
        // for so many completions.
        let count = unsafe { (self.ops.poll_cq)(self.cq, room as i32, first) };
        match usize::try_from(count) {
            Ok(count) => Ok(count.min(room)),
            Err(_) => Err(CqError::Device(count.saturating_neg())),
        }
    }

    /// Reports completions that were already taken from the device.
    #[cold]
    fn report_ready(&mut self, out: &mut WcBatch) {
        let is_sorted = self.port.pending().intersects(SORTED);
        while !out.is_full()
            && let Some(done) = self.ready.pop_front()
        {
            match is_sorted {
                true => self.place(done, out),
                false => out.push(wc::reported(done)),
            }
        }
    }

    /// Reports completions, except those of unattached queue pairs.
    #[cold]
    fn sort(&mut self, count: usize, out: &mut WcBatch) {
        for at in 0..count {
            let done = wc::completion(&self.polled[at], self.invalidated);
            self.place(done, out);
        }
    }

    /// Reports a completion, or holds it until its queue pair is attached, or filters it if its
    /// queue pair is dying.
    fn place(&mut self, done: WorkCompletion, out: &mut WcBatch) {
        if self.is_attached(&done) {
            out.push(wc::reported(done));
        } else if self.is_dying(&done) {
            out.extend(filtered(done, done.qp_num).map(wc::reported));
        } else {
            self.held.push_back(done);
        }
    }

    /// Whether the program knows a completion's queue pair. Number 0 means no queue pair: a Receive
    /// that was taken by a dead one.
    fn is_attached(&self, done: &WorkCompletion) -> bool {
        done.qp_num == 0 || self.attached.binary_search(&done.qp_num).is_ok()
    }
}

/// The completion of anything but a plain message.
#[inline(never)]
fn other(wc: &sys::ibv_wc, invalidated: u32) -> WorkCompletion {
    wc::reported(wc::completion(wc, invalidated))
}

/// Some queue pairs' completions need more than a report.
const SORTED: Pending = Pending::UNATTACHED.union(Pending::DYING);
