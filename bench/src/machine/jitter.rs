//! The jitter probe: how often, and for how long, a spinning thread loses its core.

use std::time::Duration;

use quanta::Clock;
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::machine::cores::CorePair;
use crate::machine::pair;

/// What a thread saw that read the clock in a tight loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Jitter {
    pub core: u32,
    /// Gaps of more than 5 us between two readings, per second.
    pub gaps_per_second: f64,
    /// The share of the time that lies in such gaps, 0 to 1.
    pub lost_share: f64,
    pub longest_ns: u64,
}

impl Jitter {
    /// Why a latency measured now is disturbed; `None` when it is not.
    ///
    /// A 250 Hz timer tick takes about half a percent and shows gaps of 12 to 25 us. More than
    /// twice that share, or a gap of half a millisecond, is another program.
    pub fn noise(&self) -> Option<String> {
        let Jitter { core, lost_share, longest_ns, .. } = *self;
        if longest_ns >= GAP_NOISY_NS {
            let ms = longest_ns as f64 / 1e6;
            return Some(format!("core {core} was away for {ms:.1} ms at once"));
        }
        if lost_share > LOST_NOISY {
            let percent = lost_share * 100.0;
            return Some(format!("core {core} was away for {percent:.1} % of the time"));
        }
        None
    }
}

/// Probes both cores at the same time.
pub fn probe(cores: CorePair, time: Duration) -> Result<[Jitter; 2], BenchError> {
    let outcome =
        pair::run(cores, |_| Ok(watch(cores.client, time)), |_| Ok(watch(cores.server, time)))?;
    Ok([outcome.client, outcome.server])
}

/// The usual distance between two consecutive readings of the clock, in nanoseconds: the precision
/// of a single sample. It is the clock's step or the cost of a reading, whichever is larger.
pub fn clock_step_ns() -> f64 {
    let clock = Clock::new();
    let mut steps = Vec::with_capacity(READINGS);
    let mut last = clock.raw();
    for _ in 0..READINGS {
        let now = clock.raw();
        steps.push(now.saturating_sub(last));
        last = now;
    }
    steps.retain(|step| *step > 0);
    steps.sort_unstable();
    let step = steps.get(steps.len() / 2).copied().unwrap_or(0);
    // Many steps at once: one alone would be rounded to whole nanoseconds.
    clock.delta_as_nanos(0, step << 16) as f64 / f64::from(1 << 16)
}

fn watch(core: u32, time: Duration) -> Jitter {
    let clock = Clock::new();
    let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let start = clock.raw();
    let mut gaps = Gaps::default();
    let mut last = start;
    loop {
        let now = clock.raw();
        gaps.take(clock.delta_as_nanos(last, now));
        last = now;
        let elapsed_ns = clock.delta_as_nanos(start, now);
        if elapsed_ns >= time_ns {
            return gaps.over(core, elapsed_ns);
        }
    }
}

#[derive(Debug, Default)]
struct Gaps {
    count: u64,
    lost_ns: u64,
    longest_ns: u64,
}

impl Gaps {
    fn take(&mut self, gap_ns: u64) {
        self.longest_ns = self.longest_ns.max(gap_ns);
        if gap_ns > GAP_NS {
            self.count += 1;
            self.lost_ns += gap_ns;
        }
    }

    fn over(self, core: u32, elapsed_ns: u64) -> Jitter {
        let elapsed_ns = elapsed_ns.max(1) as f64;
        Jitter {
            core,
            gaps_per_second: self.count as f64 * 1e9 / elapsed_ns,
            lost_share: self.lost_ns as f64 / elapsed_ns,
            longest_ns: self.longest_ns,
        }
    }
}

/// Readings of the clock that its step is taken from.
const READINGS: usize = 10_000;
/// A longer time between two readings of the clock is a gap.
const GAP_NS: u64 = 5_000;
/// A gap this long is another program's time slice.
const GAP_NOISY_NS: u64 = 500_000;
/// A larger share of lost time is more than the kernel's tick.
const LOST_NOISY: f64 = 0.01;

/// A probe of this time is long enough for sixty ticks of a 250 Hz timer. What is built for tests
/// measures nothing, and looks for a moment.
pub const PROBE_TIME: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 10 } else { 250 });

#[cfg(test)]
mod tests {
    use super::*;

    fn jitter(gaps_ns: &[u64]) -> Jitter {
        let mut gaps = Gaps::default();
        gaps_ns.iter().for_each(|gap| gaps.take(*gap));
        gaps.over(1, 1_000_000_000)
    }

    #[test]
    fn gaps_up_to_five_microseconds_are_none() {
        assert_eq!(jitter(&[10, 5_000]).gaps_per_second, 0.0);
        assert_eq!(jitter(&[10, 5_001]).gaps_per_second, 1.0);
        assert_eq!(jitter(&[10, 5_000]).longest_ns, 5_000);
    }

    #[test]
    fn a_timer_tick_is_not_noise() {
        assert_eq!(jitter(&[20_000; 250]).noise(), None);
    }

    #[test]
    fn a_time_slice_of_another_program_is_noise() {
        let noise = jitter(&[4_000_000]).noise().expect("4 ms are not a tick");
        assert!(noise.contains("core 1") && noise.contains("4.0 ms"), "{noise}");
    }

    #[test]
    fn many_short_gaps_are_noise_too() {
        let noise = jitter(&[20_000; 1000]).noise().expect("2 % are not a tick");
        assert!(noise.contains("2.0 %"), "{noise}");
    }

    #[test]
    fn the_probe_watches_both_cores() {
        let Ok(cores) = CorePair::choose(None) else { return };
        let probed = probe(cores, Duration::from_millis(5)).expect("both cores are there");
        assert_eq!([probed[0].core, probed[1].core], cores.both());
        assert!(probed.iter().all(|jitter| jitter.longest_ns > 0));
    }

    #[test]
    fn the_clock_has_a_step() {
        assert!(clock_step_ns() > 0.0);
    }
}
