//! Scripts: the content of a call and of its reply, and both as plain XDR streams.
//!
//! ```text
//!   call    | xid CALL  | order | seed | want<> | reply parts<> | call parts<> | opaque<> ...
//!   reply   | xid REPLY | seed | items placed in the call | opaque<> ...
//! ```
//! The stream of a message is the same whether its parts are sent inline or placed. So a receiver
//! inserts the placed items again, and compares the result with the plain stream.

use std::sync::LazyLock;

use rpcrdma::onc::{AcceptStatus, ReplyHeader};
use rpcrdma::{Incoming, Payload, Want};

/// One variable-length opaque of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Written into the payload.
    Inline(u32),
    /// Placed: sent from its memory without a copy.
    Bulk(u32),
}

impl Part {
    /// Its length in bytes.
    pub fn len(&self) -> u32 {
        let (Part::Inline(len) | Part::Bulk(len)) = *self;
        len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How the service answers a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Answers at once.
    Answer,
    /// Defers, and answers in a later turn, in no particular order.
    Later,
    /// Defers, and gives ticket and answer to the test.
    Elsewhere,
    /// Rejects the call.
    Refuse,
    /// Defers, and keeps the ticket until the test takes it.
    Never,
    /// Takes the segments of the first item and sends them back as the bulk of the reply.
    Relay,
    /// Takes the segments of all items and keeps them.
    Keep,
}

/// A call and its expected reply.
#[derive(Debug, Clone)]
pub struct Script {
    /// How the service answers.
    pub order: Order,
    /// The seed of the pattern of the parts.
    pub seed: u32,
    /// The parts of the call.
    pub call: Vec<Part>,
    /// The parts of the reply.
    pub reply: Vec<Part>,
    /// The requested items of the reply; by default one for each bulk part.
    pub wants: Vec<Want>,
    /// Where they are to be placed.
    pub place: Place,
}

/// Where the items of a reply are to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In memory that the engine chooses.
    Anywhere,
    /// In a sink of this number of pieces.
    Into(u32),
    /// In a sink of this number of pieces, or in receive buffers.
    Either(u32),
    /// In a sink of two pieces if they are longer than this.
    BySize(u32),
}

impl Place {
    /// The number of pieces of the sink.
    pub fn pieces(self) -> u32 {
        match self {
            Place::Anywhere => 0,
            Place::Into(pieces) | Place::Either(pieces) => pieces,
            Place::BySize(_) => 2,
        }
    }
}

impl Script {
    /// A call that is answered at once, with every bulk part of the reply requested.
    pub fn new(seed: u32, call: &[Part], reply: &[Part]) -> Script {
        let wanted = reply.iter().filter_map(|part| match part {
            Part::Bulk(len) => Some(Want { len_min: 0, len_max: *len }),
            Part::Inline(_) => None,
        });
        let (call, reply) = (call.to_vec(), reply.to_vec());
        let (order, place) = (Order::Answer, Place::Anywhere);
        Script { order, seed, wants: wanted.clone().collect(), call, reply, place }
    }

    /// The same with another order.
    pub fn order(mut self, order: Order) -> Script {
        self.order = order;
        self
    }

    /// The same with other requested items.
    pub fn wants(mut self, wants: &[Want]) -> Script {
        self.wants = wants.to_vec();
        self
    }

    /// The same, with the items placed elsewhere.
    pub fn place(mut self, place: Place) -> Script {
        self.place = place;
        self
    }

    /// The bytes of the first bulk part of the call that has any.
    pub fn first_bulk(&self) -> Option<Vec<u8>> {
        self.call.iter().enumerate().find_map(|(index, part)| match *part {
            Part::Bulk(len) if len > 0 => Some(part_bytes(self.seed, index, len)),
            _ => None,
        })
    }

