//! What a peer may reach of this side's memory, and for how long.
//!
//! ```text
//!   grant ──▶ Grant ──Bind posted──▶ the peer reads or writes ──▶ dead: invalidated by us, or by
//!     ▲                                                            the peer's own Send
//!     └──────────────────────── retire ◀───────────────────────────┘
//! ```
//! Memory is shown through type-2 memory windows: one connection, one piece, one call. A device
//! without them registers the piece for the time of the call. One registration for good is for those
//! who ask for it by its name, which says what it is.

use rpcrdma_config::section::Exposure;
use rpcrdma_mempool::{Access, Keys, Registrar, Sge};
use rpcrdma_xdr::chunk::RdmaSegment;

use crate::provider::{Bind, SendOp, Window, WindowId};

/// The windows of a shard, or what stands in for them.
pub(crate) struct Windows {
    way: Way,
    free: Vec<Window>,
    total: usize,
    /// Rights that are given out.
    out: usize,
}

/// How memory is shown.
pub(crate) enum Way {
    /// Through memory windows.
    Windows,
    /// By a registration for each piece.
    Registration(Box<dyn Registrar + Send>),
    /// By the registrations that all memory has: every peer that was shown one key reaches all of it.
    Static(Vec<Keys>),
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
    state: State,
}

/// Where a right stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The peer has not been told, and the device neither.
    New,
    /// The peer may use it.
    Live,
    /// Nobody can use it any more.
    Dead,
}

impl Windows {
    /// With these windows, all of them unbound.
    pub fn new(way: Way, windows: Vec<Window>) -> Windows {
        let total = windows.len();
        Windows { way, free: windows, total, out: 0 }
    }

    /// Prepares a right to these bytes. Nothing is open yet. `None` if no window is free, or the
    /// device does not register the bytes.
    pub fn grant(&mut self, sge: Sge, access: Access) -> Option<Grant> {
        let mut grant =
            Grant { window: None, rkey: 0, old_rkey: 0, sge, access, state: State::New };
        match &self.way {
            Way::Windows => {
                let window = self.free.pop()?;
                grant.window = Some(window.id);
                (grant.rkey, grant.old_rkey) = (window.next_rkey(), window.rkey);
            }
            Way::Registration(registrar) => grant.rkey = registrar.expose(&sge, access).ok()?.rkey,
            Way::Static(keys) => {
                grant.rkey = keys.iter().find(|keys| keys.lkey == sge.lkey)?.rkey;
            }
        }
        self.out += 1;
        Some(grant)
    }

    /// Takes a right back that is dead, or that no peer was told of.
    pub fn retire(&mut self, grant: Grant) {
        self.out -= 1;
        let Grant { window, rkey, old_rkey, state, .. } = grant;
        match (window, &self.way) {
            (Some(id), _) => {
                // A key that was never bound is not used up.
                let rkey = if state == State::New { old_rkey } else { rkey };
                self.free.push(Window { id, rkey });
            }
            (None, Way::Registration(registrar)) => {
                registrar.deregister(Keys { lkey: rkey, rkey });
            }
            (None, _) => {}
        }
    }

    /// Windows that are bound to nothing.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// All windows.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Windows that calls use.
    pub fn bound(&self) -> usize {
        if self.total > 0 { self.out } else { 0 }
    }
}

impl Grant {
    /// What the peer is told.
    pub fn segment(&self) -> RdmaSegment {
        let Sge { addr, length, .. } = self.sge;
        RdmaSegment { handle: self.rkey, length, offset: addr }
    }

    /// The work request that opens the memory, if it takes one. The right counts as live from now
    /// on: what is laid out is posted, or its connection ends.
    pub fn open(&mut self) -> Option<SendOp> {
        self.state = State::Live;
        let Sge { addr, length: len, lkey } = self.sge;
        let (rkey, access) = (self.rkey, self.access);
        self.window.map(|window| SendOp::Bind(Bind { window, rkey, lkey, addr, len, access }))
    }

    /// The work request that closes the memory, if it takes one.
    pub fn close(&self) -> Option<SendOp> {
        let is_open = self.state == State::Live && self.window.is_some();
        is_open.then_some(SendOp::Invalidate { rkey: self.rkey })
    }

    /// Takes in that the right is gone if it has this key: the peer has invalidated it.
    pub fn on_invalidated(&mut self, rkey: u32) {
        if self.rkey == rkey && self.window.is_some() {
            self.state = State::Dead;
        }
    }

    /// Takes in that nobody can use the right any more.
    pub fn on_dead(&mut self) {
        self.state = State::Dead;
    }
}

/// What must be registered how, so that it can be shown.
pub(crate) fn region_access(exposure: Exposure) -> Access {
    match exposure {
        Exposure::Windows | Exposure::Auto => Access::MW_BIND,
        Exposure::Registration => Access::empty(),
        Exposure::StaticInsecure => Access::REMOTE_READ | Access::REMOTE_WRITE,
    }
}
