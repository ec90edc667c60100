//! The configurations of both ends, and the server with everything around it.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rpcrdma_config::{ConfigError, Raw};
use rpcrdma_engine::{Config, Engine, Provider, ShardHandle};
use rpcrdma_mempool::allowed_cores;

use crate::client::Session;
use crate::disk::{Disk, Workers};
use crate::server::BlockServer;

/// What a pair of ends is made for.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Who carries the messages, as a configuration names it.
    pub provider: &'static str,
    /// Bytes of the longest block.
    pub block_max: usize,
    /// Calls on their way at a time.
    pub window: usize,
    /// Segments that the server may have at the disk; `None` for as many as there can be.
    pub spares: Option<usize>,
    /// Whether a message may take several transmissions.
    pub continuation: bool,
}

impl Shape {
    /// Segments of a receive buffer: with continuation two, so that messages are continued from
    /// 128 KiB on; without, as many as a block takes, since it must fit one buffer.
    fn segments_per_buffer(&self) -> usize {
        if self.continuation { 2 } else { self.segments_per_block() }
    }

    fn segments_per_block(&self) -> usize {
        self.block_max.div_ceil(SEGMENT_LEN)
    }

    /// Transmissions of the longest message.
    fn transmissions(&self) -> usize {
        self.segments_per_block().div_ceil(self.segments_per_buffer())
    }

    /// What both ends have in common.
    fn common(&self) -> Raw {
        let mut raw = Raw::default();
        raw.engine.provider = self.provider.into();
        raw.engine.idle.policy = "backoff".into();
        raw.engine.idle.spin = "50us".into();
        raw.receive.placement.count = self.segments_per_buffer() as i64;
        raw.receive.placement.length = format!("{SEGMENT_LEN}B").into();
        raw.receive.placement.align = "4KiB".into();
        raw.connections.max = 1;
        raw.features.continuation = self.continuation;
        // A READ buffer ends at the end of a sector, and all of the window may be out at once.
        raw.app.bulk.count = 2 * self.window as i64;
        raw.app.bulk.length = format!("{}B", self.block_max.next_multiple_of(4096)).into();
        raw
    }

    /// The server: many receives for requests, none for replies, as it calls nobody.
    pub fn server(&self) -> Result<Config, ConfigError> {
        let mut raw = self.common();
        let transmissions = self.transmissions() as i64;
        if let [_, second, ..] = allowed_cores()[..] {
            raw.engine.cores = second.into();
        }
        let spares = self.spares.unwrap_or(self.window * self.segments_per_block());
        raw.receive.spares = spares as i64;
        raw.connections.credits = self.credits() as i64;
        raw.connections.request_transmissions_max = transmissions;
        raw.connections.response_transmissions_max = transmissions;
        raw.connections.calls_max = 0;
        raw.connections.credits_requested = 1;
        raw.connections.call_transmissions_max = 1;
        raw.connections.reply_transmissions_max = 1;
        Config::try_from(raw)
    }

    /// The client: receives for the replies to all calls of the window, and next to none beyond.
    pub fn client(&self) -> Result<Config, ConfigError> {
        let mut raw = self.common();
        let transmissions = self.transmissions() as i64;
        raw.receive.spares = 0;
        raw.receive.replies = (self.window as u32 * self.transmissions() as u32 + 1).into();
        raw.connections.credits = 1;
        raw.connections.request_transmissions_max = 1;
        raw.connections.response_transmissions_max = 1;
        raw.connections.calls_max = self.window as i64;
        raw.connections.credits_requested = self.credits() as i64;
        raw.connections.call_transmissions_max = transmissions;
        raw.connections.reply_transmissions_max = transmissions;
        Config::try_from(raw)
    }

    /// Enough for a window of the longest requests, and one for what comes between. There are
    /// never more calls than credits.
    fn credits(&self) -> usize {
        self.window * self.transmissions() + 1
    }
}

/// A server on its thread and a client for this one, on one device.
pub struct Pair<P: Provider> {
    /// The client, connected.
    pub session: Session<P>,
    /// The server's shard.
    pub server: ShardHandle,
    /// WRITEs that the server's shard did itself.
    pub own_writes: Arc<AtomicU64>,
    _client_engine: Engine<P>,
    server_engine: Engine<P>,
    disk: Arc<Disk>,
    workers: Workers,
}

impl<P: Provider + Clone> Pair<P> {
    /// Starts the server of a file and makes a client.
    pub fn start(
        (device, at): (P, IpAddr),
        shape: &Shape,
        path: &Path,
        direct: bool,
        workers: usize,
    ) -> Result<Pair<P>, Box<dyn std::error::Error>> {
        let (disk, workers) = Disk::start(path, direct, workers, shape.credits())?;
        let (disk, own_writes) = (Arc::new(disk), Arc::new(AtomicU64::new(0)));
        let mut server_engine = Engine::new(device.clone(), shape.server()?)?;
        server_engine.on_failure(|failure| eprintln!("block_store: the server: {failure}"));
        let make = {
            let (disk, own_writes) = (disk.clone(), own_writes.clone());
            let calls_max = shape.credits();
            move |shard| {
                disk.serve(shard);
                BlockServer::new(disk.clone(), own_writes.clone(), calls_max)
            }
        };
        let mut shards = server_engine.start(make)?;
        let server = shards.pop().ok_or("the configuration has no shard")?;
        let address = server_engine.listen(SocketAddr::new(at, 0))?;
        let client_engine = Engine::new(device, shape.client()?)?;
        client_engine.on_failure(|failure| eprintln!("block_store: the client: {failure}"));
        let session = Session::connect(client_engine.client()?, address)?;
        Ok(Pair {
            session,
            server,
            own_writes,
            _client_engine: client_engine,
            server_engine,
            disk,
            workers,
        })
    }

    /// Stops everything and waits until all threads have ended.
    pub fn stop(self) {
        let Pair { session, mut server_engine, disk, workers, .. } = self;
        drop(session);
        server_engine.stop();
        // The shard has dropped its share of the disk with its handler; this is the last.
        drop(server_engine);
        drop(disk);
        workers.join();
    }
}

/// Bytes of a placement segment.
pub const SEGMENT_LEN: usize = 64 << 10;
