//! The port: what others may know of a set of queues, and the numbers of its queue pairs.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::doze::Doze;
use rpcrdma_provider::SetupError;
use rpcrdma_provider::shortly_before_end;

/// The shared side of a set of queues.
pub(super) struct Port {
    /// Unlike that of every other port of the fabric.
    pub id: u64,
    /// Where its thread sleeps.
    pub doze: Doze,
    qp_max: u32,
    numbers: Mutex<Numbers>,
}

/// Numbers of queue pairs: index in the low bits, generation above, 24 bits together.
struct Numbers {
    index_bits: u32,
    /// The number that each index had last, oldest first to be used again.
    vacant: VecDeque<u32>,
}

impl Port {
    pub(super) fn new(id: u64, qp_max: u32) -> io::Result<Port> {
        let index_bits = index_bits(qp_max);
        let before = shortly_before_end(NUMBER_BITS - index_bits, 2) << index_bits;
        let numbers = Numbers { index_bits, vacant: (0..qp_max).map(|at| before | at).collect() };
        Ok(Port { id, doze: Doze::new()?, qp_max, numbers: Mutex::new(numbers) })
    }

    /// Takes a number that nothing names any more.
    pub(super) fn reserve(&self, device: &str) -> Result<u32, SetupError> {
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
    pub(super) fn taken(&self) -> usize {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        self.qp_max as usize - numbers.vacant.len()
    }

    /// Gives a number back.
    pub(super) fn give_back(&self, number: u32) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.vacant.push_back(number);
    }
}

impl Numbers {
    /// The same index in the next generation; generation 0 is never used, as real devices never
    /// give out the numbers 0 and 1.
    fn following(&self, number: u32) -> u32 {
        let index = number & ((1 << self.index_bits) - 1);
        let generations = 1 << (NUMBER_BITS - self.index_bits);
        let generation = ((number >> self.index_bits) + 1) % generations;
        generation.max(1) << self.index_bits | index
    }
}

/// How many low bits of a number are its index.
pub(super) fn index_bits(qp_max: u32) -> u32 {
    qp_max.max(2).next_power_of_two().trailing_zeros()
}

/// What both sides of a connection know of each other before a message passes.
///
/// The side that accepted may post at once, but the other may not have attached its queue pair
/// yet: as with the ready-to-use message of a real connection manager, its requests wait until the
/// other side has.
pub(super) struct Conn {
    sides: [AtomicU32; 2],
}

/// How far one side of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Progress {
    /// Its endpoint is on its way.
    Made = 0,
    /// Its queue pair can receive.
    Attached = 1,
    /// It was attached and is gone; what it sent before is in the ring.
    Left = 2,
    /// It is gone and never was attached.
    Dropped = 3,
}

impl Conn {
    pub(super) fn new() -> Arc<Conn> {
        Arc::new(Conn { sides: [const { AtomicU32::new(Progress::Made as u32) }; 2] })
    }

    pub(super) fn progress(&self, side: usize) -> Progress {
        match self.sides[side].load(Ordering::Acquire) {
            0 => Progress::Made,
            1 => Progress::Attached,
            2 => Progress::Left,
            _ => Progress::Dropped,
        }
    }

    pub(super) fn set(&self, side: usize, progress: Progress) {
        self.sides[side].store(progress as u32, Ordering::Release);
    }
}

/// As real devices have it: a queue pair number is 24 bits wide.
const NUMBER_BITS: u32 = 24;
/// At least 256 generations are left above the index.
pub(super) const QP_MAX: u32 = 1 << 16;
