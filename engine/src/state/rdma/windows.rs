//! The rights of peers to this side's memory: memory windows and registrations.
//!
//! ```text
//!   grant ──▶ Grant ──Bind posted──▶ the peer reads or writes ──▶ dead: invalidated here, or by
//!     ▲                                                            the peer's own Send
//!     └──────────────────────── retire ◀───────────────────────────┘
//! ```
//! Memory is exposed through type-2 memory windows: one connection, one piece, one call. A device
//! without them registers the piece for the duration of the call. A permanent registration is only
//! for users who select it by its name, which states the risk.
//!
//! A right that the device does not release never ends: its memory stays in place.
#![expect(unsafe_code, reason = "exposing memory is a promise about it")]

use std::io::ErrorKind;

use rpcrdma_config::section::Exposure;
use rpcrdma_mempool::{Access, Keys, Loan, RegisterError, Sge};
use rpcrdma_xdr::chunk::RdmaSegment;

use crate::error::SetupError;
use crate::provider::{Bind, SendOp, Window, WindowId};

/// The windows of a shard, or their substitute.
pub(crate) struct Windows {
    way: Way,
    free: Vec<Window>,
    /// Windows that must not be bound again yet, by connection.
    quarantined: Vec<(u32, Window)>,
    total: usize,
    /// Rights that are granted.
    out: usize,
}

/// The way of exposing memory.
pub(crate) enum Way {
    /// Through memory windows.
    Windows,
    /// By a registration of each piece.
    Registration,
    /// By the permanent registrations: a peer that gets one key reaches the whole region.
    Static(Vec<Keys>),
}

/// Registers memory for one call: the queues of a shard, as their program reaches them.
pub(crate) trait Exposer {
    /// Opens these bytes and returns the key.
    ///
    /// # Safety
    /// That of [`Queues::expose`](crate::provider::Queues::expose).
    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError>;
    /// Closes memory that was opened under this key. False if it may still be open.
    fn conceal(&mut self, rkey: u32) -> bool;
    /// Retrieves a window from a queue pair in the error state, as
    /// [`Queues::renew_window`](crate::provider::Queues::renew_window).
    fn renew(&mut self, id: WindowId) -> Result<Option<Window>, SetupError>;
}

/// A right of a peer to a piece of this side's memory.
#[derive(Debug)]
#[must_use = "a right is taken back by `retire`"]
pub(crate) struct Grant {
    window: Option<WindowId>,
    rkey: u32,
    /// The key that the window had before.
    old_rkey: u32,
    sge: Sge,
    access: Access,
    state: RightState,
}

/// The state of a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RightState {
    /// It has no key.
    Keyless,
    /// It has a key that neither the device nor the peer knows.
    Keyed,
    /// The peer may use it.
    Live,
    /// It has ended.
    Dead,
    /// The device did not release it: the peer may use it permanently.
    Lost,
}

/// The memory that a call opens to its peer.
#[derive(Default)]
pub(crate) struct Opening<'a> {
    /// The rights.
    pub grants: &'a mut [Grant],
    /// Memory for the message itself, if the peer reads it.
    pub message: &'a mut [Loan],
}

/// Why a right has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoKey {
    /// Other calls use the resources.
    Now,
    /// No release of resources will change it.
    Ever,
}

impl NoKey {
    /// The reason for a failed registration; `others` states whether other calls have
    /// registrations.
    fn of(error: &RegisterError, others: bool) -> NoKey {
        let is_lack = match error {
            RegisterError::Full { .. } => true,
            RegisterError::Device { source, .. } => {
                matches!(source.kind(), ErrorKind::OutOfMemory | ErrorKind::WouldBlock)
            }
            _ => false,
        };
        if is_lack && others { NoKey::Now } else { NoKey::Ever }
    }
}

impl Windows {
    /// With these windows, all of them unbound.
    pub fn new(way: Way, windows: Vec<Window>) -> Windows {
        let total = windows.len();
        let quarantined = Vec::with_capacity(total);
        Windows { way, free: windows, quarantined, total, out: 0 }
    }

    /// Whether there are this many windows in total.
    pub fn has(&self, count: usize) -> bool {
        !matches!(self.way, Way::Windows) || count <= self.total
    }

    /// Whether rights never end.
    pub fn are_for_good(&self) -> bool {
        matches!(self.way, Way::Static(_))
    }

