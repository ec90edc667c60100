//! What goes wrong in the queues of an engine: what its weather brings, and what a run is about.
//!
//! A run is about nothing, mostly; or about one fault, which is frequent then and comes with what it
//! needs to happen at all; or about all of them, each seldom.

use rpcrdma_engine::provider::fault::FaultPlan;

use super::draw::Weather;
use crate::script::Random;

/// What a run is about, beside its weather.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// Nothing.
    None,
    /// One fault, by its place among [`KINDS`].
    One(usize),
    /// All of them.
    All,
}

impl Trouble {
    /// Draws what a run is about.
    pub fn draw(random: &mut Random) -> Trouble {
        match random.below(8) {
            0..=2 => Trouble::One(random.below(KINDS.len() as u32) as usize),
            3 => Trouble::All,
            _ => Trouble::None,
        }
    }
}

/// A fault: where a plan has it, how often it happens at most, in millionths, and what there is besides
/// so that it can happen.
type Kind = (fn(&mut FaultPlan) -> &mut u32, u32, fn(&mut FaultPlan));

/// Every fault that no weather brings.
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
    (plan.disconnect_ppm, plan.recv_withheld_ppm) = (60_000, 600_000);
}

/// What the weather does to the queues of one engine.
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

/// What the run is about does to the queues of one engine.
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

/// A fault that happens whenever it can: seldom enough.
const ALWAYS: u32 = 1_000_000;
/// By how much less frequent a fault is where there are all of them.
const SELDOM: u32 = 10;
