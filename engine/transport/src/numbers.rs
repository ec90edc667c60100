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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_in_its_next_generation_and_none_is_of_generation_zero() {
        // One bit of index: 23 bits of generation.
        let numbers = Numbers::new(2);
        let last = (1 << 23) - 1;
        let mut taken = Vec::new();
        for generation in [last, 1, 2, 3] {
            for index in 0..2 {
                let number = numbers.reserve("device").expect("two");
                assert_eq!((number >> 1, number & 1), (generation, index));
                taken.push(number);
            }
            assert_eq!(numbers.taken(), 2);
            let full = numbers.reserve("device").expect_err("two at one time").to_string();
            assert!(["3", "2", "device"].iter().all(|part| full.contains(part)), "{full}");
            taken.drain(..).for_each(|number| numbers.give_back(number));
            assert_eq!(numbers.taken(), 0);
        }
    }

    #[test]
    fn the_oldest_vacant_number_is_used_first() {
        let numbers = Numbers::new(3);
        let first: Vec<u32> = (0..3).map(|_| numbers.reserve("device").expect("three")).collect();
        for at in [1, 0] {
            numbers.give_back(first[at]);
        }
        assert_eq!(numbers.taken(), 1);
        let next = [(); 2].map(|()| numbers.reserve("device").expect("two came back") & 3);
        assert_eq!(next, [1, 0]);
    }
}