    /// The head of the call, after XID and message type.
    pub fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        put(&mut head, self.order as u32);
        put(&mut head, self.seed);
        for parts in [&self.reply, &self.call] {
            put(&mut head, parts.len() as u32);
            for part in parts {
                let (kind, len) = match part {
                    Part::Inline(len) => (0, *len),
                    Part::Bulk(len) => (1, *len),
                };
                put(&mut head, kind);
                put(&mut head, len);
            }
        }
        head
    }

    /// The call as one stream, after XID and message type.
    pub fn call_stream(&self) -> Vec<u8> {
        let mut stream = self.head();
        put_parts(&mut stream, self.seed, &self.call);
        stream
    }

    /// The reply as one stream, after XID and message type.
    pub fn reply_stream(&self, placed_in_call: u32) -> Vec<u8> {
        let mut stream = Vec::new();
        put(&mut stream, self.seed);
        put(&mut stream, placed_in_call);
        put_parts(&mut stream, reply_seed(self.seed), &self.reply);
        stream
    }

    /// Bytes of the reply's payload if every requested item is placed, and if none is.
    pub fn reply_payload_max(&self) -> u32 {
        let mut wants = self.wants.iter();
        let len = |part: &Part| match part {
            Part::Inline(len) => 4 + len.next_multiple_of(4),
            Part::Bulk(len) => match wants.next() {
                Some(want) if *len >= want.len_min => 4,
                _ => 4 + len.next_multiple_of(4),
            },
        };
        16 + self.reply.iter().map(len).sum::<u32>()
    }

    /// Reads the head of a call. `None` if it is not a script, or its parts have more than a
    /// megabyte.
    pub fn parse(stream: &[u8]) -> Option<Script> {
        let mut words = stream.chunks_exact(4);
        let mut word =
            || words.next().map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
        let order = *ORDERS.get(word()? as usize)?;
        let seed = word()?;
        let mut lists = [Vec::new(), Vec::new()];
        for parts in &mut lists {
            let mut left = PARTS_LEN_MAX;
            for _ in 0..word()? {
                let (kind, len) = (word()?, word()?);
                left = left.checked_sub(len)?;
                parts.push(if kind == 0 { Part::Inline(len) } else { Part::Bulk(len) });
            }
        }
        let [reply, call] = lists;
        Some(Script { order, seed, call, reply, wants: Vec::new(), place: Place::Anywhere })
    }
}

/// Bytes of the parts of one message.
const PARTS_LEN_MAX: u32 = (1 << 20) + (64 << 10);

const ORDERS: [Order; 7] = [
    Order::Answer,
    Order::Later,
    Order::Elsewhere,
    Order::Refuse,
    Order::Never,
    Order::Relay,
    Order::Keep,
];

/// The pattern of a reply differs from that of its call.
pub fn reply_seed(seed: u32) -> u32 {
    seed.wrapping_mul(0x9e37_79b9) ^ 0x5bd1
}

/// The bytes of part `index`.
pub fn part_bytes(seed: u32, index: usize, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    write_pattern(&mut bytes, part_offset(seed, index));
    bytes
}

/// The offset of part `index` in the pattern: not aligned, so that errors do not hide.
pub fn part_offset(seed: u32, index: usize) -> usize {
    (seed as usize).wrapping_mul(31).wrapping_add(index * 7919) % OFFSETS
}

/// Part offsets are below this.
pub const OFFSETS: usize = 4096;

/// Fills memory with the pattern from `start` on: every byte depends on its offset, none is zero
/// and none is [`POISON`].
pub fn write_pattern(bytes: &mut [u8], start: usize) {
    static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| (0..PERIOD).map(pattern_at).collect());
    let (mut left, mut at) = (bytes, start % PERIOD);
    while !left.is_empty() {
        let whole = &PATTERN[at..];
        let (next, rest) = left.split_at_mut(whole.len().min(left.len()));
        next.copy_from_slice(&whole[..next.len()]);
        (left, at) = (rest, 0);
    }
}

/// The pattern repeats after so many bytes. A prime: no length of a buffer, a segment or a page is a
/// multiple of it, so bytes from the wrong place differ.
const PERIOD: usize = 65_521;

fn pattern_at(at: usize) -> u8 {
    let mixed = (at as u32).wrapping_mul(0x9e37_79b1).rotate_left(13) ^ (at >> 8) as u32;
    match (mixed >> 7) as u8 {
        0 => 1,
        POISON => POISON - 1,
        byte => byte,
    }
}

/// The byte that unwritten memory is filled with.
pub const POISON: u8 = 0xd7;

