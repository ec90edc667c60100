//! The port: the part of a set of queues that other threads access, and its queue pair numbers.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

use rpcrdma_provider::{SetupError, shortly_before_end};
use rpcrdma_transport::qp::{NUMBER_BITS, index_bits};

use crate::doze::Doze;

/// The shared side of a set of queues.
pub(crate) struct Port {
    /// Unique in the fabric.
    pub id: u64,
    /// Where its thread sleeps.
    pub doze: Doze,
    qp_max: u32,
    numbers: Mutex<Numbers>,
}

/// Numbers of queue pairs: index in the low bits, generation above, 24 bits together.
struct Numbers {
    index_bits: u32,
    /// The last number of each index; the oldest is reused first.
    vacant: VecDeque<u32>,
}

impl Port {
    pub(crate) fn new(id: u64, qp_max: u32) -> io::Result<Port> {
        let index_bits = index_bits(qp_max);
        let before = shortly_before_end(NUMBER_BITS - index_bits, 2) << index_bits;
        let numbers = Numbers { index_bits, vacant: (0..qp_max).map(|at| before | at).collect() };
        Ok(Port { id, doze: Doze::new()?, qp_max, numbers: Mutex::new(numbers) })
    }

    /// Takes a number that is not in use.
    pub(crate) fn reserve(&self, device: &str) -> Result<u32, SetupError> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = numbers.vacant.pop_front() else {
            return Err(SetupError::Limit {
                what: "queue pairs of one shard",
                needed: u64::from(self.qp_max) + 1,
                limit: self.qp_max.into(),
                device: device.to_owned(),
            });
        };
        Ok(numbers.following(last))
    }

    /// Numbers that are taken.
    pub(crate) fn taken(&self) -> usize {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        self.qp_max as usize - numbers.vacant.len()
    }

    /// Gives a number back.
    pub(crate) fn give_back(&self, number: u32) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.vacant.push_back(number);
    }
}

impl Numbers {
    /// The same index in the next generation. Generation 0 is never used, as real devices never
    /// assign the numbers 0 and 1.
    fn following(&self, number: u32) -> u32 {
        let index = number & ((1 << self.index_bits) - 1);
        let generations = 1 << (NUMBER_BITS - self.index_bits);
        let generation = ((number >> self.index_bits) + 1) % generations;
        generation.max(1) << self.index_bits | index
    }
}
