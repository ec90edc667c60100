//! Keys of the buffers that RDMA Reads fill, on devices where the peer writes to them (iWARP).
//!
//! ```text
//!   open ──▶ the Reads name the keys ──▶ the peer writes ──Reads complete──▶ close ──▶ the data is read
//! ```
//! An iWARP Read states a key of its buffer to the peer, and the answer is a write with that key (RFC
//! 5040 4.4). So a buffer is registered for the time of its Reads alone, and no byte of it is read
//! before that registration has ended.
#![expect(unsafe_code, reason = "exposing memory is a promise about it")]

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Access, Loan, Sge};

use super::windows::Exposer;

/// Buffers that the data of one call are read into.
pub(crate) const LOANS_MAX: usize = 64;

/// The keys of the buffers of one call; empty on other devices.
#[derive(Debug, Default)]
pub(crate) struct ReadKeys(ArrayVec<u32, LOANS_MAX>);

impl ReadKeys {
    /// Registers buffers for the Reads whose scatter entries are `gather`, which get the keys.
    /// False if the device does not register all of them: the Reads must not be posted, and what
    /// was registered is closed by [`ReadKeys::close`].
    pub fn open<'a>(
        &mut self,
        loans: impl Iterator<Item = &'a Loan>,
        gather: &mut [Sge],
        exposer: &mut dyn Exposer,
    ) -> bool {
        for loan in loans {
            let whole = loan.sge(0..loan.len());
            // SAFETY: the buffer is in its call, which neither reads nor returns it before `close`
            // was true; if it is false, the buffer is forgotten.
            let Ok(key) = (unsafe { exposer.expose(&whole, Access::REMOTE_WRITE) }) else {
                return false;
            };
            self.0.push(key);
            let within = whole.addr..whole.addr + u64::from(whole.length);
            for sge in gather.iter_mut().filter(|sge| within.contains(&sge.addr)) {
                sge.lkey = key;
            }
        }
        true
    }

    /// Ends the registrations. False if the device keeps one: a peer may then write to its buffer
    /// for ever.
    #[must_use]
    pub fn close(&mut self, exposer: &mut dyn Exposer) -> bool {
        self.0.retain(|key| !exposer.conceal(*key));
        !self.is_open()
    }

    /// Forgets the keys of buffers that are abandoned. False if there are none.
    pub fn forget(&mut self) -> bool {
        let is_open = self.is_open();
        self.0.clear();
        is_open
    }

    fn is_open(&self) -> bool {
        !self.0.is_empty()
    }
}

#[cfg(test)]
pub(in crate::state) mod tests {
    use rpcrdma_mempool::{
        BulkPool, PoolSpec, Region, RegionSpec, RegisterError, Registered, Rights,
    };

    use super::*;
    use crate::error::SetupError;
    use crate::fabric::Fabric;
    use crate::provider::{Provider, Window, WindowId};

    /// A device that registers so many, and keeps one of them.
    struct Device {
        room: u32,
        kept: Option<u32>,
        open: Vec<u32>,
    }

    impl Exposer for Device {
        unsafe fn expose(&mut self, _: &Sge, access: Access) -> Result<u32, RegisterError> {
            assert_eq!(access, Access::REMOTE_WRITE);
            if self.open.len() as u32 == self.room {
                return Err(RegisterError::Full { held: self.room.into() });
            }
            let key = 100 + self.open.len() as u32;
            self.open.push(key);
            Ok(key)
        }

        fn conceal(&mut self, rkey: u32) -> bool {
            let is_released = self.kept != Some(rkey);
            self.open.retain(|key| *key != rkey || !is_released);
            is_released
        }

        fn renew(&mut self, _: WindowId) -> Result<Option<Window>, SetupError> {
            unreachable!("there are no windows")
        }
    }

    pub(in super::super) fn pool(count: u32) -> BulkPool {
        let spec = PoolSpec { slots: count, slot_len: 4096, align: 4096 };
        let region = RegionSpec::new(spec.bulk_region_len().expect("a length"));
        let region = Region::map(&region).expect("memory");
        let rights = Rights::own(Access::LOCAL_WRITE);
        let registered = Registered::new(region, Fabric::new().registrar(), rights);
        let mut registered = registered.expect("registered");
        BulkPool::new(&mut registered, &spec).expect("a pool")
    }

    pub(in crate::state) fn loans(count: u32) -> Vec<Loan> {
        let mut pool = pool(count);
        (0..count).map(|_| pool.take().expect("there is one")).collect()
    }

    #[test]
    fn every_part_of_a_read_has_the_key_of_its_buffer_while_it_runs() {
        let loans = loans(3);
        let parts = [(0, 0..100), (0, 100..4096), (1, 0..4096), (2, 0..7)];
        let mut gather = parts.map(|(at, range)| loans[at].sge(range));
        let mut device = Device { room: 3, kept: None, open: Vec::new() };
        let mut keys = ReadKeys::default();
        assert!(keys.open(loans.iter(), &mut gather, &mut device));
        assert_eq!(gather.map(|sge| sge.lkey), [100, 100, 101, 102]);
        assert!(keys.close(&mut device) && device.open.is_empty());
        assert!(keys.close(&mut device), "nothing is left");
    }

    #[test]
    fn a_registration_that_fails_leaves_nothing_and_one_that_stays_is_reported() {
        let loans = loans(3);
        for (room, kept, is_open, is_closed) in
            [(0, None, false, true), (2, None, false, true), (3, Some(101), true, false)]
        {
            let mut gather = [loans[0].sge(0..8)];
            let mut device = Device { room, kept, open: Vec::new() };
            let mut keys = ReadKeys::default();
            assert_eq!(keys.open(loans.iter(), &mut gather, &mut device), is_open);
            assert_eq!(keys.close(&mut device), is_closed);
            assert_eq!(device.open, Vec::from_iter(kept), "{room}");
        }
    }
}
