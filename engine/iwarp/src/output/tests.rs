//! Random messages, a socket that takes little, and cuts, compared with a list of messages.

use std::io::Read;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;
use rustix::net::sockopt;

use super::*;
use crate::wire::fpdu::len_of;

#[derive(Debug, Clone)]
enum Step {
    /// A message in one FPDU.
    Short {
        len: usize,
    },
    /// A message of lent memory.
    Long {
        pieces: Vec<usize>,
    },
    /// A message of memory that is lent only for the step.
    Response {
        len: usize,
    },
    Flush,
    /// The peer reads.
    Take {
        len: usize,
    },
    /// Requests are withdrawn, and maybe the peer is sent the reason why the stream ends.
    Cut {
        has_reason: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let piece = prop_oneof![Just(0), 1..50_usize, 1000..1050_usize, 1000..9000_usize];
    prop_oneof![
        6 => (0..224_usize).prop_map(|len| Step::Short { len }),
        6 => prop::collection::vec(piece.clone(), 1..5).prop_map(|pieces| Step::Long { pieces }),
        4 => piece.prop_map(|len| Step::Response { len }),
        6 => Just(Step::Flush),
        6 => (0..20_000_usize).prop_map(|len| Step::Take { len }),
        1 => any::<bool>().prop_map(|has_reason| Step::Cut { has_reason }),
    ]
}

struct World {
    out: Output,
    socket: Socket,
    peer: UnixStream,
    has_crc: bool,
    /// What the peer gets: messages, with whether they are slots.
    messages: Vec<(Vec<u8>, bool)>,
    /// Memory that is lent.
    lent: Vec<Box<[u8]>>,
    taken: Vec<u8>,
    slots: u64,
    /// The stream ends behind what was sent.
    is_cut_off: bool,
}

impl World {
    fn new(has_crc: bool) -> World {
        let (socket, peer) = UnixStream::pair().unwrap();
        sockopt::set_socket_send_buffer_size(&socket, 1).unwrap();
        peer.set_nonblocking(true).unwrap();
        World {
            out: Output::new(4, has_crc),
            socket: Socket::of(socket),
            peer,
            has_crc,
            messages: Vec::new(),
            lent: Vec::new(),
            taken: Vec::new(),
            slots: 0,
            is_cut_off: false,
        }
    }

    fn step(&mut self, step: &Step) {
        let seed = self.messages.len();
        match step {
            _ if !self.out.is_open() && !matches!(step, Step::Flush | Step::Take { .. }) => {}
            Step::Short { len } => {
                let payload = bytes(*len, seed);
                self.out.push_short(&[seed as u8; HEADER], &payload);
                self.out.end_message(true);
                self.messages.push((self.expected(&payload), true));
            }
            Step::Long { pieces } => {
                let memory: Vec<Box<[u8]>> = pieces
                    .iter()
                    .enumerate()
                    .map(|(at, len)| bytes(*len, seed + at).into())
                    .collect();
                let lent: Vec<Lent> = memory.iter().map(|it| lend(it)).collect();
                self.out.push_long(&lent, STEP, |_, _| [seed as u8; HEADER]);
                self.out.end_message(true);
                self.messages.push((self.expected(&memory.concat()), true));
                self.lent.extend(memory);
            }
            Step::Response { len } => {
                let mut memory = bytes(*len, seed);
                self.messages.push((self.expected(&memory), false));
                let before = self.out.queued();
                self.out.push_long(&[lend(&memory)], STEP, |_, _| [seed as u8; HEADER]);
                self.out.end_message(false);
                self.flush();
                self.out.keep(before);
                memory.fill(0xee);
            }
            Step::Flush => self.flush(),
            Step::Take { len } => self.take(*len),
            Step::Cut { has_reason } => self.cut(*has_reason),
        }
    }

