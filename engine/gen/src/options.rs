//! What a description is read with.

use std::path::PathBuf;

/// What a description is read with.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Folders where files are searched that a description includes, behind its own folder.
    pub include: Vec<PathBuf>,
    /// Names that are defined, `NAME` or `NAME=NUMBER`. rpcgen defines one of `RPC_HDR`, `RPC_XDR`, `RPC_SVC`,
    /// `RPC_CLNT` and `RPC_TBL` for each of its outputs; here none is.
    pub defines: Vec<String>,
}
