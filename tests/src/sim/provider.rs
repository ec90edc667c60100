//! The provider of a run: the fabric, shared memory, TCP, or TCP over a virtual network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rpcrdma::fabric::{DeviceClock, FabricOptions};
use rpcrdma::provider::{DeviceCaps, QueueAttr, SetupError};
use rpcrdma::shm::ShmOptions;
use rpcrdma::tcp::TcpOptions;
use rpcrdma::{Address, Fabric, Provider, Shm, Tcp};
use rpcrdma_config::{Config, Raw};
use rpcrdma_iwarp::network::Network;
use rpcrdma_mempool::Registrar;

use super::scenario::Setup;
use crate::watch::Watch;

/// A provider without a device, in virtual time.
pub trait SimProvider: Provider + Clone {
    /// Its name at the command line.
    const NAME: &'static str;
    /// Where an engine listens.
    const ADDRESS: &'static str;

    /// Whether the bytes of an RDMA Read may come in several polls.
    const READS_COME_IN_PIECES: bool = false;

    /// The address of a server that comes back to it; `None` if the provider has none in virtual
    /// time.
    fn service(which: usize) -> Option<Address> {
        let _ = which;
        None
    }

    /// Opens it for a run.
    fn open(setup: &Setup, clock: &Arc<AtomicU64>) -> Self;

    /// What watches the devices of a run.
    fn watch() -> Arc<Watch> {
        let watch = Arc::<Watch>::default();
        watch.reads_come_in_pieces.store(Self::READS_COME_IN_PIECES, Ordering::Relaxed);
        watch
    }

    /// Completes the configuration of an engine on it.
    fn configure(setup: &Setup, raw: &mut Raw);

    /// A step of what carries the bytes, if that is part of the run.
    fn step(&self) {}

    /// From now on it cuts and hinders no connection.
    fn calm(&self) {}

    /// The connections that it has cut so far.
    fn cuts(&self) -> u64 {
        0
    }

    /// What has happened in it, and how often.
    fn seen(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

impl SimProvider for Fabric {
    const NAME: &'static str = "fabric";
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
    const NAME: &'static str = "shm";
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
    const NAME: &'static str = "tcp";
    const READS_COME_IN_PIECES: bool = true;
    const ADDRESS: &'static str = "127.0.0.1:0";

    fn open(setup: &Setup, clock: &Arc<AtomicU64>) -> Tcp {
        Tcp::with_options(tcp_options(setup, clock)).expect("they are allowed")
    }

    fn configure(setup: &Setup, raw: &mut Raw) {
        raw.engine.provider = "tcp".into();
        raw.tcp.crc = setup.maps_pools;
    }
}

/// TCP over a virtual network, which splits, delays and cuts.
#[derive(Debug, Clone)]
pub struct VirtualTcp {
    tcp: Tcp,
    network: Network,
}

impl Provider for VirtualTcp {
    type Queues = <Tcp as Provider>::Queues;
    type Cm = <Tcp as Provider>::Cm;

    fn caps(&self) -> &DeviceCaps {
        self.tcp.caps()
    }

    fn check(&self, config: &Config) -> Result<(), SetupError> {
        self.tcp.check(config)
    }

    fn registrar(&self) -> Arc<dyn Registrar> {
        self.tcp.registrar()
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<Self::Queues, SetupError> {
        self.tcp.open_queues(attr)
    }

    fn open_cm(&self) -> Result<Self::Cm, SetupError> {
        self.tcp.open_cm()
    }
}

impl SimProvider for VirtualTcp {
    const NAME: &'static str = "virtual-tcp";
    const READS_COME_IN_PIECES: bool = Tcp::READS_COME_IN_PIECES;
    const ADDRESS: &'static str = Tcp::ADDRESS;

    fn service(which: usize) -> Option<Address> {
        Fabric::service(which)
    }

    fn open(setup: &Setup, clock: &Arc<AtomicU64>) -> VirtualTcp {
        let (network, options) = (Network::new(setup.network), tcp_options(setup, clock));
        let tcp = Tcp::with_network(options, &network).expect("they are allowed");
        VirtualTcp { tcp, network }
    }

    fn configure(setup: &Setup, raw: &mut Raw) {
        Tcp::configure(setup, raw);
    }

    fn step(&self) {
        self.network.step();
    }

    fn calm(&self) {
        self.network.calm();
    }

    fn cuts(&self) -> u64 {
        self.network.counts().cuts()
    }

    fn seen(&self) -> Vec<(&'static str, u64)> {
        let counts = self.network.counts();
        vec![
            ("connections reset by the network", counts.resets),
            ("streams ended by the network", counts.ends),
            ("pieces of streams that came alone", counts.splits),
            ("sockets that were full", counts.full),
        ]
    }
}

fn tcp_options(setup: &Setup, clock: &Arc<AtomicU64>) -> TcpOptions {
    TcpOptions {
        crc: setup.maps_pools,
        rnr_timer_ns: setup.rnr_timer_ns,
        clock: DeviceClock::Virtual(Arc::clone(clock)),
        key_seed: Some(0),
        ..TcpOptions::default()
    }
}
