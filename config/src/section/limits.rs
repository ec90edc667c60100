//! Limits of values in sections.

/// The longest receive buffer with all its segments: 4 MiB.
pub const BUFFER_LEN_MAX: u32 = 4 << 20;
/// The largest alignment of a placement segment: a huge page.
pub const ALIGN_MAX: u32 = 2 << 20;
/// The maximum of items of one message (`wire.md` E40).
pub const CHUNKS_MAX: u32 = 64;
/// The maximum of segments of one chunk (`wire.md` E40).
pub const SEGMENTS_MAX: u32 = 256;
/// The maximum of Receives of one shard.
pub const RECEIVES_MAX: u32 = 65_536;
