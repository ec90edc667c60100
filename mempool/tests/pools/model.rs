//! Pools compared with models: no slot has two owners, and every slot returns.

use std::collections::HashSet;

use proptest::prelude::*;
use rpcrdma_mempool::{
    Access, BulkPool, Keys, Loan, PageSize, Pool, PoolSpec, RecvPool, RecvSpec, RecvToken, Region,
    RegionSpec, RegisterError, Registered, Registrar, Rights, SendToken, Token, kind,
};
use rpcrdma_xdr::{RecvStructure, SegmentGroup};

/// A device that accepts every region.
struct Device;

impl Registrar for Device {
    fn register(&self, _: &Region, _: Rights) -> Result<Keys, RegisterError> {
        Ok(Keys { lkey: 1, rkey: 2 })
    }

    fn deregister(&self, _: Keys) -> std::io::Result<()> {
        Ok(())
    }
}

fn memory(bytes: usize) -> Registered {
    let spec = RegionSpec { pages: PageSize::Base4K, lock: false, ..RegionSpec::new(bytes) };
    let region = Region::map(&spec).expect("a few pages can be had");
    Registered::new(region, std::sync::Arc::new(Device), Rights::own(Access::LOCAL_WRITE))
        .expect("never full")
}

fn on_another_thread(run: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(run).join().expect("does not panic"));
}

/// What can be done to a pool; numbers choose among what is there.
#[derive(Debug, Clone)]
enum Step {
    Take,
    Put(usize),
    Detach { token: usize, segment: usize },
    GiveBack(usize),
    Drop(usize),
    DropElsewhere(usize),
    Reclaim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Take),
        2 => (0..8usize).prop_map(Step::Put),
        4 => (0..8usize, 0..4usize).prop_map(|(token, segment)| Step::Detach { token, segment }),
        1 => (0..8usize).prop_map(Step::GiveBack),
        1 => (0..8usize).prop_map(Step::Drop),
        1 => (0..8usize).prop_map(Step::DropElsewhere),
        1 => Just(Step::Reclaim),
    ]
}

/// Segments 0 | 1 2 | 3 of kinds inline | small | large.
fn structure() -> RecvStructure {
    let group = |count, length, align, placement| SegmentGroup { count, length, align, placement };
    RecvStructure::new(&[
        group(1, 48, 0, false),
        group(2, 128, 128, true),
        group(1, 300, 1024, true),
    ])
    .expect("a valid structure")
}

const KIND_OF: [usize; 4] = [0, 1, 1, 2];
const SPEC_BUFFERS: u32 = 4;
const INLINE_SPARES: u32 = 1;
const PLACEMENT_SPARES: u32 = 3;

fn recv_pool() -> RecvPool {
    let spec = RecvSpec {
        structure: structure(),
        buffers: SPEC_BUFFERS,
        inline_spares: INLINE_SPARES,
        placement_spares: PLACEMENT_SPARES,
    };
    let mut memory = memory(spec.region_len().expect("small"));
    RecvPool::new(&mut memory, &spec).expect("as much as was asked for")
}

/// The pool, what is out of it, and what is written in each piece.
struct World {
    pool: RecvPool,
    tokens: Vec<(RecvToken, u8)>,
    loans: Vec<(Loan, usize, u8)>,
    stamp: u8,
}

