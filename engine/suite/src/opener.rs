//! The environment of a test: the device, its address, and its clock.
//!
//! ```text
//!   software fabric   a step is a microsecond, and a wait is a number of steps
//!   a device          packets take their own time: a wait is a time by the clock
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use rpcrdma::{Address, Provider};

/// Opens the device of a test, once for each engine.
pub type Open<'a, P> = &'a dyn Opener<P>;

/// Opens a device. A closure that makes a software fabric implements it.
pub trait Opener<P: Provider>: Sync {
    /// Opens the device.
    fn open(&self) -> P;

    /// The address that servers listen on; port 0 selects a free port.
    fn at(&self) -> Address {
        SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0).into()
    }

    /// The clock of a world on this device, started now.
    fn time(&self) -> Time {
        Time::Steps
    }
}

impl<P: Provider, F: Fn() -> P + Sync> Opener<P> for F {
    fn open(&self) -> P {
        self()
    }
}

/// A device outside of this process.
#[derive(Debug, Clone)]
pub struct OnDevice<P> {
    /// The device.
    pub device: P,
    /// The address that servers listen on.
    pub address: Address,
}

impl<P: Provider + Clone> Opener<P> for OnDevice<P> {
    fn open(&self) -> P {
        self.device.clone()
    }

    fn at(&self) -> Address {
        self.address
    }

    fn time(&self) -> Time {
        Time::Clock(Instant::now())
    }
}

/// The clock of a test.
#[derive(Debug, Clone, Copy)]
pub enum Time {
    /// Virtual: nothing happens between the steps of the test.
    Steps,
    /// Real time, from this start.
    Clock(Instant),
}

impl Time {
    /// The time of the next step after `now`, in nanoseconds.
    pub fn behind(&self, now: u64) -> u64 {
        match self {
            Time::Steps => now + 1_000,
            Time::Clock(begin) => now.max(begin.elapsed().as_nanos() as u64),
        }
    }

    /// The limit for waiting for a condition.
    pub fn patience(&self) -> Patience {
        match self {
            Time::Steps => Patience::Steps(STEPS_MAX),
            Time::Clock(_) => Patience::Until(Instant::now() + WAIT_MAX, 0),
        }
    }

    /// How long nothing must happen until all messages have arrived.
    pub fn quiet(&self) -> Patience {
        match self {
            Time::Steps => Patience::Steps(QUIET_STEPS),
            Time::Clock(_) => Patience::Until(Instant::now() + QUIET, QUIET_STEPS),
        }
    }
}

/// The rest of a wait.
#[derive(Debug, Clone, Copy)]
pub enum Patience {
    /// A number of steps.
    Steps(u32),
    /// Until this time, and at least this number of steps: the thread may have been descheduled.
    Until(Instant, u32),
}

impl Patience {
    /// Uses one step of the rest; false if none is left.
    pub fn is_left(&mut self) -> bool {
        match self {
            Patience::Steps(left) => {
                let is_left = *left > 0;
                *left = left.saturating_sub(1);
                is_left
            }
            Patience::Until(end, least) => {
                let is_left = *least > 0 || Instant::now() < *end;
                *least = least.saturating_sub(1);
                is_left
            }
        }
    }

    /// Something has happened: restarts a quiet period in real time.
    pub fn begin_again(&mut self, time: &Time) {
        if let Time::Clock(_) = time {
            *self = time.quiet();
        }
    }
}

/// Steps after which a test has hung.
const STEPS_MAX: u32 = 100_000;
/// Time after which a test on a device has hung.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Steps without work after which all messages have arrived.
const QUIET_STEPS: u32 = 200;
/// Time without work after which all messages of a device have arrived.
const QUIET: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_are_counted() {
        let mut patience = Time::Steps.quiet();
        assert_eq!((0..1_000).filter(|_| patience.is_left()).count(), QUIET_STEPS as usize);
        assert_eq!(Time::Steps.behind(5), 1_005);
    }

    #[test]
    fn the_clock_never_goes_back() {
        let time = Time::Clock(Instant::now());
        assert_eq!(time.behind(1 << 50), 1 << 50);
        assert!(time.behind(0) <= time.behind(0));
    }
}