    /// Creates the key of a right, for a call that has `own` keys already. Nothing is open yet, or
    /// no peer knows the key.
    ///
    /// # Safety
    /// The bytes of the grant stay valid, and are accessed only as the granted access permits,
    /// until [`Windows::retire`] has reported the right's end.
    pub unsafe fn key(
        &mut self,
        grant: &mut Grant,
        own: usize,
        exposer: &mut dyn Exposer,
    ) -> Result<RdmaSegment, NoKey> {
        debug_assert_eq!(grant.state, RightState::Keyless);
        match &self.way {
            Way::Windows => {
                let window = self.free.pop().ok_or(NoKey::Now)?;
                grant.window = Some(window.id);
                (grant.rkey, grant.old_rkey) = (window.next_rkey(), window.rkey);
            }
            Way::Registration => {
                // SAFETY: the caller's promise; `retire` reports the end only if `conceal` has
                // succeeded.
                let key = unsafe { exposer.expose(&grant.sge, grant.access) };
                grant.rkey = key.map_err(|error| NoKey::of(&error, self.out > own))?;
            }
            Way::Static(keys) => {
                let keys = keys.iter().find(|keys| keys.lkey == grant.sge.lkey);
                // The memory of another shard.
                grant.rkey = keys.ok_or(NoKey::Ever)?.rkey;
            }
        }
        grant.state = RightState::Keyed;
        self.out += 1;
        let Sge { addr, length, .. } = grant.sge;
        Ok(RdmaSegment { handle: grant.rkey, length, offset: addr })
    }

    /// Releases a right that has ended, or whose key no peer has received. False if it has not ended and
    /// never will: the device does not release the registration or the window.
    #[must_use]
    pub fn retire(&mut self, grant: Grant, exposer: &mut dyn Exposer) -> bool {
        let Grant { window, rkey, old_rkey, state, .. } = grant;
        if state == RightState::Keyless {
            return true;
        }
        self.out -= 1;
        match (window, &self.way) {
            (Some(id), _) => {
                // A key that was never bound can be used again.
                let rkey = if state == RightState::Keyed { old_rkey } else { rkey };
                self.free.push(Window { id, rkey });
                true
            }
            (None, Way::Registration) => exposer.conceal(rkey),
            // A lost window, or no window.
            (None, _) => state != RightState::Lost,
        }
    }

    /// As [`Windows::retire`], for a window right of a peer that may still answer the call. The
    /// peer may then use the key, and keys repeat: the window is not bound again until
    /// [`Windows::release`].
    #[cold]
    pub fn quarantine(&mut self, grant: Grant, peer: u32, exposer: &mut dyn Exposer) -> bool {
        match (grant.window, grant.state) {
            (Some(id), RightState::Dead) => {
                self.quarantined.push((peer, Window { id, rkey: grant.rkey }));
                true
            }
            _ => self.retire(grant, exposer),
        }
    }

    /// The peer holds no usable key of an ended right any more, or has no connection.
    pub fn release(&mut self, peer: u32) {
        let Windows { free, quarantined, out, .. } = self;
        for (_, window) in quarantined.extract_if(.., |(of, _)| *of == peer) {
            free.push(window);
            *out -= 1;
        }
    }

    /// Retrieves the window of a right that may still be bound on a queue pair in the error state,
    /// before the queue pair is destroyed. The right ends if the device releases the window. False
    /// if the window is lost.
    #[cold]
    pub fn renew(&mut self, grant: &mut Grant, exposer: &mut dyn Exposer) -> bool {
        let Some(id) = grant.window.filter(|_| grant.state == RightState::Live) else {
            return true;
        };
        let renewed = exposer.renew(id);
        grant.state = if renewed.is_ok() { RightState::Dead } else { RightState::Lost };
        match renewed {
            Ok(Some(Window { rkey, .. })) => grant.rkey = rkey,
            Ok(None) | Err(_) => {
                grant.window = None;
                self.total -= 1;
            }
        }
        grant.window.is_some()
    }

    /// Unbound windows.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// All windows.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Windows in quarantine.
    pub fn quarantined(&self) -> usize {
        self.quarantined.len()
    }

    /// Windows that calls use.
    pub fn bound(&self) -> usize {
        if self.total > 0 { self.out } else { 0 }
    }
}

impl Grant {
    /// A right to these bytes, without a key yet.
    pub fn new(sge: Sge, access: Access) -> Grant {
        Grant { window: None, rkey: 0, old_rkey: 0, sge, access, state: RightState::Keyless }
    }

    /// Whether the peer may write, but not read.
    pub fn is_write(&self) -> bool {
        self.access.contains(Access::REMOTE_WRITE)
    }

    /// The work request that opens the memory, if one is needed. The right counts as live from now
    /// on: a message that is laid out is posted, or its connection ends.
    pub fn open(&mut self) -> Option<SendOp> {
        self.state = RightState::Live;
        let Sge { addr, length: len, lkey } = self.sge;
        let (rkey, access) = (self.rkey, self.access);
        self.window.map(|window| SendOp::Bind(Bind { window, rkey, lkey, addr, len, access }))
    }

