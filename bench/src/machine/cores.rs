//! The two cores of a benchmark, and threads pinned to them.

use std::fmt;
use std::panic;
use std::str::FromStr;
use std::thread;

use rpcrdma_mempool::pin::{CoreList, allowed_cores, pin_to};
use rpcrdma_mempool::topology::Topology;
use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// The core of the client and the core of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorePair {
    pub client: u32,
    pub server: u32,
}

impl CorePair {
    /// The cores asked for, or a pair picked from those the program may use: isolated ones first,
    /// not two threads of one core, and not core 0, where interrupts go, if there are others.
    pub fn choose(requested: Option<CorePair>) -> Result<CorePair, BenchError> {
        let allowed = allowed_cores();
        if allowed.len() < 2 {
            return Err(BenchError::OneCore { allowed: allowed.len() });
        }
        let Some(requested) = requested else { return Ok(pick(&allowed, &Topology::detect())) };
        for core in requested.both() {
            if !allowed.contains(&core) {
                let reason = format!("this program may use {}", CoreList(allowed));
                return Err(BenchError::Core { core, reason });
            }
        }
        Ok(requested)
    }

    /// How many pairs there are whose cores are all different, at least one.
    pub fn most() -> usize {
        (allowed_cores().len() / 2).max(1)
    }

    /// So many pairs whose cores are all different, the first as in [`CorePair::choose`]. If the
    /// first is two threads of one core, so are the others, as long as there are such.
    pub fn several(requested: Option<CorePair>, count: usize) -> Result<Vec<CorePair>, BenchError> {
        let (allowed, first) = (allowed_cores(), CorePair::choose(requested)?);
        first.with_others(count, &allowed, &Topology::detect()).ok_or_else(|| {
            let (needed, all) = (2 * count, allowed.len());
            BenchError::Usage(format!(
                "{count} shards and as many clients need {needed} cores; this program may use {all}"
            ))
        })
    }

    /// This pair and others of its kind, `count` in all. `None`: the cores do not suffice.
    fn with_others(
        self,
        count: usize,
        allowed: &[u32],
        topology: &Topology,
    ) -> Option<Vec<CorePair>> {
        let siblings = are_siblings(self, topology);
        let (mut left, mut pairs) = (allowed.to_vec(), vec![self]);
        while pairs.len() < count {
            left.retain(|core| !pairs.iter().any(|pair| pair.both().contains(core)));
            if left.len() < 2 {
                return None;
            }
            pairs.push(pick_like(&left, topology, siblings));
        }
        Some(pairs)
    }

    /// The cores of so many client threads: that of the client, then others than the server's, as
    /// often as there are more threads than cores.
    pub fn clients(self, count: usize) -> Vec<u32> {
        let mut cores = vec![self.client];
        cores.extend(allowed_cores().into_iter().filter(|core| !self.both().contains(core)));
        cores.into_iter().cycle().take(count).collect()
    }