impl World {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Take => {
                let taken = self.pool.take();
                assert_eq!(taken.is_some(), self.tokens.len() < SPEC_BUFFERS as usize);
                if let Some(token) = taken {
                    self.keep(token);
                }
            }
            Step::Put(n) if n < self.tokens.len() => {
                let (token, _) = self.tokens.swap_remove(n);
                self.pool.put(token);
            }
            Step::Detach { token, segment } if token < self.tokens.len() => {
                let (mut token, stamp) = self.tokens.swap_remove(token);
                let kind = KIND_OF[segment];
                let out = self.loans.iter().filter(|(_, of, _)| *of == kind).count();
                let spares = if kind == 0 { INLINE_SPARES } else { PLACEMENT_SPARES };
                let loan = self.pool.detach(&mut token, segment);
                assert_eq!(loan.is_some(), out < spares as usize, "{out} of kind {kind} are out");
                self.loans.extend(loan.map(|loan| (loan, kind, stamp)));
                self.keep(token);
            }
            Step::GiveBack(n) if n < self.loans.len() => {
                self.pool.give_back(self.loans.swap_remove(n).0).expect("its own");
            }
            Step::Drop(n) if n < self.loans.len() => drop(self.loans.swap_remove(n)),
            Step::DropElsewhere(n) if n < self.loans.len() => {
                let loan = self.loans.swap_remove(n);
                on_another_thread(|| drop(loan));
            }
            Step::Reclaim => self.pool.reclaim(),
            _ => {}
        }
    }

    /// Writes over the whole buffer, so that a piece that is in two hands shows.
    fn keep(&mut self, mut token: RecvToken) {
        self.stamp = self.stamp.wrapping_add(1);
        self.pool.fill(&mut token, self.stamp);
        self.tokens.push((token, self.stamp));
    }

    fn check(&self) {
        for (token, stamp) in &self.tokens {
            let scatter = self.pool.scatter(token);
            assert_eq!(scatter.len(), KIND_OF.len());
            for (shape, sge) in structure().segments().zip(scatter) {
                let bytes = self.pool.segment(token, shape.index as usize);
                assert!(bytes.iter().all(|byte| byte == stamp), "written by another hand");
                assert_eq!(bytes.as_ptr().addr() as u64, sge.addr);
                assert_eq!((bytes.len() as u32, sge.length), (shape.length, shape.length));
                assert!(sge.addr.is_multiple_of(u64::from(shape.align.max(1))));
            }
        }
        for (loan, _, stamp) in &self.loans {
            assert!(loan.iter().all(|byte| byte == stamp), "written by another hand");
        }
        assert_eq!(self.pool.free() + self.tokens.len(), SPEC_BUFFERS as usize);
    }

    fn all_returned(mut self) {
        self.tokens.drain(..).for_each(|(token, _)| self.pool.put(token));
        self.loans.clear();
        self.pool.reclaim();
        assert_eq!(self.pool.free(), self.pool.capacity());
        let spares: Vec<usize> = (0..KIND_OF.len()).map(|i| self.pool.spares(i)).collect();
        assert_eq!(spares, [1, 3, 3, 3]);
    }
}

proptest! {
    #[test]
    fn receive_buffers_have_one_owner_and_return(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut world = World { pool: recv_pool(), tokens: vec![], loans: vec![], stamp: 0 };
        for step in &steps {
            world.run(step);
            world.check();
        }
        world.all_returned();
    }

    #[test]
    fn slots_have_one_owner_and_return(
        slots in 1..9u32,
        steps in prop::collection::vec(prop::option::of(0..9usize), 0..80),
    ) {
        let spec = PoolSpec { slots, slot_len: 40, align: 1 };
        let mut memory = memory(spec.region_len().expect("small"));
        let mut pool = Pool::<kind::Send>::new(&mut memory, &spec).expect("enough");
        // The model: the free slots, the last returned last.
        let mut free: Vec<u32> = (0..slots).rev().collect();
        let mut out: Vec<SendToken> = Vec::new();
        for step in steps {
            match step {
                None => {
                    let token = pool.pop();
                    prop_assert_eq!(token.as_ref().map(Token::index), free.pop());
                    out.extend(token);
                }
                Some(n) if n < out.len() => {
                    let token = out.swap_remove(n);
                    free.push(token.index());
                    pool.push(token);
                }
                Some(_) => {}
            }
            for token in &mut out {
                let index = token.index() as u8;
                pool.bytes_mut(token).fill(index);
            }
            for token in &out {
                let index = token.index() as u8;
                prop_assert!(pool.bytes(token).iter().all(|byte| *byte == index));
            }
            let addresses: HashSet<u64> = out.iter().map(|token| pool.addr(token)).collect();
            prop_assert_eq!(addresses.len() + pool.free(), pool.capacity());
        }
        out.into_iter().for_each(|token| pool.push(token));
        prop_assert_eq!(pool.free(), slots as usize);
    }

    #[test]
    fn every_segment_of_every_structure_has_the_right_place(
        groups in prop::collection::vec((1..4u32, 1..5000u32, 0..14u32, any::<bool>()), 1..6),
        buffers in 1..6u32,
        placement_spares in 0..3u32,
    ) {
        let groups: Vec<SegmentGroup> = groups
            .into_iter()
            .map(|(count, length, shift, placement)| SegmentGroup {
                count, length, align: (1 << shift) >> 1, placement,
            })
            .collect();
        let structure = RecvStructure::new(&groups).expect("valid");
        let spec = RecvSpec { structure, buffers, inline_spares: 0, placement_spares };
        let mut memory = memory(spec.region_len().expect("small"));
        let mut pool = RecvPool::new(&mut memory, &spec).expect("region_len suffices");
        let tokens: Vec<RecvToken> = std::iter::from_fn(|| pool.take()).collect();
        prop_assert_eq!(tokens.len(), buffers as usize);
        let mut ranges = Vec::new();
        for token in &tokens {
            prop_assert_eq!(pool.scatter(token).len() as u32, structure.segment_count());
            for (segment, sge) in structure.segments().zip(pool.scatter(token)) {
                prop_assert_eq!(sge.length, segment.length);
                prop_assert!(sge.addr.is_multiple_of(u64::from(segment.align.max(64))));
                ranges.push((sge.addr, sge.addr + u64::from(sge.length)));
            }
        }
        ranges.sort_unstable();
        prop_assert!(ranges.is_sorted_by(|a, b| a.1 <= b.0), "segments overlap");
        let base = memory.region().base().as_ptr().addr() as u64;
        let end = base + memory.region().len() as u64;
        prop_assert!(ranges.iter().all(|range| base <= range.0 && range.1 <= end));
        tokens.into_iter().for_each(|token| pool.put(token));
    }
}

