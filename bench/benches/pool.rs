//! Buffer pools: cost of taking, naming and returning a buffer.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use rpcrdma_mempool::{
    Access, BulkPool, Keys, Pool, PoolSpec, Region, RegionSpec, RegisterError, Registered,
    Registrar, Rights, kind,
};

struct Device;

impl Registrar for Device {
    fn register(&self, _region: &Region, _: Rights) -> Result<Keys, RegisterError> {
        Ok(Keys { lkey: 1, rkey: 1 })
    }

    fn deregister(&self, _keys: Keys) -> std::io::Result<()> {
        Ok(())
    }
}

const SPEC: PoolSpec = PoolSpec { slots: 256, slot_len: 4096, align: 64 };

fn registered(bytes: usize) -> Registered {
    let spec = RegionSpec { lock: false, ..RegionSpec::new(bytes) };
    let region = Region::map(&spec).expect("a megabyte can be mapped");
    Registered::new(region, std::sync::Arc::new(Device), Rights::own(Access::LOCAL_WRITE))
        .expect("the device takes everything")
}

fn pool() -> Pool<kind::Send> {
    let bytes = SPEC.region_len().expect("a small pool");
    Pool::new(&mut registered(bytes + SPEC.align), &SPEC).expect("the region is large enough")
}

fn slots(c: &mut Criterion) {
    let mut group = c.benchmark_group("slot");
    group.bench_function("pop and push", |b| {
        let mut pool = pool();
        b.iter(|| {
            let token = pool.pop().expect("the pool is full");
            pool.push(black_box(token));
        });
    });
    group.bench_function("pop, gather entry, push", |b| {
        let mut pool = pool();
        b.iter(|| {
            let token = pool.pop().expect("the pool is full");
            black_box(pool.sge(&token, 0..black_box(136)));
            pool.push(token);
        });
    });
    group.bench_function("pop and push of 32", |b| {
        let mut pool = pool();
        let mut out = Vec::with_capacity(32);
        b.iter(|| {
            out.extend((0..32).map_while(|_| pool.pop()));
            out.drain(..).for_each(|token| pool.push(token));
        });
    });
    group.finish();
}

fn loans(c: &mut Criterion) {
    let mut group = c.benchmark_group("loan");
    let bulk = || {
        let bytes = SPEC.region_len().expect("a small pool");
        BulkPool::new(&mut registered(bytes + SPEC.align), &SPEC).expect("the region is enough")
    };
    group.bench_function("take and give back, same thread", |b| {
        let mut bulk = bulk();
        b.iter(|| {
            let loan = bulk.take().expect("the pool is full");
            bulk.give_back(black_box(loan)).expect("the loan is the pool's own");
        });
    });
    group.bench_function("take, drop, reclaim", |b| {
        let mut bulk = bulk();
        b.iter(|| {
            drop(black_box(bulk.take().expect("the pool is full")));
            bulk.reclaim();
        });
    });
    group.finish();
}

criterion_group!(benches, slots, loans);
criterion_main!(benches);
