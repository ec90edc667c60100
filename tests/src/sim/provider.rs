//! The provider of a run: the fabric, shared memory, or TCP.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rpcrdma_config::Raw;
use rpcrdma_engine::fabric::{DeviceClock, FabricOptions};
use rpcrdma_engine::shm::ShmOptions;
use rpcrdma_engine::tcp::TcpOptions;
use rpcrdma_engine::{Address, Fabric, Provider, Shm, Tcp};

use super::scenario::Setup;

/// A provider without a device, in virtual time.
pub trait SimProvider: Provider + Clone {
    /// Where an engine listens.
    const ADDRESS: &'static str;

    /// The address of a server that comes back to it; `None` if the provider has none in virtual
    /// time.
    fn service(which: usize) -> Option<Address> {
        let _ = which;
        None
    }

    /// Opens it for a run.
    fn open(setup: &Setup, clock: &Arc<AtomicU64>) -> Self;

    /// Completes the configuration of an engine on it.
    fn configure(setup: &Setup, raw: &mut Raw);
}

impl SimProvider for Fabric {
    const ADDRESS: &'static str = "127.0.0.1:0";

    fn service(which: usize) -> Option<Address> {
        format!("127.0.0.1:{}", 2049 + which).parse().ok()
    }

    fn open(setup: &Setup, clock: &Arc<AtomicU64>) -> Fabric {
        let options = FabricOptions {
            slots: setup.slots,
            delay_ns: setup.delay_ns,
            rnr_timer_ns: setup.rnr_timer_ns,
            clock: DeviceClock::Virtual(Arc::clone(clock)),
            key_seed: Some(0),
            ..FabricOptions::default()
        };
        Fabric::with_options(options).expect("slots are a power of two")
    }

    fn configure(setup: &Setup, raw: &mut Raw) {
        raw.fabric.ring_slots = setup.slots.into();
        raw.fabric.delay = format!("{}ns", setup.delay_ns).into();
    }
}

/// Another thread learns that a socket is closed: the same seed does not always give the same run.
impl SimProvider for Shm {
    const ADDRESS: &'static str = "shm:@";

    fn open(setup: &Setup, clock: &Arc<AtomicU64>) -> Shm {
        let options = ShmOptions {
            slots: setup.slots,
            map_pools: setup.maps_pools,
            rnr_timer_ns: setup.rnr_timer_ns,
            clock: DeviceClock::Virtual(Arc::clone(clock)),
            key_seed: Some(0),
            ..ShmOptions::default()
        };
        Shm::with_options(options).expect("slots are a power of two")
    }

    fn configure(setup: &Setup, raw: &mut Raw) {
        raw.engine.provider = "shm".into();
        raw.shm.ring_slots = setup.slots.into();
        raw.shm.map_pools = setup.maps_pools;
    }
}

/// The system carries the bytes: the same seed does not always give the same run.
impl SimProvider for Tcp {
    const ADDRESS: &'static str = "127.0.0.1:0";

    fn open(setup: &Setup, clock: &Arc<AtomicU64>) -> Tcp {
        let options = TcpOptions {
            crc: setup.maps_pools,
            rnr_timer_ns: setup.rnr_timer_ns,
            clock: DeviceClock::Virtual(Arc::clone(clock)),
            key_seed: Some(0),
            ..TcpOptions::default()
        };
        Tcp::with_options(options).expect("they are allowed")
    }

    fn configure(setup: &Setup, raw: &mut Raw) {
        raw.engine.provider = "tcp".into();
        raw.tcp.crc = setup.maps_pools;
    }
}
