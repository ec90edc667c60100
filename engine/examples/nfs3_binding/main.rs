//! NFS version 3 by its binding: a client and a server of one file, in one process.
//!
//! Neither says of any item whether it may be placed: `ulb::nfs3` does. What is here is the XDR of
//! five procedures.

mod client;
mod server;
#[cfg(test)]
mod tests;

use rpcrdma_engine::{Config, Engine, Fabric};

use client::Nfs;
use server::{Counts, OneFile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seen = show(Config::profile("laptop")?)?;
    println!("wrote and read {} bytes; the link leads to {:?}", seen.size, seen.link);
    println!("placed: {} arguments, {} results", seen.placed_arguments, seen.placed_results);
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
    /// READs and READLINKs whose data did not come in the stream.
    placed_results: u64,
}

/// Writes a file in blocks, reads it back and compares.
fn show(config: Config) -> Result<Seen, Box<dyn std::error::Error>> {
    const BLOCK: u32 = 40_000;
    const BLOCKS: u32 = 5;
    let mut engine = Engine::new(Fabric::new(), config)?;
    let counts = Counts::default();
    let of_server = counts.clone();
    engine.start(move |_shard| OneFile::new("/export/target", of_server.clone()))?;
    let address = engine.listen("127.0.0.1:0".parse()?)?;
    let mut nfs = Nfs::connect(engine.client()?, address)?;

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
    let placed_results = nfs.placed_results();
    drop(nfs);
    engine.stop();
    Ok(Seen { size, link, placed_arguments: counts.placed(), placed_results })
}

fn pattern(at: u32) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 24) as u8
}
