//! The registered memory of a shard, and the pools that it is carved into.
#![expect(unsafe_code, reason = "rights of peers to all memory, if configured explicitly")]

use std::sync::Arc;

use rpcrdma_config::section::Exposure;
use rpcrdma_config::{Config, Lock, Pages};
use rpcrdma_mempool::{
    Access, BulkPool, Keys, Note, PageSize, Pool, PoolSpec, RecvPool, RecvSpec, Region, RegionSpec,
    Registered, Registrar, Rights, SendPool, SendSpec, ZeroPage,
};

use crate::budget::Budget;
use crate::error::SetupError;
use crate::message::HEADERS_LEN;
use crate::state::lane::messages::Headers;
use crate::state::rdma::windows::region_access;

/// The pools of a shard.
pub(crate) struct Memory {
    pub recv: RecvPool,
    pub send: SendPool,
    pub headers: Pool<Headers>,
    pub zero: ZeroPage,
    pub bulk: BulkPool,
    /// For data of explicit RDMA.
    pub rdma_buffers: BulkPool,
    /// The memory of the pools.
    pub regions: Regions,
}

/// Registered regions, with the result for each. A registration ends with the last user of its
/// region: a pool, or a loan that is still out.
pub(crate) struct Regions(Vec<(&'static str, Registered)>);

impl Regions {
    /// The actual page size of each region, and the attempts that were refused.
    pub fn report(&self) -> impl Iterator<Item = (&'static str, &Region)> {
        self.0.iter().map(|(name, registered)| (*name, registered.region()))
    }

    /// All of them, by name.
    #[cfg(feature = "storage")]
    #[inline]
    pub fn all(&self) -> &[(&'static str, Registered)] {
        &self.0
    }

    /// The keys of all regions.
    pub fn keys(&self) -> Vec<Keys> {
        self.0.iter().map(|(_, registered)| registered.keys()).collect()
    }
}

impl Memory {
    /// Maps, registers and divides all memory of one shard.
    pub fn new(
        config: &Config,
        budget: &Budget,
        registrar: Arc<dyn Registrar>,
        numa_node: Option<u32>,
    ) -> Result<Memory, SetupError> {
        let maker = RegionMaker { config, registrar, numa_node };
        let recv_spec = RecvSpec {
            structure: *config.recv_structure(),
            buffers: budget.receives,
            inline_spares: 0,
            placement_spares: config.receive().spares.value(),
        };
        let send_spec =
            SendSpec { slots: budget.slots, payload_len: config.send().payload_len.as_usize() };
        let headers_spec = PoolSpec { slots: budget.slots, slot_len: HEADERS_LEN, align: 64 };
        let zero_len = config.send().zero_len.as_usize();
        let bulk = config.app().bulk;
        let bulk_spec =
            PoolSpec { slots: bulk.count.value(), slot_len: bulk.len.as_usize(), align: 4096 };

        let rdma_buffer_spec = PoolSpec {
            slots: budget.explicit.rdma_buffer_count,
            slot_len: budget.explicit.rdma_buffer_len as usize,
            align: 4096,
        };
        let received = RECEIVED | region_access(budget.explicit.exposure);

        let mut recv = maker.region("receive buffers", recv_spec.region_len(), received)?;
        let send_len = sum(send_spec.region_len(), headers_spec.region_len());
        let mut send = maker.region("send slots", send_len, SENT)?;
        let mut zero = maker.region("padding", ZeroPage::region_len(zero_len), SENT)?;
        let mut big = maker.region("bulk buffers", bulk_spec.bulk_region_len(), received)?;
        let mut rdma =
            maker.region("RDMA buffers", rdma_buffer_spec.bulk_region_len(), received)?;
        Ok(Memory {
            recv: RecvPool::new(&mut recv, &recv_spec).map_err(of("receive buffers"))?,
            send: SendPool::new(&mut send, &send_spec).map_err(of("send slots"))?,
            headers: Pool::new(&mut send, &headers_spec).map_err(of("header slots"))?,
            zero: ZeroPage::new(&mut zero, zero_len).map_err(of("padding"))?,
            bulk: BulkPool::new(&mut big, &bulk_spec).map_err(of("bulk buffers"))?,
            rdma_buffers: BulkPool::new(&mut rdma, &rdma_buffer_spec)
                .map_err(of("RDMA buffers"))?,
            regions: Regions(vec![
                ("receive buffers", recv),
                ("send slots", send),
                ("padding", zero),
                ("bulk buffers", big),
                ("RDMA buffers", rdma),
            ]),
        })
    }
}

/// The device's access to memory that messages are received into. The way of exposure decides the
/// access of peers, if any.
const RECEIVED: Access = Access::LOCAL_WRITE;
/// The device's access to memory that messages are sent from: read.
const SENT: Access = Access::empty();

struct RegionMaker<'a> {
    config: &'a Config,
    registrar: Arc<dyn Registrar>,
    numa_node: Option<u32>,
}

impl RegionMaker<'_> {
    fn region<E: core::fmt::Display>(
        &self,
        what: &'static str,
        len: Result<usize, E>,
        access: Access,
    ) -> Result<Registered, SetupError> {
        let memory = self.config.memory();
        let mut spec = RegionSpec::new(len.map_err(of(what))?.max(1));
        spec.pages = match memory.pages {
            Pages::OneGiB => PageSize::Huge1G,
            Pages::TwoMiB => PageSize::Huge2M,
            Pages::Transparent => PageSize::Transparent,
            Pages::FourKiB => PageSize::Base4K,
        };
        spec.lock = memory.lock != Lock::Never;
        spec.prefault = memory.prefault;
        spec.numa_node = self.numa_node;
        spec.shared = self.registrar.wants_shared();
        let region = Region::map(&spec).map_err(of(what))?;
        self.check(what, &region)?;
        let rights = match self.config.explicit().exposure {
            Exposure::Windows | Exposure::Registration | Exposure::Auto => Rights::own(access),
            // SAFETY: only a user who names `static-insecure` gets this, and that user guarantees
            // that no peer touches memory that it was not offered, or that was offered for a call
            // that is over.
            Exposure::StaticInsecure => unsafe { Rights::of_peers(access) },
        };
        Registered::new(region, Arc::clone(&self.registrar), rights).map_err(of(what))
    }
}

impl RegionMaker<'_> {
    /// Checks that a region has what the configuration requires. A region smaller than a page is
    /// never in one of that size.
    fn check(&self, what: &'static str, region: &Region) -> Result<(), SetupError> {
        let memory = self.config.memory();
        for note in region.notes() {
            let (key, instead) = match note {
                Note::NotLocked { .. } if memory.lock == Lock::Always => {
                    ("memory.lock", "\"try\" locks what can be, false nothing")
                }
                Note::PagesRefused { .. } if !memory.smaller_pages => {
                    ("memory.pages", "with \"try-\" in front smaller ones do, too")
                }
                _ => continue,
            };
            let reason = format!("{what}: {note}; {instead}");
            return Err(SetupError::unmet(self.config, key, reason));
        }
        Ok(())
    }
}

fn sum<E>(left: Result<usize, E>, right: Result<usize, E>) -> Result<usize, E> {
    Ok(left?.saturating_add(right?))
}

fn of<E: core::fmt::Display>(what: &'static str) -> impl Fn(E) -> SetupError {
    move |error| SetupError::Memory { what, reason: error.to_string() }
}
