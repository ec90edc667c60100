//! What other servers are known to do wrong: the checks expect it of those servers, and of no other.

use rpcrdma::ulb::ItemError;

use super::client::Read;
use super::rpc::{Failure, Take};

/// A defect of a server that a check would report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// A READ of 0 bytes ends the server. No check sends one.
    ReadOfNothing,
    /// Data of a READ in the payload stream are padded by their length modulo 4, and not to a
    /// multiple of 4: a length with remainder 1 lacks two bytes, one with remainder 3 has two more,
    /// unless a Reply chunk has no room for them.
    /// Where there is no room for that behind the data, in a buffer of 1 MiB, the last three bytes
    /// of the data are lost, in Write chunks, too.
    ReadPadding,
    /// READLINK is answered in the payload stream although it had a Write chunk. The checks offer
    /// none.
    LinksInLine,
    /// What is too long for the memory that was offered for it is cut off, without ERR_CHUNK.
    CutOff,
    /// A call that is repeated on another connection is executed again: each connection has its own
    /// cache of replies.
    RepeatsExecuted,
}

/// NFS-Ganesha 6.5 on ntirpc 6.3 with the patches of `tests/vm/ganesha`.
pub const GANESHA: &[Defect] = &[Defect::LinksInLine, Defect::CutOff, Defect::RepeatsExecuted];

/// As it was published.
pub const GANESHA_UNPATCHED: &[Defect] = &[
    Defect::ReadOfNothing,
    Defect::ReadPadding,
    Defect::LinksInLine,
    Defect::CutOff,
    Defect::RepeatsExecuted,
];

/// Whether data of this length are padded wrongly by [`Defect::ReadPadding`].
pub fn is_padded_wrongly(len: usize) -> bool {
    len % 2 == 1
}

/// Whether the end of data of this length is lost by [`Defect::ReadPadding`].
pub fn is_end_lost(len: usize) -> bool {
    len + len % 4 > BUFFER
}

/// # Panics
/// If a READ of `len` bytes in the payload stream does not end as [`Defect::ReadPadding`] says.
pub fn assert_padded_wrongly(read: Result<Read, Failure>, len: usize) {
    match (read, len % 4) {
        (Err(Failure::End | Failure::Item(ItemError::End(_))), 1) => {}
        (Err(Failure::Results(why)), 3) if why == "Some(2) bytes behind the results" => {}
        (read, _) => panic!("{len} bytes are padded otherwise: {read:?}"),
    }
}

/// # Panics
/// If results do not end as [`Defect::CutOff`] says.
pub fn assert_cut_off<T>(results: Result<T, Failure>) {
    match results {
        Err(Failure::Item(_) | Failure::End | Failure::Results(_)) => {}
        Err(why) => panic!("the call failed otherwise: {why:?}"),
        Ok(_) => panic!("the results are whole"),
    }
}

/// How to take `len` bytes of a server with these defects: as requested, or in a result buffer
/// where the payload stream cannot have them.
pub fn possible(take: Take, len: usize, defects: &[Defect]) -> Take {
    let is_broken = defects.contains(&Defect::ReadPadding) && is_padded_wrongly(len);
    if is_broken && !matches!(take, Take::Sink(_)) { Take::Sink(1) } else { take }
}

/// The length of Ganesha's buffers for data.
const BUFFER: usize = 1 << 20;