#[test]
fn loans_dropped_on_other_threads_return_while_buffers_are_in_use() {
    let mut pool = recv_pool();
    let rounds: u32 = if cfg!(miri) { 50 } else { 20_000 };
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let (sender, loans) = std::sync::mpsc::sync_channel::<(Loan, u8)>(8);
                scope.spawn(move || {
                    for (mut loan, stamp) in loans {
                        assert!(loan.iter().all(|byte| *byte == stamp), "written by another hand");
                        loan.fill(0xEE);
                    }
                });
                sender
            })
            .collect();
        let mut sent = 0;
        while sent < rounds {
            let mut token = pool.take().expect("buffers are put back each time");
            let stamp = (sent % 200) as u8;
            pool.fill(&mut token, stamp);
            // Spares are out when both threads are slow: try again.
            if let Some(loan) = pool.detach(&mut token, 1 + sent as usize % 3) {
                senders[sent as usize % 2].send((loan, stamp)).expect("the thread takes loans");
                sent += 1;
            } else {
                std::thread::yield_now();
            }
            pool.put(token);
        }
    });
    pool.reclaim();
    assert_eq!([pool.spares(0), pool.spares(1), pool.spares(3)], [1, 3, 3]);
}

#[test]
fn blocks_of_a_pool_return_to_it_and_may_outlive_it() {
    let spec = PoolSpec { slots: 3, slot_len: 64 << 10, align: 4096 };
    let mut memory = memory(spec.bulk_region_len().expect("small"));
    let mut pool = BulkPool::new(&mut memory, &spec).expect("as much as was asked for");
    let mut blocks: Vec<Loan> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!((blocks.len(), pool.free(), pool.capacity()), (3, 0, 3));
    assert!(blocks.iter().all(|block| block.as_ptr().addr().is_multiple_of(4096)));

    on_another_thread(|| drop(blocks.pop()));
    pool.give_back(blocks.pop().expect("three")).expect("its own");
    assert_eq!((pool.free(), pool.returning()), (1, 1), "the other waits to be reclaimed");
    assert!(pool.take().is_some());
    let back = pool.take().expect("`take` reclaims before it gives up");
    assert_eq!((pool.free(), pool.returning()), (1, 0));
    assert!(pool.take().is_some(), "the block dropped two lines above");

    let mut last = blocks.pop().expect("three");
    drop((pool, memory, back));
    last.fill(3);
    on_another_thread(move || assert!(last.iter().all(|byte| *byte == 3)));
}

#[test]
fn a_loan_given_to_the_wrong_pool_is_returned() {
    let spec = PoolSpec { slots: 1, slot_len: 64, align: 1 };
    let mut memory = memory(2 * spec.bulk_region_len().expect("small"));
    let mut one = BulkPool::new(&mut memory, &spec).expect("room for two");
    let mut other = BulkPool::new(&mut memory, &spec).expect("room for two");
    let loan = one.take().expect("a block");
    assert_eq!((one.owns(&loan), other.owns(&loan)), (true, false));
    let loan = other.give_back(loan).expect_err("another's");
    assert_eq!((one.free(), other.free()), (0, 1));
    one.give_back(loan).expect("its own");
    assert_eq!(one.free(), 1);
    one.poison(0x5A);
    assert!(one.take().expect("a block").iter().all(|byte| *byte == 0x5A));
}
