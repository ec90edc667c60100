//! The faults of an engine's queues: those of the run's weather, and one special fault.
//!
//! Most runs have no special fault. Some have one, which is then frequent, with the conditions that
//! it needs. Some have all of them, each rarely.

use rpcrdma_testing::fault::FaultPlan;

use super::scenario::Weather;
use crate::script::Random;

/// The special fault of a run.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// None.
    None,
    /// One, by its index in [`KINDS`].
    One(usize),
    /// All.
    All,
}

impl Trouble {
    /// Chooses the special fault of a run.
    pub fn choose(random: &mut Random) -> Trouble {
        match random.below(8) {
            0..=2 => Trouble::One(random.below(KINDS.len() as u32) as usize),
            3 => Trouble::All,
            _ => Trouble::None,
        }
    }
}

/// A fault: its field in a plan, its maximum probability in millionths, and the conditions that it
/// needs.
type Kind = (fn(&mut FaultPlan) -> &mut u32, u32, fn(&mut FaultPlan));

/// Every fault that is not part of a weather.
pub const KINDS: [Kind; 19] = [
    (|plan| &mut plan.send_failed_ppm, 300_000, nothing),
    (|plan| &mut plan.send_gone_ppm, 30_000, nothing),
    (|plan| &mut plan.send_silent_ppm, 300_000, nothing),
    (|plan| &mut plan.send_ghost_ppm, 500_000, refuse_sends),
    (|plan| &mut plan.recv_cut_ppm, 900_000, nothing),
    (|plan| &mut plan.recv_failed_ppm, 900_000, nothing),
    (|plan| &mut plan.recv_gone_ppm, 200_000, nothing),
    (|plan| &mut plan.recv_silent_ppm, 900_000, nothing),
    (|plan| &mut plan.recv_ghost_ppm, ALWAYS, refuse_receives),
    (|plan| &mut plan.recv_taken_along_ppm, ALWAYS, lose_and_withhold),
    (|plan| &mut plan.window_lost_ppm, ALWAYS, lose),
    (|plan| &mut plan.window_kept_ppm, ALWAYS, lose),
    (|plan| &mut plan.expose_refused_ppm, 300_000, nothing),
    (|plan| &mut plan.conceal_failed_ppm, 100_000, nothing),
    (|plan| &mut plan.completion_withheld_ppm, 300_000, nothing),
    (|plan| &mut plan.cq_failed_ppm, 3_000, nothing),
    (|plan| &mut plan.qp_failed_ppm, 10_000, nothing),
    (|plan| &mut plan.device_lost_ppm, 3_000, nothing),
    (|plan| &mut plan.port_changed_ppm, 50_000, nothing),
];

fn nothing(_: &mut FaultPlan) {}

fn refuse_sends(plan: &mut FaultPlan) {
    (plan.send_refused_ppm, plan.send_silent_ppm) = (50_000, 50_000);
}

fn refuse_receives(plan: &mut FaultPlan) {
    (plan.recv_refused_ppm, plan.recv_silent_ppm) = (200_000, 500_000);
}

fn lose(plan: &mut FaultPlan) {
    plan.disconnect_ppm = 60_000;
}

fn lose_and_withhold(plan: &mut FaultPlan) {
    (plan.disconnect_ppm, plan.recv_withheld_ppm) = (120_000, 950_000);
}

/// The faults of the weather for the queues of one engine.
pub fn faults(random: &mut Random, weather: Weather) -> FaultPlan {
    let mut plan = FaultPlan {
        seed: u64::from(random.below(1 << 30)),
        polls_late_max: random.choose(&[1, 5, 40]),
        ..FaultPlan::default()
    };
    let mut some = |often: u32| if random.below(3) > 0 { often / (1 + random.below(9)) } else { 0 };
    if weather != Weather::Calm {
        plan.send_refused_ppm = some(300_000);
        plan.send_cut_ppm = some(400_000);
        plan.recv_withheld_ppm = some(200_000);
        plan.completion_delayed_ppm = some(300_000);
    }
    if matches!(weather, Weather::Storm | Weather::Ruin) {
        plan.recv_refused_ppm = some(200_000);
        plan.disconnect_ppm = some(10_000);
        plan.flush_ppm = some(10_000);
    }
    if matches!(weather, Weather::Noise | Weather::Ruin) {
        plan.bytes_changed_ppm = some(200_000);
        plan.header_len = random.choose(&[16, 28, 64, 120]);
    }
    if weather == Weather::Ruin {
        plan.overrun_ppm = if random.below(3) == 0 { 3_000 } else { 0 };
    }
    plan
}

/// The special fault for the queues of one engine.
pub fn worsen(plan: &mut FaultPlan, random: &mut Random, trouble: Trouble) {
    let mut some = |often: u32| if random.below(3) > 0 { often / (1 + random.below(9)) } else { 0 };
    match trouble {
        Trouble::None => {}
        Trouble::One(kind) => {
            let (rate, most, besides) = KINDS[kind];
            let often = if most == ALWAYS { most } else { some(most) };
            if often > 0 {
                besides(plan);
                *rate(plan) = often;
            }
        }
        Trouble::All => {
            for (rate, most, _) in KINDS {
                *rate(plan) = some(most / SELDOM);
            }
        }
    }
}

/// The probability of a fault that is rarely possible.
const ALWAYS: u32 = 1_000_000;
/// The factor by which a fault is less frequent in runs with all faults.
const SELDOM: u32 = 10;
