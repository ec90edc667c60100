//! The connections of a session: which are there, and when the others are tried again.
//!
//! ```text
//!   Down ──its time has come──▶ Connecting ──on_connect──▶ Up ──on_close──▶ Down, first address
//!    ▲                              └── on_refused: the next address  │        after a delay
//!    └── behind the last address, after a delay ◀────────────────────┴── it had not lasted
//! ```
//! An address on which no attempt can succeed is given up, until one under way succeeds; one whose
//! server has refused the version of a connection that was up, for ever. Without addresses a line
//! stays down.

use rpcrdma_provider::{Address, ConnectId};

use super::backoff::Backoff;
use crate::connection_id::ConnectionId;

/// All connections of a session.
#[derive(Debug)]
pub(super) struct Lines {
    targets: Box<[Target]>,
    lines: Box<[Line]>,
    backoff: Backoff,
    /// How many are up.
    up: usize,
}

/// An address of the service.
#[derive(Debug, Clone, Copy)]
struct Target {
    address: Address,
    /// No attempt on it can succeed.
    is_given_up: bool,
    /// Its server has refused the only version of this side. In version one a connection is up
    /// before its server has said anything, so another one disproves nothing.
    has_refused: bool,
}

/// A connection was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailedLine {
    pub address: Address,
    pub next: Next,
}

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The next attempt, in so many nanoseconds.
    Again(u64),
    /// Its address is given up.
    GivenUp,
    /// Its address was given up before: its reason is that of the failure before.
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    state: LineState,
    /// The address that is tried, or connected.
    address: usize,
    /// Times that all addresses were tried without success.
    rounds: u32,
    /// The last delay, in nanoseconds: a connection that lasts no longer counts as a failed attempt.
    delay: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    Down { again_at: u64 },
    Connecting(ConnectId),
    Up { peer: ConnectionId, since: u64 },
}

impl Lines {
    /// So many connections, none of which is there.
    pub fn new(
        addresses: impl IntoIterator<Item = Address>,
        connections: usize,
        backoff: Backoff,
    ) -> Lines {
        let target = |address| Target { address, is_given_up: false, has_refused: false };
        let targets = addresses.into_iter().map(target).collect();
        let state = LineState::Down { again_at: 0 };
        let line = Line { state, address: 0, rounds: 0, delay: 0 };
        Lines { targets, lines: vec![line; connections].into(), backoff, up: 0 }
    }

    /// Whether it has an address.
    pub fn has_addresses(&self) -> bool {
        !self.targets.is_empty()
    }

    /// Whether no connection is there, and none will be.
    pub fn are_over(&self) -> bool {
        let is_down = |line: &Line| matches!(line.state, LineState::Down { .. });
        self.is_given_up() && self.lines.iter().all(is_down)
    }

    /// Whether all addresses are given up.
    fn is_given_up(&self) -> bool {
        !self.targets.iter().any(Target::is_usable)
    }

    /// How many are up.
    pub fn up(&self) -> usize {
        self.up
    }

    /// The connection of a session that has one, if it is up.
    pub fn only(&self) -> Option<ConnectionId> {
        match self.lines[..] {
            [Line { state: LineState::Up { peer, .. }, .. }] => Some(peer),
            _ => None,
        }
    }

    /// The connections that are up.
    #[inline]
    pub fn peers(&self) -> impl Iterator<Item = ConnectionId> {
        self.lines.iter().filter_map(|line| match line.state {
            LineState::Up { peer, .. } => Some(peer),
            _ => None,
        })
    }

    /// When the next connection is to be tried; `u64::MAX` if none is.
    pub fn next_due(&self) -> u64 {
        if self.is_given_up() {
            return u64::MAX;
        }
        let due = self.lines.iter().map(|line| match line.state {
            LineState::Down { again_at } => again_at,
            _ => u64::MAX,
        });
        due.min().unwrap_or(u64::MAX)
    }

