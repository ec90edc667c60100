//! The two cores of a benchmark, and threads that stay on them.

use std::fmt;
use std::fs;
use std::str::FromStr;

use serde::Serialize;

use crate::error::BenchError;

/// The core of the client and the core of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CorePair {
    /// Where the client's thread runs.
    pub client: usize,
    /// Where the server's thread runs.
    pub server: usize,
}

impl CorePair {
    /// The cores asked for, or a pair picked from those the program may use: isolated ones first,
    /// not two threads of one core, and not core 0, where interrupts go, if there are others.
    pub fn choose(wish: Option<CorePair>) -> Result<CorePair, BenchError> {
        let allowed = allowed_cores();
        if allowed.len() < 2 {
            return Err(BenchError::OneCore { allowed: allowed.len() });
        }
        let Some(wish) = wish else { return Ok(pick(&allowed, &isolated_cores(), siblings)) };
        for core in [wish.client, wish.server] {
            if !allowed.contains(&core) {
                let reason = format!("this program may use {allowed:?}");
                return Err(BenchError::Core { core, reason });
            }
        }
        Ok(wish)
    }

    /// Both, the client's first.
    pub fn both(self) -> [usize; 2] {
        [self.client, self.server]
    }
}

impl FromStr for CorePair {
    type Err = String;

    fn from_str(text: &str) -> Result<CorePair, String> {
        let (client, server) = text.split_once(',').ok_or("two cores, as in 2,3")?;
        let core = |text: &str| text.trim().parse().map_err(|_| format!("`{text}` is not a core"));
        let pair = CorePair { client: core(client)?, server: core(server)? };
        if pair.client == pair.server {
            return Err("two threads that spin need two different cores".into());
        }
        Ok(pair)
    }
}

impl fmt::Display for CorePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (client) and {} (server)", self.client, self.server)
    }
}

/// Keeps the calling thread on a core from now on.
pub fn pin(core: usize) -> Result<(), BenchError> {
    if core_affinity::set_for_current(core_affinity::CoreId { id: core }) {
        return Ok(());
    }
    let reason = "the thread could not be pinned to it".into();
    Err(BenchError::Core { core, reason })
}

/// Core numbers as the kernel writes them: `0-3,8`. What is not a number is left out.
pub fn core_list(text: &str) -> Vec<usize> {
    let mut cores = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(low), Ok(high)) = (low.trim().parse::<usize>(), high.trim().parse()) {
            cores.extend(low..=high);
        }
    }
    cores
}

/// Cores that the kernel keeps other programs off.
pub fn isolated_cores() -> Vec<usize> {
    fs::read_to_string("/sys/devices/system/cpu/isolated")
        .map_or_else(|_| Vec::new(), |text| core_list(&text))
}

fn allowed_cores() -> Vec<usize> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    cores.into_iter().map(|core| core.id).collect()
}

/// The hardware threads that share a core with this one, itself included.
fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    fs::read_to_string(path).map_or_else(|_| vec![core], |text| core_list(&text))
}

/// Picks a pair from at least two cores.
fn pick(allowed: &[usize], isolated: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> CorePair {
    let mut order: Vec<usize> = allowed.to_vec();
    order.sort_by_key(|core| (!isolated.contains(core), *core == 0 && allowed.len() > 2, *core));
    let client = order[0];
    let beside = siblings(client);
    let others = || order.iter().copied().filter(|core| *core != client);
    let server = others().find(|core| !beside.contains(core)).or_else(|| others().next());
    CorePair { client, server: server.expect("the caller gives two cores") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(core: usize) -> Vec<usize> {
        vec![core]
    }

    #[test]
    fn a_list_of_cores_reads_as_the_kernel_writes_it() {
        assert_eq!(core_list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(core_list("\n"), [0usize; 0]);
        assert_eq!(core_list("3"), [3]);
    }

    #[test]
    fn two_cores_are_taken_as_they_are() {
        assert_eq!(pick(&[0, 1], &[], alone), CorePair { client: 0, server: 1 });
    }

    #[test]
    fn core_zero_is_left_to_interrupts_when_there_are_others() {
        assert_eq!(pick(&[0, 1, 2], &[], alone), CorePair { client: 1, server: 2 });
    }

    #[test]
    fn isolated_cores_come_first() {
        assert_eq!(pick(&[0, 1, 2, 3], &[3, 2], alone), CorePair { client: 2, server: 3 });
    }

    #[test]
    fn hardware_threads_of_one_core_are_not_paired_if_that_can_be_helped() {
        let pairs = |core: usize| vec![core & !1, core | 1];
        assert_eq!(pick(&[0, 1, 2, 3, 4, 5], &[], pairs), CorePair { client: 1, server: 2 });
        assert_eq!(pick(&[2, 3], &[], pairs), CorePair { client: 2, server: 3 });
    }

    #[test]
    fn a_pair_is_two_different_numbers() {
        assert_eq!("2,3".parse(), Ok(CorePair { client: 2, server: 3 }));
        assert!("2".parse::<CorePair>().is_err());
        assert!("2,2".parse::<CorePair>().is_err());
        assert!("2,x".parse::<CorePair>().is_err());
    }
}
