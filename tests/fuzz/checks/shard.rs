//! A shard with two connections: one to a valid peer, and one to a misbehaving raw peer.
//!
//! ```text
//!   serving:   client ──▶ shard ◀── raw peer        calling:   server ◀── shard ──▶ raw peer
//! ```
//! Whatever the raw peer does, nothing panics, the calls of the valid peer are answered correctly,
//! and all memory and credits are free at the end. The device is the software fabric, in virtual
//! time.

use rpcrdma::shard::audit::Audit;
use rpcrdma::{ConnectionId, Fabric};
use rpcrdma_xdr::Header;

use super::choices::Choices;
use super::foreign;
use crate::raw_peer::{RawPeer, message, properties};
use crate::script::{Order, Part, Script};
use crate::sim::invariants::{self, State};
use crate::world::{Plan, World, checked, is_passing};

/// Checks one input.
///
/// # Panics
/// If the valid peer is affected, or anything is missing at the end.
pub fn check(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut scene = Scene::new(choices.flag());
    for _ in 0..EVENTS_MAX {
        if choices.is_over() {
            break;
        }
        scene.event(&mut choices);
    }
    scene.lawful_round();
    scene.end();
}

struct Scene {
    world: World<Fabric>,
    fabric: Fabric,
    raw: Option<RawPeer<Fabric>>,
    /// The valid peer's connection at the client.
    good: ConnectionId,
    /// Whether the raw peer is called, and does not call.
    is_called: bool,
    /// The raw peer, as a client that calls it has it.
    bad: Option<ConnectionId>,
    /// Transactions that the raw peer has seen.
    xids: Vec<u32>,
    /// Calls to the raw peer that are open, by cookie.
    open: Vec<u64>,
    seed: u32,
    meetings: u32,
    control_reserve: usize,
}

impl Scene {
    fn new(is_called: bool) -> Self {
        let fabric = Fabric::new();
        let plan = plan();
        let control_reserve = checked(&plan.serve).control_reserve() as usize;
        let (mut world, good) = World::pair(&|| fabric.clone(), &plan);
        world.servers[0].handler().has_strangers = true;
        let raw = None;
        let (xids, open) = (Vec::new(), Vec::new());
        let (bad, seed, meetings) = (None, 0, 0);
        let mut scene = Self {
            world,
            fabric,
            raw,
            good,
            is_called,
            bad,
            xids,
            open,
            seed,
            meetings,
            control_reserve,
        };
        scene.meet(true);
        scene
    }

    fn event(&mut self, choices: &mut Choices<'_>) {
        match choices.below(16) {
            0..8 => {
                let bytes = foreign::transmission(choices, &self.xids, SEND_MAX);
                self.send(&bytes);
            }
            8 => {
                let bytes = self.lawful(choices);
                self.send(&bytes);
            }
            9 => (0..choices.below(8)).for_each(|_| self.turn()),
            10 => self.lawful_round(),
            11 if self.is_called => self.call_raw(choices),
            11 => self.send(&properties(7, choices.below(20))),
            12 => {
                self.lawful_round();
                self.world.now += choices.pick(&[10_000_000, 1_000_000_000, 6_000_000_000]);
                self.turn();
            }
            13 if choices.rarely(4) => self.meet(choices.flag()),
            _ => self.turn(),
        }
        self.check();
    }

    /// One turn of everything.
    fn turn(&mut self) {
        self.world.step();
        if let Some(raw) = &mut self.raw {
            let _ = raw.turn();
            while let Some(arrived) = raw.recv() {
                if let Ok((header, _)) = Header::decode(&arrived)
                    && !self.xids.contains(&header.xid)
                {
                    self.xids.truncate(6);
                    self.xids.insert(0, header.xid);
                }
            }
        }
        let open = &mut self.open;
        self.world.done.retain(|done| {
            match open.iter().position(|cookie| *cookie == done.cookie) {
                Some(at) => {
                    open.swap_remove(at);
                    false
                }
                None => true,
            }
        });
    }