/// Writes parts into a message under construction; `bulk` places a part.
pub fn write_parts(
    payload: &mut Payload<'_>,
    seed: u32,
    parts: &[Part],
    mut bulk: impl FnMut(&mut Payload<'_>, usize, u32),
) {
    for (index, part) in parts.iter().enumerate() {
        match *part {
            Part::Inline(len) => payload.put_opaque(&part_bytes(seed, index, len)),
            Part::Bulk(len) => bulk(payload, index, len),
        }
    }
}

/// The unreduced stream of a message, after XID and message type: the payload with every placed
/// item inserted at its position.
///
/// # Panics
/// If the position of an item is invalid.
pub fn unreduced(message: &Incoming<'_>) -> Vec<u8> {
    unreduced_at(message, &[])
}

/// As [`unreduced`], for a reply; the script supplies the positions that Write chunks do not
/// contain.
///
/// # Panics
/// If the position of an item is invalid.
pub fn unreduced_reply(message: &Incoming<'_>, script: &Script) -> Vec<u8> {
    let mut at = 16;
    let mut positions = Vec::new();
    for part in &script.reply {
        let (Part::Inline(len) | Part::Bulk(len)) = *part;
        if let Part::Bulk(_) = part {
            positions.push(at + 4);
        }
        at += 4 + len.next_multiple_of(4);
    }
    if script.order == Order::Relay {
        positions = vec![20];
    }
    unreduced_at(message, &positions)
}

/// Whether a reply, as its unreduced stream, is the one to a call whose ticket was dropped.
pub fn is_system_error(stream: &[u8]) -> bool {
    *stream == *ReplyHeader::accepted(AcceptStatus::SystemError).bytes()
}

fn unreduced_at(message: &Incoming<'_>, positions: &[u32]) -> Vec<u8> {
    let payload = joined(message.payload());
    let mut stream = Vec::with_capacity(payload.len());
    let mut rest = payload.as_slice();
    for item in message.placed() {
        let position = item.position().unwrap_or_else(|| positions[item.index()]) as usize;
        assert!(position.is_multiple_of(4), "an item at {position}");
        let (before, behind) = rest.split_at(position - stream.len());
        stream.extend_from_slice(before);
        rest = behind;
        let start = stream.len();
        item.segments().for_each(|segment| stream.extend_from_slice(segment));
        assert_eq!(stream.len() - start, item.len() as usize, "an item is as long as it says");
        stream.resize(stream.len().next_multiple_of(4), 0);
    }
    stream.extend_from_slice(rest);
    stream.split_off(8)
}

/// The bytes of slices, one after the other.
pub fn joined<'a>(slices: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    slices.for_each(|slice| bytes.extend_from_slice(slice));
    bytes
}

/// Pseudo-random numbers from a seed (SplitMix64).
#[derive(Debug, Clone, Default)]
pub struct Random(pub u64);

impl Random {
    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 33) as u32 % bound
    }

    /// Chooses one of the values.
    ///
    /// # Panics
    /// If there are no values.
    pub fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }

    /// A script with up to five parts each way, of lengths that differ by orders of magnitude, less
    /// than `len_max` in all each way.
    pub fn script(&mut self, len_max: u32) -> Script {
        let call = self.parts(len_max);
        let reply = self.parts(len_max);
        Script::new(self.below(1 << 30), &call, &reply)
    }

    fn parts(&mut self, len_max: u32) -> Vec<Part> {
        let mut left = len_max;
        let mut parts = Vec::new();
        for _ in 0..self.below(6) {
            let magnitude = self.choose(&[8, 200, 5_000, 20_000, 70_000]).min(left).max(1);
            let len = self.below(magnitude);
            left -= len;
            // Payload is short: its slots are counted (see `payload_of_many_slots_travels`).
            let inline = len < 4_000 && self.below(2) == 0;
            parts.push(if inline { Part::Inline(len) } else { Part::Bulk(len) });
        }
        parts
    }
}

fn put(stream: &mut Vec<u8>, word: u32) {
    stream.extend_from_slice(&word.to_be_bytes());
}

fn put_parts(stream: &mut Vec<u8>, seed: u32, parts: &[Part]) {
    for (index, part) in parts.iter().enumerate() {
        let (Part::Inline(len) | Part::Bulk(len)) = *part;
        put(stream, len);
        stream.extend(part_bytes(seed, index, len));
        stream.resize(stream.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_as_it_was_written() {
        let parts = [Part::Inline(3), Part::Bulk(70_000), Part::Inline(0)];
        let script = Script::new(77, &parts, &parts[1..]).order(Order::Relay);
        let read = Script::parse(&script.call_stream()).expect("a script");
        assert_eq!((read.order, read.seed), (Order::Relay, 77));
        assert_eq!((read.call, read.reply), (script.call, script.reply));
    }

    #[test]
    fn the_pattern_has_neither_zero_nor_poison_and_repeats_after_its_period() {
        for start in [0, 1, OFFSETS, PERIOD - 1, PERIOD, 3 * PERIOD + 5] {
            let mut bytes = vec![0; 2 * PERIOD + 3];
            write_pattern(&mut bytes, start);
            assert!(bytes.iter().all(|byte| *byte != 0 && *byte != POISON));
            let all = (start..).map(|at| pattern_at(at % PERIOD));
            assert!(all.zip(&bytes).all(|(wanted, byte)| wanted == *byte), "from {start}");
        }
        write_pattern(&mut [], 1);
    }

    #[test]
    fn the_longest_payload_of_a_reply_counts_what_is_not_wanted() {
        let script = Script::new(1, &[], &[Part::Bulk(5), Part::Inline(2)]);
        assert_eq!(script.reply_payload_max(), 16 + 4 + 8);
        assert_eq!(script.wants(&[]).reply_payload_max(), 16 + 12 + 8);
    }
}
