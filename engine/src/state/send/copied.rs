//! Copies the bulk of a message into its payload, where it has too many pieces for the device.

use arrayvec::ArrayVec;
use rpcrdma_mempool::SendSlot;
use rpcrdma_proto::Gather;

use super::outbox::Outbox;
use crate::state::lane::messages::{Body, SLOTS_MAX};

impl Outbox {
    /// Copies the items of an assembled message into its payload, in other slots. Returns the bytes
    /// of the payload now; `None` if there are too few free slots: the message is as it was.
    #[cold]
    pub fn copy_items(&mut self, index: u32) -> Option<u32> {
        let payload = self.written();
        let bulk =
            self.items(index).iter().try_fold(0u32, |sum, it| sum.checked_add(it.padded_len()));
        let len = bulk.and_then(|bulk| bulk.checked_add(payload))?;
        let slots = self.take_slots_for(len as usize)?;
        let body = self.messages.body_mut(index);
        let mut slots = Filled { slots, at: 0 };
        copy_stream(body, payload, |bytes| slots.put(bytes));
        debug_assert_eq!(slots.at, len as usize, "the stream is as long as its parts");
        let before = core::mem::replace(&mut body.slots, slots.slots);
        body.items.clear();
        body.pieces.clear();
        // What an attempt to lay it out has left.
        body.requests.clear();
        body.gather.clear();
        before.into_iter().for_each(|slot| self.slots.put(slot));
        Some(len)
    }

    /// Slots for so many bytes, all or none.
    fn take_slots_for(&mut self, len: usize) -> Option<ArrayVec<SendSlot, SLOTS_MAX>> {
        let mut taken = ArrayVec::new();
        let mut room = 0;
        while room < len {
            let slot = if taken.is_full() { None } else { self.take_next_slot() };
            let Some(slot) = slot else {
                taken.into_iter().for_each(|slot| self.slots.put(slot));
                return None;
            };
            room += slot.payload_len();
            taken.push(slot);
        }
        Some(taken)
    }
}

/// Slots that are filled one after the other.
struct Filled {
    slots: ArrayVec<SendSlot, SLOTS_MAX>,
    /// Bytes in them.
    at: usize,
}

impl Filled {
    /// Appends bytes, for which there is room.
    fn put(&mut self, mut bytes: &[u8]) {
        let mut skip = self.at;
        self.at += bytes.len();
        for slot in &mut self.slots {
            let room = slot.payload_len();
            if skip < room {
                let part = bytes.len().min(room - skip);
                slot.payload_mut()[skip..skip + part].copy_from_slice(&bytes[..part]);
                bytes = &bytes[part..];
            }
            if bytes.is_empty() {
                return;
            }
            skip = skip.saturating_sub(room);
        }
    }
}

/// The whole stream of a message: its payload, and each item where it belongs, with its padding.
fn copy_stream(body: &mut Body, payload: u32, mut put: impl FnMut(&[u8])) {
    let (mut begin, mut spliced) = (0, 0);
    for index in 0..body.items.len() {
        let item = body.items[index].item;
        let end = item.position - spliced;
        body.copy_piece(&Gather::Payload(begin..end), &mut put);
        body.copy_piece(&Gather::Bulk { item: index, start: 0, len: item.len }, &mut put);
        body.copy_piece(&Gather::Zero(item.padded_len() - item.len), &mut put);
        (begin, spliced) = (end, spliced + item.padded_len());
    }
    body.copy_piece(&Gather::Payload(begin..payload), &mut put);
}
