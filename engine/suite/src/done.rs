//! Completed calls: compares the reply and the result buffers with the script.

use rpcrdma::{CallError, CallRefused, Completion, ConnectionId, Incoming};

use crate::script::{POISON, Part, Script, joined, unreduced_reply};

/// A completed call.
#[derive(Debug, Clone)]
pub struct Done {
    /// The index of the client.
    pub client: usize,
    /// The connection.
    pub peer: ConnectionId,
    /// As [`World::call`](crate::world::World::call) returned it.
    pub cookie: u64,
    /// The script of the call.
    pub script: Script,
    /// The reply.
    pub result: Result<Arrived, CallError>,
    /// The returned result buffers, by requested item.
    pub sinks: Vec<Option<Back>>,
}

/// A returned result buffer (sink).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Back {
    /// Its length.
    pub len: usize,
    /// The number of bytes written: those that are not poison.
    pub written: usize,
    /// Whether the reply has its item there.
    pub is_item: bool,
}

/// A reply as one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// The unreduced stream, after XID and message type.
    pub stream: Vec<u8>,
    /// Position and length of the items that were placed.
    pub items: Vec<(Option<u32>, u32)>,
}

impl Done {
    /// Checks the reply against its script. Returns the number of placed items in the call and in
    /// the reply.
    ///
    /// # Panics
    /// If the reply differs.
    pub fn check(&self) -> (u32, usize) {
        let reply = self.result.as_ref().unwrap_or_else(|error| {
            panic!("{error}: {:?}", self.script);
        });
        let placed = reply
            .stream
            .get(4..8)
            .map_or(0, |word| u32::from_be_bytes(word.try_into().expect("four bytes")));
        let expected = self.script.reply_stream(placed);
        assert!(reply.stream == expected, "the reply is as its script says: {:?}", self.script);
        self.check_sinks();
        let bulk = self.script.call.iter().filter(|part| matches!(part, Part::Bulk(1..)));
        assert!(placed as usize <= bulk.count(), "what is placed was to be placed");
        (placed, reply.items.len())
    }

    /// Checks that all sinks were returned. Returns how many of them were written to.
    ///
    /// # Panics
    /// If one is missing.
    pub fn check_sinks(&self) -> usize {
        let mut used = 0;
        for (want, back) in self.script.wants.iter().zip(&self.sinks) {
            let len = back.map(|back| back.len);
            let has_sink = self.script.place.pieces() > 0;
            let expected = has_sink.then_some(want.len_max as usize + SINK_SLACK);
            assert_eq!(len, expected, "the sink came back whole: {:?}", self.script);
            let is_written = back.is_some_and(|back| back.written > 0);
            let is_item = back.is_some_and(|back| back.is_item) || self.result.is_err();
            assert!(is_item || !is_written, "what was written is an item: {:?}", self.script);
            used += usize::from(is_written);
        }
        used
    }
}

/// Whether the call may succeed later.
pub fn is_passing(why: CallRefused) -> bool {
    use rpcrdma_proto::SendError;
    matches!(
        why,
        CallRefused::Busy
            | CallRefused::Protocol(
                SendError::NotEnoughCredits { .. }
                    | SendError::NotEnoughReceives { .. }
                    | SendError::TableFull { .. }
            )
    )
}

/// Reads every byte of a reply.
pub(crate) fn looked_at(reply: &Incoming<'_>) -> Arrived {
    let placed = reply.placed().flat_map(|item| item.segments());
    Arrived { stream: joined(reply.payload().chain(placed)), items: Vec::new() }
}

/// Takes the sink of a requested item, and checks what was written to it: the item, if it was
/// placed there, and nothing behind it.
pub(crate) fn back(completion: &mut Completion<'_>, want: usize) -> Option<Back> {
    let item: Option<Vec<u8>> = completion.result().ok().and_then(|reply| {
        let item = reply.placed().find(|item| item.index() == want)?;
        Some(joined(item.segments()))
    });
    let sink = completion.take_sink(want)?;
    assert!(completion.take_sink(want).is_none(), "a sink comes back once");
    let bytes = joined(sink.pieces().iter().map(|piece| &piece[..]));
    let written = bytes.iter().rposition(|byte| *byte != POISON).map_or(0, |at| at + 1);
    if let Some(item) = item.as_ref().filter(|_| written > 0) {
        assert!(bytes[..written] == item[..], "an item is where it was wanted, and nothing else");
    }
    Some(Back { len: sink.len(), written, is_item: item.is_some() })
}

pub(crate) fn arrived(reply: &Incoming<'_>, script: &Script) -> Arrived {
    let items = reply.placed().map(|item| (item.position(), item.len())).collect();
    Arrived { stream: unreduced_reply(reply, script), items }
}

/// Bytes of a sink behind the longest item.
pub(crate) const SINK_SLACK: usize = 16;
