//! The numbers of the queue pairs of one set of queues, for connection managers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rpcrdma_provider::{SetupError, shortly_before_end};

use crate::qp::{NUMBER_BITS, index_bits};

/// Numbers of queue pairs: index in the low bits, generation above, 24 bits together.
pub struct Numbers {
    qp_max: u32,
    index_bits: u32,
    /// The last number of each index that is not taken; the oldest is reused first.
    vacant: Mutex<VecDeque<u32>>,
}

impl Numbers {
    /// Numbers for at most `qp_max` queue pairs at one time.
    pub fn new(qp_max: u32) -> Numbers {
        let index_bits = index_bits(qp_max);
        let before = shortly_before_end(NUMBER_BITS - index_bits, 2) << index_bits;
        let vacant = Mutex::new((0..qp_max).map(|at| before | at).collect());
        Numbers { qp_max, index_bits, vacant }
    }

    /// Takes a number that is not in use. `device` is named by the error.
    pub(crate) fn reserve(&self, device: &str) -> Result<u32, SetupError> {
        let Some(last) = self.lock().pop_front() else {
            return Err(SetupError::Limit {
                what: "queue pairs of one shard",
                needed: u64::from(self.qp_max) + 1,
                limit: self.qp_max.into(),
                device: device.to_owned(),
            });
        };
        Ok(self.following(last))
    }

    /// Numbers that are taken.
    pub fn taken(&self) -> usize {
        self.qp_max as usize - self.lock().len()
    }

    /// Gives a number back.
    pub(crate) fn give_back(&self, number: u32) {
        self.lock().push_back(number);
    }

    /// The same index in the next generation. Generation 0 is never used, as real devices never
    /// assign the numbers 0 and 1.
    fn following(&self, number: u32) -> u32 {
        let index = number & ((1 << self.index_bits) - 1);
        let generations = 1 << (NUMBER_BITS - self.index_bits);
        let generation = ((number >> self.index_bits) + 1) % generations;
        generation.max(1) << self.index_bits | index
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.vacant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