    fn send(&mut self, bytes: &[u8]) {
        let is_full = match &mut self.raw {
            Some(raw) => raw.is_connected() && !raw.send(bytes),
            None => false,
        };
        if is_full {
            self.turn();
        }
    }

    /// Ends the connection of the raw peer, and makes another.
    fn meet(&mut self, is_polite: bool) {
        if self.meetings == MEETINGS_MAX {
            return;
        }
        self.meetings += 1;
        self.part();
        if self.is_called {
            return self.be_called();
        }
        let mut raw = RawPeer::sized(&self.fabric, RAW_RECEIVES, RAW_SENDS);
        raw.connect(self.world.at);
        for _ in 0..TURNS_MAX {
            self.world.step();
            raw.turn().expect("there is room for one more");
            if raw.is_connected() {
                break;
            }
        }
        assert!(raw.is_connected(), "there is room for one more");
        self.raw = Some(raw);
        if is_polite {
            self.send(&properties(7, 16));
            self.turn();
        }
    }

    fn be_called(&mut self) {
        let mut raw = RawPeer::sized(&self.fabric, RAW_RECEIVES, RAW_SENDS);
        let at = raw.listen();
        let id = self.world.clients[0].begin_connect(at).expect("there is room");
        let mut is_met = false;
        let outcome = self.world.outcome_with(0, id, || {
            raw.turn().expect("it listens");
            if let Some(hello) = raw.recv()
                && !is_met
            {
                let (header, _) = Header::decode(&hello).expect("a header");
                is_met = raw.send(&properties(header.xid, 16));
            }
        });
        self.bad = Some(outcome.expect("a connection"));
        self.raw = Some(raw);
    }

    /// Drops the raw peer, and checks that its resources return.
    fn part(&mut self) {
        if let Some(raw) = &mut self.raw {
            raw.disconnect();
        }
        self.bad = None;
        for _ in 0..TURNS_MAX {
            self.turn();
            if self.open.is_empty() && self.others() == 0 {
                self.raw = None;
                return;
            }
        }
        panic!("the connection to the raw peer ends: {:?}", self.audit());
    }

    /// Connections of the shard to the raw peer.
    fn others(&mut self) -> usize {
        self.audit().peers.len() - 1
    }

    /// The audit of the shard with two connections.
    fn audit(&mut self) -> Audit {
        match self.is_called {
            true => self.world.clients[0].shard().audit(),
            false => self.world.servers[0].audit(),
        }
    }

    /// Checks that a call of the valid peer is answered correctly.
    fn lawful_round(&mut self) {
        self.seed += 1;
        let parts = [Part::Bulk(self.seed * 977 % 9_000), Part::Inline(30)];
        let script = Script::new(self.seed, &parts, &parts);
        let mut made = None;
        for _ in 0..TURNS_MAX {
            match made {
                None => match self.world.call(0, self.good, &script) {
                    Ok(cookie) => made = Some(cookie),
                    Err(why) => assert!(is_passing(why), "{why}"),
                },
                Some(cookie) => {
                    if let Some(at) = self.world.done.iter().position(|done| done.cookie == cookie)
                    {
                        self.world.done.swap_remove(at).check();
                        return;
                    }
                }
            }
            self.turn();
        }
        panic!("not in {TURNS_MAX} turns: a lawful call, made: {made:?}; {:?}", self.audit());
    }

    /// A transmission of a valid peer.
    fn lawful(&mut self, choices: &mut Choices<'_>) -> Vec<u8> {
        let xid = 1 + choices.below(6);
        if self.is_called {
            let xid = if self.xids.is_empty() { xid } else { choices.pick(&self.xids) };
            return message(xid, 1, choices.below(20), &[0; 12]);
        }
        let orders =
            [Order::Answer, Order::Later, Order::Refuse, Order::Never, Order::Keep, Order::Relay];
        let parts = [Part::Inline(20)];
        let script = Script::new(xid, &parts, &parts).order(choices.pick(&orders));
        message(xid, 0, 16, &script.call_stream())
    }