    pub fn both(self) -> [u32; 2] {
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
pub fn pin(core: u32) -> Result<(), BenchError> {
    pin_to(core).map_err(|error| BenchError::Core { core, reason: error.to_string() })
}

/// Makes something on the core where it will be used: its memory comes from there.
///
/// # Panics
/// If `make` panics.
pub(crate) fn on_core<T: Send>(
    core: u32,
    make: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    let mut made = None;
    on_thread(Box::new(|| made = Some(pin(core).and_then(|()| make()))));
    made.expect("its thread has ended")
}

/// Runs it on a thread of its own to its end. Boxed, so that what starts threads is compiled once.
fn on_thread(work: Box<dyn FnOnce() + Send + '_>) {
    let ended = thread::scope(|scope| scope.spawn(work).join());
    ended.unwrap_or_else(|panic| panic::resume_unwind(panic));
}

/// Picks a pair from at least two cores.
pub(crate) fn pick(allowed: &[u32], topology: &Topology) -> CorePair {
    pick_like(allowed, topology, false)
}

/// As [`pick`]; with `siblings` two threads of one core. Another pair if there is none of that kind.
fn pick_like(allowed: &[u32], topology: &Topology, siblings: bool) -> CorePair {
    let mut order: Vec<u32> = topology.cores_by_preference(None);
    order.retain(|core| allowed.contains(core));
    order.extend(allowed.iter().filter(|core| topology.core(**core).is_none()));
    let is_isolated = |id: u32| topology.core(id).is_some_and(|core| core.isolated);
    if order.len() > 2 && !is_isolated(order[0]) {
        // A stable sort: only core 0 moves, to the end.
        order.sort_by_key(|core| *core == 0);
    }
    let with = |client| order.iter().map(move |server| CorePair { client, server: *server });
    let pairs =
        || order.iter().flat_map(|client| with(*client)).filter(|it| it.client != it.server);
    let wanted = pairs().find(|pair| are_siblings(*pair, topology) == siblings);
    wanted.or_else(|| pairs().next()).expect("the caller gives two cores")
}

fn are_siblings(pair: CorePair, topology: &Topology) -> bool {
    topology.core(pair.client).is_some_and(|core| core.siblings.contains(&pair.server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_pairs_share_no_core_and_too_many_are_refused() {
        let most = CorePair::most();
        let Ok(pairs) = CorePair::several(None, most) else { return };
        let mut cores: Vec<u32> = pairs.iter().flat_map(|pair| pair.both()).collect();
        cores.sort_unstable();
        cores.dedup();
        assert_eq!(cores.len(), 2 * most);
        let refused = CorePair::several(None, most + 1);
        assert!(matches!(refused, Err(BenchError::Usage(_))), "{refused:?}");
    }

    fn cores(count: u32) -> Topology {
        Topology::flat((0..count).collect())
    }

    /// Two threads of each core.
    fn threads(count: u32) -> Topology {
        let mut topology = cores(count);
        for core in &mut topology.cores {
            core.siblings = vec![core.id & !1, core.id | 1];
        }
        topology
    }

    fn pair(client: u32, server: u32) -> CorePair {
        CorePair { client, server }
    }

    #[test]
    fn two_cores_are_taken_as_they_are() {
        assert_eq!(pick(&[0, 1], &cores(2)), pair(0, 1));
    }

    #[test]
    fn core_zero_is_left_to_interrupts_when_there_are_others() {
        assert_eq!(pick(&[0, 1, 2], &cores(3)), pair(1, 2));
    }

    #[test]
    fn isolated_cores_come_first() {
        let mut topology = cores(4);
        topology.cores[2].isolated = true;
        topology.cores[3].isolated = true;
        assert_eq!(pick(&[0, 1, 2, 3], &topology), pair(2, 3));
    }

    #[test]
    fn an_isolated_core_zero_is_as_good_as_another() {
        let mut topology = cores(3);
        topology.cores[0].isolated = true;
        assert_eq!(pick(&[0, 1, 2], &topology).client, 0);
    }

    #[test]
    fn hardware_threads_of_one_core_are_not_paired_if_that_can_be_helped() {
        let topology = threads(6);
        assert_eq!(pick(&[2, 3, 4], &topology), pair(2, 4));
        assert_eq!(pick(&[2, 3], &topology), pair(2, 3));
    }

    #[test]
    fn pairs_are_compared_with_pairs_of_their_kind() {
        let (allowed, topology) = ([0, 1, 2, 3, 4, 5, 6, 7], threads(8));
        let others = |first: CorePair| first.with_others(4, &allowed, &topology);
        let together = others(pair(2, 3)).expect("there are eight cores");
        assert!(together.iter().all(|pair| are_siblings(*pair, &topology)), "{together:?}");
        let apart = others(pair(0, 2)).expect("there are eight cores");
        assert!(!apart.iter().any(|pair| are_siblings(*pair, &topology)), "{apart:?}");
        let without_five = pair(0, 1).with_others(3, &[0, 1, 2, 3, 4, 6, 7], &topology);
        assert_eq!(without_five, Some(vec![pair(0, 1), pair(2, 3), pair(6, 7)]));
    }

    #[test]
    fn a_core_that_may_not_be_used_is_not_picked() {
        assert_eq!(pick(&[1, 3], &cores(4)), pair(1, 3));
    }

    #[test]
    fn a_pair_is_two_different_numbers() {
        assert_eq!("2,3".parse(), Ok(pair(2, 3)));
        assert!("2".parse::<CorePair>().is_err());
        assert!("2,2".parse::<CorePair>().is_err());
        assert!("2,x".parse::<CorePair>().is_err());
    }
}