    /// A connection to try now, and its address. It is to be followed by [`Lines::connecting`] or
    /// [`Lines::failed`].
    pub fn due(&mut self, now: u64) -> Option<(usize, Address)> {
        let is_due =
            |line: &Line| matches!(line.state, LineState::Down { again_at } if again_at <= now);
        let at = self.lines.iter().position(is_due)?;
        let Lines { targets, lines, .. } = self;
        let from = lines[at].address;
        // Another line may have given up the address meanwhile.
        let next = usable(targets, from).or_else(|| usable(targets, 0))?;
        lines[at].address = next;
        Some((at, targets[next].address))
    }

    /// A connection is being made.
    pub fn connecting(&mut self, line: usize, id: ConnectId) {
        self.lines[line].state = LineState::Connecting(id);
    }

    /// The connection of an attempt is there: its address. `None` if the attempt is not one of these.
    pub fn on_connect(&mut self, id: ConnectId, peer: ConnectionId, now: u64) -> Option<Address> {
        let at = self.attempt(id)?;
        self.lines[at].state = LineState::Up { peer, since: now };
        self.up += 1;
        let target = &mut self.targets[self.lines[at].address];
        // An attempt can succeed after all.
        target.is_given_up = false;
        Some(target.address)
    }

    /// An attempt has failed. `None` if it is not one of these.
    pub fn on_refused(
        &mut self,
        id: ConnectId,
        is_transient: bool,
        now: u64,
    ) -> Option<FailedLine> {
        let at = self.attempt(id)?;
        Some(self.failed(at, is_transient, now))
    }

    /// A connection could not be tried, or was not made. If the reason lasts, its address is given
    /// up, unless another connection has been made to it.
    pub fn failed(&mut self, at: usize, is_transient: bool, now: u64) -> FailedLine {
        let Lines { targets, lines, .. } = self;
        let of = lines[at].address;
        let is_connected =
            |line: &Line| matches!(line.state, LineState::Up { .. }) && line.address == of;
        let was_usable = targets[of].is_usable();
        targets[of].is_given_up |= !is_transient && !lines.iter().any(is_connected);
        self.go_on(at, was_usable, now)
    }

    /// Goes on with the next address. `was_usable` says of that which has failed what it was before.
    fn go_on(&mut self, at: usize, was_usable: bool, now: u64) -> FailedLine {
        let Lines { targets, lines, backoff, .. } = self;
        let of = lines[at].address;
        let (target, line) = (targets[of], &mut lines[at]);
        let delay = match usable(targets, of + 1) {
            Some(next) => {
                (line.address, line.state) = (next, LineState::Down { again_at: now });
                0
            }
            None => {
                line.address = 0;
                line.wait(backoff, now)
            }
        };
        let next = match (was_usable, target.is_usable()) {
            (_, true) => Next::Again(delay),
            (true, false) => Next::GivenUp,
            (false, false) => Next::Nothing,
        };
        FailedLine { address: target.address, next }
    }

    /// A connection has ended, perhaps because its server has refused the only version of this side.
    /// `None` if it is not one of these.
    pub fn on_close(
        &mut self,
        peer: ConnectionId,
        has_refused: bool,
        now: u64,
    ) -> Option<FailedLine> {
        let is_it =
            |line: &Line| matches!(line.state, LineState::Up { peer: of, .. } if of == peer);
        let at = self.lines.iter().position(is_it)?;
        let Lines { targets, lines, backoff, up } = self;
        let line = &mut lines[at];
        *up -= 1;
        let target = &mut targets[line.address];
        let was_usable = target.is_usable();
        target.has_refused |= has_refused;
        if let LineState::Up { since, .. } = line.state
            && (has_refused || now.saturating_sub(since) <= line.delay)
        {
            // A server that accepts connections and ends them is as good as none.
            return Some(self.go_on(at, was_usable, now));
        }
        let address = target.address;
        (line.rounds, line.address) = (0, 0);
        Some(FailedLine { address, next: Next::Again(line.wait(backoff, now)) })
    }

    fn attempt(&self, id: ConnectId) -> Option<usize> {
        self.lines.iter().position(|line| line.state == LineState::Connecting(id))
    }
}

/// The first of these addresses, from a place on, that is not given up.
fn usable(targets: &[Target], from: usize) -> Option<usize> {
    (from..targets.len()).find(|at| targets[*at].is_usable())
}

