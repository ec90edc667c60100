//! Nothing that is done with a pool after it was made allocates.
#![expect(unsafe_code, reason = "an allocator is made of unsafe functions")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rpcrdma_mempool::{
    Access, BulkPool, Keys, PageSize, PoolSpec, RecvPool, RecvSpec, Region, RegionSpec,
    RegisterError, Registered, Registrar, Rights, SendPool, SendSpec,
};
use rpcrdma_xdr::{RecvStructure, SegmentGroup};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller owes the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller owes the same.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

struct Device;

impl Registrar for Device {
    fn register(&self, _: &Region, _: Rights) -> Result<Keys, RegisterError> {
        Ok(Keys { lkey: 1, rkey: 2 })
    }

    fn deregister(&self, _: Keys) -> std::io::Result<()> {
        Ok(())
    }
}

/// Allocations and deallocations of this thread in `run`.
fn allocations(run: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

#[test]
fn pools_do_not_allocate_after_they_are_made() {
    let placed = SegmentGroup { count: 2, length: 4096, align: 4096, placement: true };
    let inline = SegmentGroup { count: 1, length: 1024, align: 64, placement: false };
    let structure = RecvStructure::new(&[inline, placed]).expect("valid");
    let recv = RecvSpec { structure, buffers: 4, inline_spares: 0, placement_spares: 4 };
    let send = SendSpec { slots: 4, payload_len: 1024 };
    let bulk = PoolSpec { slots: 4, slot_len: 4096, align: 4096 };
    let lens = [recv.region_len(), send.region_len(), bulk.bulk_region_len()];
    let bytes = lens.into_iter().map(|len| len.expect("small")).sum();
    let spec = RegionSpec { pages: PageSize::Base4K, lock: false, ..RegionSpec::new(bytes) };
    let region = Region::map(&spec).expect("a few pages can be had");
    let mut memory =
        Registered::new(region, std::sync::Arc::new(Device), Rights::own(Access::LOCAL_WRITE))
            .expect("never full");
    let mut recv = RecvPool::new(&mut memory, &recv).expect("enough");
    let mut send = SendPool::new(&mut memory, &send).expect("enough");
    let mut bulk = BulkPool::new(&mut memory, &bulk).expect("enough");

    assert_ne!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 0, "the count counts");
    let turn = || {
        for round in 0..100 {
            let mut buffer = recv.take().expect("one is free");
            let loan = recv.detach(&mut buffer, 1 + round % 2).expect("a spare is free");
            let other = recv.detach(&mut buffer, 1).expect("a spare is free");
            recv.put(buffer);
            recv.give_back(loan).expect("its own");
            drop(other);
            recv.reclaim();
            let mut slot = send.pop().expect("one is free");
            send.payload_mut(&mut slot).fill(1);
            send.push(slot);
            let kept: [_; 4] = std::array::from_fn(|_| bulk.take().expect("a block"));
            for (n, block) in kept.into_iter().enumerate() {
                if n % 2 == 0 { bulk.give_back(block).expect("its own") } else { drop(block) }
            }
            bulk.reclaim();
        }
    };
    assert_eq!(allocations(turn), 0);
}
