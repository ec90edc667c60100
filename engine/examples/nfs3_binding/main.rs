//! NFS version 3 by its binding: a client and a server of one file, in one process.
//!
//! Neither says of any item whether it may be placed: `ulb::nfs3` does. What is here is the XDR of
//! five procedures.

mod client;
mod server;
#[cfg(test)]
mod tests;

use rpcrdma_engine::{Config, Engine, Fabric, ShardHandle};

use client::{Ask, Nfs};
use server::{Counts, OneFile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for ask in [Ask::Apart, Ask::Into, Ask::Either, Ask::BySize(20_000)] {
        let Seen { size, link, placed_arguments, results, reads, writes } =
            show(Config::profile("laptop")?, ask)?;
        println!("{ask:?}: wrote and read {size} bytes; the link leads to {link:?}");
        println!("  placed: {placed_arguments} arguments, {} results", results.placed);
        println!("  explicit RDMA: {reads} Reads, {writes} Writes; {} sinks back", results.sinks);
    }
    Ok(())
}

/// What became of it.
#[derive(Debug, PartialEq)]
struct Seen {
    /// Of the file, as GETATTR says.
    size: u64,
    /// Where the link leads.
    link: String,
    /// WRITEs whose data did not come in the stream.
    placed_arguments: u64,
    /// What the client saw of its results.
    results: client::Counts,
    /// Requests for explicit RDMA that the server has made.
    reads: u64,
    writes: u64,
}

/// Writes a file in blocks, reads it back and compares.
fn show(config: Config, ask: Ask) -> Result<Seen, Box<dyn std::error::Error>> {
    const BLOCK: u32 = 40_000;
    const BLOCKS: u32 = 5;
    let mut engine = Engine::new(Fabric::from_config(&config)?, config)?;
    let counts = Counts::default();
    let of_server = counts.clone();
    let serving = engine.start(move |_shard| OneFile::new("/export/target", of_server.clone()))?;
    let address = engine.listen("127.0.0.1:0".parse()?)?;
    let mut nfs = Nfs::connect(engine.client()?, address, ask)?;

    nfs.null()?;
    for block in 0..BLOCKS {
        let data: Vec<u8> = (0..BLOCK).map(|at| pattern(block * BLOCK + at)).collect();
        let written = nfs.write(u64::from(block * BLOCK), &data)?;
        assert_eq!(written, BLOCK, "the server has room for it");
    }
    let size = nfs.size()?;
    for block in 0..BLOCKS {
        let data = nfs.read(u64::from(block * BLOCK), BLOCK)?;
        let expected = (0..BLOCK).map(|at| pattern(block * BLOCK + at));
        assert!(data.iter().copied().eq(expected), "block {block} comes back as it was written");
    }
    let link = nfs.readlink()?;
    // Behind the end there is nothing: a result of no bytes.
    assert_eq!(nfs.read(size, BLOCK)?, b"");
    let results = nfs.counts();
    drop(nfs);
    engine.stop();
    let (mut reads, mut writes) = (0, 0);
    for stats in serving.iter().map(ShardHandle::stats) {
        reads += stats.reads;
        writes += stats.writes;
    }
    Ok(Seen { size, link, placed_arguments: counts.placed(), results, reads, writes })
}

fn pattern(at: u32) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 24) as u8
}