    /// The FPDUs of the next message.
    fn expected(&self, payload: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        let mut parts: Vec<&[u8]> = payload.chunks(STEP).collect();
        parts.resize(parts.len().max(1), &[]);
        for part in parts {
            let mut fpdu = ((HEADER + part.len()) as u16).to_be_bytes().to_vec();
            fpdu.extend([self.messages.len() as u8; HEADER]);
            fpdu.extend(part);
            fpdu.resize(len_of(HEADER + part.len()) - 4, 0);
            let crc = if self.has_crc { crc32c::crc32c(&fpdu) } else { 0 };
            fpdu.extend(crc.to_le_bytes());
            all.extend(fpdu);
        }
        all
    }

    fn flush(&mut self) {
        self.slots += self.out.flush(&self.socket);
        let (mut end, mut slots) = (0, 0);
        for (message, is_slot) in &self.messages {
            end += message.len() as u64;
            slots += u64::from(*is_slot && end <= self.out.sent);
        }
        assert_eq!(self.slots, slots, "a slot is taken when its last byte is");
    }

    fn take(&mut self, len: usize) {
        let mut some = vec![0; len];
        let len = self.peer.read(&mut some).unwrap_or(0);
        self.taken.extend(&some[..len]);
    }

    fn cut(&mut self, has_reason: bool) {
        self.flush();
        if has_reason {
            let payload = b"the reason";
            self.out.end_with(&[self.messages.len() as u8; HEADER], payload);
            self.messages.push((self.expected(payload), false));
            self.flush();
        }
        let (mut from, mut dropped, mut kept) = (0, 0, Vec::new());
        for (message, is_slot) in std::mem::take(&mut self.messages) {
            let end = from + message.len() as u64;
            let is_begun = from < self.out.sent && self.out.sent < end;
            self.is_cut_off |= is_begun && !has_reason;
            dropped += u64::from(is_slot && end > self.out.sent);
            if end <= self.out.sent || is_begun || !is_slot {
                kept.push((message, is_slot && end <= self.out.sent));
            }
            from = end;
        }
        self.messages = kept;
        assert_eq!(self.out.cut(), dropped);
        // The memory is its owner's again.
        self.lent.drain(..).for_each(|mut memory| memory.fill(0xee));
        assert_eq!(self.out.is_open(), !has_reason && !self.is_cut_off);
        assert!(!self.is_cut_off || self.out.pending() == 0);
    }

    fn end(mut self) {
        let cut_off = self.out.sent as usize;
        while self.out.pending() > 0 {
            self.flush();
            self.take(1 << 16);
        }
        self.take(1 << 20);
        let mut expected: Vec<u8> =
            self.messages.iter().flat_map(|(message, _)| message).copied().collect();
        if self.is_cut_off {
            expected.truncate(cut_off);
        }
        assert!(self.taken == expected, "{} of {} bytes", self.taken.len(), expected.len());
        let has_end = !self.out.is_open();
        assert_eq!((self.out.take_end(), self.out.take_end()), (has_end, false));
    }
}

fn lend(memory: &[u8]) -> Lent {
    let addr = memory.as_ptr().expose_provenance() as u64;
    // SAFETY: the tests keep the memory and do not write to it while it is lent.
    unsafe { Lent::new(addr, memory.len() as u32) }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 3 + seed) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_peer_gets_each_message_whole_and_in_order(
        has_crc: bool,
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut world = World::new(has_crc);
        for step in &steps {
            world.step(step);
        }
        world.end();
    }
}

#[test]
fn a_socket_that_fails_is_sent_nothing_more_and_ends_for_the_receiver() {
    let mut world = World::new(false);
    world.step(&Step::Short { len: 10 });
    let (gone, _) = UnixStream::pair().unwrap();
    assert_eq!(world.out.flush(&Socket::of(gone)), 0);
    assert!(!world.out.is_open());
    world.out.push_short(&[1; HEADER], &[]);
    world.out.end_message(true);
    assert_eq!(world.out.flush(&world.socket), 0, "not to another one either");
    assert!(!world.out.take_end());
    assert_eq!(world.out.cut(), 1, "what was added behind counts as never sent");
}

const HEADER: usize = 14;
/// Bytes of a segment.
const STEP: usize = 4000;