    /// Calls the raw peer, which may answer or not.
    fn call_raw(&mut self, choices: &mut Choices<'_>) {
        let Some(bad) = self.bad.filter(|_| self.open.len() < OPEN_MAX) else { return };
        let lens = [0, 5, 300, 4096, 9_000, 20_000];
        let parts = [Part::Inline(choices.below(40)), Part::Bulk(choices.pick(&lens))];
        let reply = [Part::Bulk(choices.pick(&lens)), Part::Bulk(choices.pick(&lens))];
        let script = Script::new(1, &parts, &reply);
        if let Ok(cookie) = self.world.call(0, bad, &script) {
            self.world.distrust(cookie);
            self.open.push(cookie);
        }
        self.turn();
    }

    /// What must hold at all times.
    fn check(&mut self) {
        let audit = self.audit();
        let (spares_kept, bulk_kept) = match self.is_called {
            true => (0, SOURCE_BULK),
            false => (self.world.servers[0].handler().kept.len(), SERVICE_BULK),
        };
        let stats = match self.is_called {
            true => self.world.clients[0].handle().stats(),
            false => self.world.servers[0].handle().stats(),
        };
        let state = State {
            shard: 0,
            audit: &audit,
            stats,
            loans_kept: spares_kept + bulk_kept,
            // The simulation checks which memory is open to which peer.
            keys_open: 0,
            is_exposed: true,
            keys_kept: 0,
            keeps_rights: false,
            calls_open: self.open.len(),
            control_reserve: self.control_reserve,
            is_starved: false,
            is_lost: false,
        };
        if let Err(violation) = invariants::check(&state) {
            panic!("{violation:?}");
        }
        assert_eq!(audit.leaked, 0);
        assert!(audit.peers.iter().all(|peer| peer.outstanding <= peer.granted));
    }

    /// Drops all peers, and checks that all memory is free.
    fn end(mut self) {
        self.part();
        let calls = self.world.clients[0].shard().audit().calls;
        assert_eq!(calls, 0, "every call is over");
        self.world.drop_client(0);
        self.world.quiesce();
        let (spares_kept, bulk_kept) = (self.world.servers[0].handler().kept.len(), SERVICE_BULK);
        let mut audit = self.world.servers[0].audit();
        // The program's own loans are not missing.
        audit.spares.free += spares_kept;
        audit.bulk.free += bulk_kept;
        if let Err(violation) = invariants::check_stopped(0, &audit, false) {
            panic!("{violation:?}");
        }
        self.world.check_nothing_leaked();
    }
}

/// A small world: little memory, few credits, short times.
fn plan() -> Plan {
    Plan::both(|raw| {
        raw.receive.placement.length = "4KiB".into();
        raw.receive.placement.count = 2;
        raw.connections.group_timeout = "1s".into();
        raw.connections.rpc_len_max = "64KiB".into();
    })
}

/// Events of one input.
const EVENTS_MAX: usize = 100;
/// Bytes of the longest transmission of the raw peer: more than a Receive has.
const SEND_MAX: usize = 13_000;
/// The limit of turns for waiting.
const TURNS_MAX: usize = 2_000;
/// Connections of the raw peer, one after the other.
const MEETINGS_MAX: u32 = 3;
/// Receives of the raw peer, and what it may have on its way.
const RAW_RECEIVES: u32 = 16;
const RAW_SENDS: u32 = 64;
/// Open calls to the raw peer: the rest of what the shard has is for the other.
const OPEN_MAX: usize = 3;
/// Buffers that a client's parts come from.
const SOURCE_BULK: usize = 1;
/// Buffers that the service keeps for itself.
const SERVICE_BULK: usize = 5;