impl Target {
    /// Whether an attempt on it can succeed.
    fn is_usable(&self) -> bool {
        !self.is_given_up && !self.has_refused
    }
}

impl Line {
    /// Waits for the next attempt; returns how long.
    fn wait(&mut self, backoff: &mut Backoff, now: u64) -> u64 {
        self.delay = backoff.delay(self.rounds);
        self.rounds = self.rounds.saturating_add(1);
        self.state = LineState::Down { again_at: now.saturating_add(self.delay) };
        self.delay
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn address(port: u16) -> Address {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()
    }

    fn lines(addresses: u16, connections: usize) -> Lines {
        let backoff = Backoff::new(Duration::from_nanos(100), Duration::from_nanos(1000), 7);
        Lines::new((0..addresses).map(address), connections, backoff)
    }

    fn peer(index: u32) -> ConnectionId {
        ConnectionId { index, generation: 0 }
    }

    #[test]
    fn addresses_are_tried_in_turn_and_then_later() {
        let mut lines = lines(3, 1);
        for port in 0..3 {
            let (line, to) = lines.due(0).expect("it is due");
            assert_eq!(to, address(port));
            lines.connecting(line, ConnectId(u64::from(port)));
            assert_eq!(lines.due(u64::MAX), None, "it is under way");
            let failed = lines.on_refused(ConnectId(u64::from(port)), true, 0).expect("ours");
            assert_eq!(failed.address, address(port));
            assert_eq!(failed.next == Next::Again(0), port < 2, "{failed:?}");
        }
        assert_eq!(lines.due(0), None);
        assert_eq!(lines.due(lines.next_due()).expect("due").1, address(0));
    }

    #[test]
    fn a_lost_connection_begins_with_the_first_address() {
        let mut lines = lines(2, 1);
        lines.connecting(0, ConnectId(1));
        lines.on_refused(ConnectId(1), true, 0).expect("ours");
        lines.connecting(0, ConnectId(2));
        assert_eq!(lines.on_connect(ConnectId(2), peer(4), 0), Some(address(1)));
        assert_eq!(lines.on_close(peer(5), false, 0), None);
        assert_eq!(lines.on_close(peer(4), false, 0).map(|it| it.address), Some(address(1)));
        assert_eq!(lines.due(lines.next_due()).expect("due").1, address(0));
    }

    #[test]
    fn connections_that_do_not_last_are_tried_ever_less_often() {
        let (mut lines, mut now, mut delays) = (lines(1, 1), 0, Vec::new());
        for id in 0..6 {
            now = now.max(lines.next_due());
            lines.connecting(0, ConnectId(id));
            lines.on_connect(ConnectId(id), peer(0), now).expect("ours");
            lines.on_close(peer(0), false, now).expect("ours");
            delays.push(lines.next_due() - now);
        }
        assert!(delays[0] <= 100 && delays[5] >= 500, "{delays:?}");
        lines.connecting(0, ConnectId(9));
        lines.on_connect(ConnectId(9), peer(0), now).expect("ours");
        now += 10_000;
        lines.on_close(peer(0), false, now).expect("ours");
        assert!(lines.next_due() - now <= 100, "it had lasted");
    }

    #[test]
    fn a_server_that_ends_its_connections_at_once_is_passed_over() {
        let (mut lines, mut now, mut tried) = (lines(2, 1), 0, Vec::new());
        for id in 0..6 {
            now = now.max(lines.next_due());
            let (line, to) = lines.due(now).expect("it is due");
            tried.push(to);
            lines.connecting(line, ConnectId(id));
            lines.on_connect(ConnectId(id), peer(0), now).expect("ours");
            lines.on_close(peer(0), false, now).expect("ours");
        }
        assert_eq!(tried, [0, 1, 0, 1, 0, 1].map(address));
        assert!(lines.next_due() > now, "not without a delay");
    }

    #[test]
    fn an_address_on_which_no_attempt_can_succeed_is_tried_once() {
        let mut lines = lines(2, 1);
        let (line, to) = lines.due(0).expect("it is due");
        let failed = FailedLine { address: address(0), next: Next::GivenUp };
        assert_eq!((to, lines.failed(line, false, 0)), (address(0), failed));
        for now in [0, 10_000, 20_000] {
            let (line, to) = lines.due(now).expect("it is due");
            assert_eq!(to, address(1));
            let next = lines.failed(line, true, now).next;
            assert!(matches!(next, Next::Again(1..)), "{next:?}");
        }
        let (line, _) = lines.due(30_000).expect("it is due");
        assert!(!lines.are_over());
        assert_eq!(lines.failed(line, false, 30_000).next, Next::GivenUp);
        assert!(lines.are_over());
        assert_eq!((lines.due(u64::MAX), lines.next_due()), (None, u64::MAX));
    }

    #[test]
    fn an_address_that_another_line_has_given_up_is_passed_over() {
        let mut lines = lines(2, 2);
        // The second address is next for both.
        lines.failed(0, true, 0);
        lines.failed(1, true, 0);
        assert_eq!(lines.due(0), Some((0, address(1))));
        lines.failed(0, false, 0);
        assert_eq!(lines.due(0), Some((1, address(0))));
    }

    #[test]
    fn an_address_that_has_a_connection_is_not_given_up() {
        let mut lines = lines(1, 2);
        lines.connecting(0, ConnectId(1));
        lines.connecting(1, ConnectId(2));
        lines.on_connect(ConnectId(1), peer(0), 0).expect("ours");
        let failed = lines.on_refused(ConnectId(2), false, 0).expect("ours");
        assert!(matches!(failed.next, Next::Again(_)));
        lines.on_close(peer(0), false, 10_000).expect("ours");
        assert!(!lines.are_over() && lines.due(u64::MAX).is_some());
    }

    #[test]
    fn lines_are_not_over_while_an_attempt_is_open() {
        let mut lines = lines(1, 2);
        lines.connecting(0, ConnectId(1));
        lines.connecting(1, ConnectId(2));
        lines.on_refused(ConnectId(1), false, 0).expect("ours");
        assert!(!lines.are_over());
        lines.on_connect(ConnectId(2), peer(0), 0).expect("ours");
        assert!(!lines.are_over());
        lines.on_close(peer(0), false, 10_000).expect("ours");
        assert!(!lines.are_over(), "the address could be connected to");
        let (line, _) = lines.due(20_000).expect("it is due");
        lines.failed(line, false, 20_000);
        assert!(lines.are_over());
    }

    proptest! {
        /// Whatever happens, every connection is up, under way, or has a time.
        #[test]
        fn no_connection_is_forgotten(events in prop::collection::vec((0_u8..4, 0_usize..4), 1..200)) {
            let (mut lines, mut now, mut ids) = (lines(2, 3), 0, 0);
            let mut under_way: Vec<ConnectId> = Vec::new();
            let mut up: Vec<ConnectionId> = Vec::new();
            for (event, which) in events {
                match event {
                    0 => now = if lines.next_due() == u64::MAX { now } else { now.max(lines.next_due()) },
                    1 => if let Some((line, _)) = lines.due(now) {
                        ids += 1;
                        lines.connecting(line, ConnectId(ids));
                        under_way.push(ConnectId(ids));
                    },
                    2 if !under_way.is_empty() => {
                        let id = under_way.swap_remove(which % under_way.len());
                        if which % 2 == 0 {
                            up.push(peer(id.0 as u32));
                            prop_assert!(lines.on_connect(id, peer(id.0 as u32), now).is_some());
                        } else {
                            prop_assert!(lines.on_refused(id, true, now).is_some());
                        }
                    }
                    3 if !up.is_empty() => {
                        let peer = up.swap_remove(which % up.len());
                        prop_assert!(lines.on_close(peer, false, now).is_some());
                    }
                    _ => {}
                }
                prop_assert_eq!(lines.up(), up.len());
                let mut peers: Vec<_> = lines.peers().collect();
                peers.sort_by_key(|peer| peer.index);
                up.sort_by_key(|peer| peer.index);
                prop_assert_eq!(&peers, &up);
                let down = 3 - up.len() - under_way.len();
                prop_assert_eq!(down > 0, lines.next_due() < u64::MAX);
            }
        }
    }
}