    /// Records that the work request that opens the memory was not posted.
    pub fn on_unposted(&mut self) {
        if self.state == RightState::Live {
            self.state = RightState::Keyed;
        }
    }

    /// The work request that closes the memory, if one is needed.
    pub fn close(&self) -> Option<SendOp> {
        let is_open = self.state == RightState::Live && self.window.is_some();
        is_open.then_some(SendOp::Invalidate { rkey: self.rkey })
    }

    /// Ends the right if it has this key, which the peer has invalidated. False if it has another.
    pub fn on_invalidated(&mut self, rkey: u32) -> bool {
        let is_it = self.rkey == rkey && self.window.is_some() && self.state == RightState::Live;
        if is_it {
            self.state = RightState::Dead;
        }
        is_it
    }

    /// Records that the right has ended, unless the device has kept it.
    pub fn on_dead(&mut self) {
        if self.state != RightState::Lost {
            self.state = RightState::Dead;
        }
    }
}

/// The access that regions are registered with, so that they can be exposed.
pub(crate) fn region_access(exposure: Option<Exposure>) -> Access {
    match exposure {
        Some(Exposure::Windows | Exposure::Auto) => Access::MW_BIND,
        None | Some(Exposure::Registration) => Access::empty(),
        Some(Exposure::StaticInsecure) => Access::REMOTE_READ | Access::REMOTE_WRITE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with this result.
    struct Device(fn() -> Result<u32, RegisterError>);

    impl Exposer for Device {
        unsafe fn expose(&mut self, _: &Sge, _: Access) -> Result<u32, RegisterError> {
            self.0()
        }

        fn conceal(&mut self, rkey: u32) -> bool {
            rkey != KEPT
        }

        fn renew(&mut self, WindowId(number): WindowId) -> Result<Option<Window>, SetupError> {
            match number {
                0 => Err(SetupError::Stopped),
                1 => Ok(None),
                number => Ok(Some(Window { id: WindowId(number), rkey: 0x100 })),
            }
        }
    }

    /// A key that the device does not release.
    const KEPT: u32 = 666;

    /// As [`Windows::key`] of a grant to no bytes.
    fn key(
        windows: &mut Windows,
        grant: &mut Grant,
        own: usize,
        answer: fn() -> Result<u32, RegisterError>,
    ) -> Result<RdmaSegment, NoKey> {
        // SAFETY: there are no bytes, and no device.
        unsafe { windows.key(grant, own, &mut Device(answer)) }
    }

    fn failure(errno: i32) -> Result<u32, RegisterError> {
        let source = std::io::Error::from_raw_os_error(errno);
        Err(RegisterError::Device { bytes: 1, source })
    }

    #[test]
    fn a_failed_registration_is_retried_only_if_other_calls_hold_keys() {
        let grant = || Grant::new(Sge::default(), Access::REMOTE_READ);
        let answers: [(fn() -> _, _); 4] = [
            (|| Err(RegisterError::Full { held: 9 }), NoKey::Now),
            (|| failure(libc::ENOMEM), NoKey::Now),
            (|| failure(libc::EINVAL), NoKey::Ever),
            (|| failure(libc::EFAULT), NoKey::Ever),
        ];
        for (answer, with_others) in answers {
            let mut windows = Windows::new(Way::Registration, Vec::new());
            let mut first = grant();
            let keyed = key(&mut windows, &mut first, 0, || Ok(7));
            assert_eq!(keyed.map(|segment| segment.handle), Ok(7));
            let later = key(&mut windows, &mut grant(), 0, answer);
            assert_eq!(later.err(), Some(with_others), "another call has one");
            let never = key(&mut windows, &mut grant(), 1, answer);
            assert_eq!(never.err(), Some(NoKey::Ever), "the call has it itself");
            assert!(windows.retire(first, &mut Device(answer)));
        }
    }

    #[test]
    fn a_right_stays_alive_if_its_registration_is_not_released() {
        let mut windows = Windows::new(Way::Registration, Vec::new());
        for (rkey, is_dead) in [(7, true), (KEPT, false)] {
            let mut grant = Grant::new(Sge::default(), Access::REMOTE_WRITE);
            let keyed = match rkey {
                KEPT => key(&mut windows, &mut grant, 0, || Ok(KEPT)),
                _ => key(&mut windows, &mut grant, 0, || Ok(7)),
            };
            assert!(keyed.is_ok());
            assert_eq!(grant.open(), None, "there is nothing to be bound");
            grant.on_dead();
            assert_eq!(windows.retire(grant, &mut Device(|| Ok(0))), is_dead, "{rkey}");
        }
        assert_eq!(windows.out, 0);
    }

    #[test]
    fn a_right_stays_alive_if_its_window_is_not_released() {
        // Kept by the device; released without a new window; released.
        for (number, is_dead, left) in [(0, false, 0), (1, true, 0), (2, true, 1)] {
            let window = Window { id: WindowId(number), rkey: 0 };
            let mut windows = Windows::new(Way::Windows, vec![window]);
            let mut grant = Grant::new(Sge::default(), Access::REMOTE_WRITE);
            assert!(key(&mut windows, &mut grant, 0, || Ok(0)).is_ok());
            assert!(grant.open().is_some());
            let device = &mut Device(|| Ok(0));
            assert_eq!(windows.renew(&mut grant, device), left == 1);
            // Its queue pair is destroyed.
            grant.on_dead();
            assert_eq!(windows.retire(grant, device), is_dead);
            assert_eq!((windows.free(), windows.total(), windows.out), (left, left, 0));
        }
    }

    #[test]
    fn a_window_in_quarantine_returns_when_its_own_peer_holds_no_key() {
        let window = |number| Window { id: WindowId(number), rkey: 0 };
        let mut windows = Windows::new(Way::Windows, (10..13).map(window).collect());
        for peer in [4, 5, 4] {
            let mut grant = Grant::new(Sge::default(), Access::REMOTE_WRITE);
            assert!(key(&mut windows, &mut grant, 0, || Ok(0)).is_ok());
            assert!(grant.open().is_some());
            grant.on_dead();
            assert!(windows.quarantine(grant, peer, &mut Device(|| Ok(0))));
        }
        let mut grant = Grant::new(Sge::default(), Access::REMOTE_WRITE);
        let none = key(&mut windows, &mut grant, 0, || Ok(0));
        assert_eq!(none.err(), Some(NoKey::Now));
        assert!(windows.retire(grant, &mut Device(|| Ok(0))), "it has no key");
        for (peer, counts) in [(6, (0, 3, 3)), (4, (2, 1, 1)), (5, (3, 0, 0))] {
            windows.release(peer);
            assert_eq!((windows.free(), windows.quarantined(), windows.bound()), counts, "{peer}");
        }
    }

    #[test]
    fn only_a_shard_with_windows_can_have_too_few() {
        let window = Window { id: WindowId(2), rkey: 0 };
        let windows = Windows::new(Way::Windows, vec![window; 2]);
        assert!(windows.has(2) && !windows.has(3) && !windows.are_for_good());
        let mut windows = Windows::new(Way::Registration, Vec::new());
        assert!(windows.has(3) && !windows.are_for_good());
        let mut grant = Grant::new(Sge::default(), Access::REMOTE_WRITE);
        assert!(key(&mut windows, &mut grant, 0, || Ok(7)).is_ok());
        assert_eq!((windows.bound(), windows.out), (0, 1));
        assert!(windows.retire(grant, &mut Device(|| Ok(0))));
        let windows = Windows::new(Way::Static(Vec::new()), Vec::new());
        assert!(windows.has(3) && windows.are_for_good());
    }

    #[test]
    fn a_right_is_open_from_its_work_request_until_it_is_invalidated() {
        let window = Window { id: WindowId(2), rkey: 0x100 };
        let mut windows = Windows::new(Way::Windows, vec![window]);
        let mut grant = Grant::new(Sge::default(), Access::REMOTE_WRITE);
        assert!(grant.is_write());
        let rkey = key(&mut windows, &mut grant, 0, || Ok(0)).expect("a window").handle;
        assert_eq!((grant.close(), grant.on_invalidated(rkey)), (None, false), "not open yet");
        assert!(grant.open().is_some());
        assert_eq!(grant.close(), Some(SendOp::Invalidate { rkey }));
        grant.on_unposted();
        assert_eq!(grant.close(), None);
        assert!(grant.open().is_some());
        assert!(!grant.on_invalidated(rkey + 1), "another key");
        assert!(grant.on_invalidated(rkey));
        grant.on_unposted();
        assert_eq!((grant.close(), grant.on_invalidated(rkey)), (None, false), "it has ended");
        assert!(windows.retire(grant, &mut Device(|| Ok(0))));
        assert_eq!(windows.free, [Window { rkey, ..window }]);
        let mut unused = Grant::new(Sge::default(), Access::REMOTE_READ);
        assert!(!unused.is_write());
        assert!(key(&mut windows, &mut unused, 0, || Ok(0)).is_ok());
        assert!(windows.retire(unused, &mut Device(|| Ok(0))));
        assert_eq!(windows.free, [Window { rkey, ..window }], "its next key is used again");
    }
}
