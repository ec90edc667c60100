//! The table `[interop]` of a configuration file, before values are checked.

use serde::{Deserialize, Serialize};

use crate::text::RawText;

/// `[interop]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawInterop {
    /// The maximum of arguments of one call that the peer reads.
    pub read_chunks_max: i64,
    /// Whether the peer reads only the argument at the end of a call.
    pub read_chunk_last: bool,
    /// The maximum of results of one call that the peer writes.
    pub write_chunks_max: i64,
    /// Whether up to three bytes behind a result in its Write chunk are taken for padding.
    pub write_chunk_padding: bool,
    /// Whether the targets of links are requested in the payload stream.
    pub links_in_line: bool,
    /// The maximum of segments of an offered chunk.
    pub segments_max: i64,
    /// `when-needed` or `always`.
    pub reply_chunk: RawText,
    /// Whether a call that is read as a whole may also have a Read chunk for an argument.
    pub long_call_with_chunks: bool,
    /// Whether a Write chunk and a Reply chunk may be offered together.
    pub write_with_reply: bool,
    /// Whether remote invalidation by the reply's Send is permitted.
    pub remote_invalidation: bool,
}

impl Default for RawInterop {
    fn default() -> Self {
        Self {
            read_chunks_max: 1,
            read_chunk_last: false,
            write_chunks_max: 1,
            write_chunk_padding: false,
            links_in_line: false,
            segments_max: 16,
            reply_chunk: "when-needed".into(),
            long_call_with_chunks: false,
            write_with_reply: false,
            remote_invalidation: true,
        }
    }
}
