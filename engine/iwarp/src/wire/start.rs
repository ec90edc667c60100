//! The start of a connection: MPA's request and reply (RFC 5044 7.1, RFC 6581 9).
//!
//! ```text
//!   0                                       16      17         18         20
//!   │ "MPA ID Req Frame", "MPA ID Rep Frame" │ MCRS… │ revision │ length n │ n bytes: private data
//!
//!   private data of revision 2, if S is set:
//!   │ A B │ IRD, 14 bits │ C D │ ORD, 14 bits │ n - 4 bytes of the program
//! ```
//!
//! Reserved bits are not checked, as the standards demand.

use arrayvec::ArrayVec;

/// What a frame states, without the private data of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Whose frame it is.
    pub kind: Kind,
    /// The sender wants to receive markers (M).
    pub wants_markers: bool,
    /// The sender wants CRCs (C).
    pub wants_crc: bool,
    /// A reply: the connection is rejected (R).
    pub is_rejected: bool,
    /// The revision of MPA.
    pub revision: Revision,
    /// The words of the enhanced start (S). None in revision 1.
    pub enhanced: Option<Enhanced>,
}

/// Whose frame it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of the side that connects.
    Request,
    /// Of the side that is connected to.
    Reply,
}

/// A revision of MPA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581.
    Two,
}

/// The words of the enhanced start (RFC 6581 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Enhanced {
    /// The Reads of the other side that the sender serves at a time (IRD), at most [`DEPTH_MASK`].
    pub ird: u16,
    /// The Reads that the sender has under way at a time (ORD), at most [`DEPTH_MASK`].
    pub ord: u16,
    /// The side that connects sends a ready-to-receive message, and then both send (A).
    pub peer_to_peer: bool,
    /// The ready-to-receive message may be an FPDU of no bytes (B).
    pub rtr_fpdu: bool,
    /// It may be an RDMA Write of no bytes (C).
    pub rtr_write: bool,
    /// It may be an RDMA Read of no bytes (D).
    pub rtr_read: bool,
}

/// A whole frame at the front of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it states.
    pub start: Start,
    /// The private data of the program.
    pub private: &'a [u8],
    /// All its bytes.
    pub len: usize,
}

/// Why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// They do not begin with the key of the frame.
    #[error("the bytes do not begin with {:?}", text_of(*.0))]
    Key(Kind),
    /// A revision that is not known.
    #[error("MPA revision {0} is unknown; 1 and 2 are known")]
    Revision(u8),
    /// Too much private data.
    #[error("{0} bytes of private data; the limit is {PRIVATE_MAX}")]
    PrivateLen(u16),
    /// No room for the words of the enhanced start.
    #[error("an enhanced start with {0} bytes of private data; it needs {ENHANCED_LEN}")]
    Enhanced(u16),
}

impl Start {
    /// The frame with this private data of the program.
    ///
    /// # Panics
    /// If `private` has more bytes than a frame has room for.
    pub fn encode(&self, private: &[u8]) -> ArrayVec<u8, FRAME_MAX> {
        let words = self.enhanced.map(|enhanced| enhanced.encode());
        let words = words.as_ref().map_or(&[][..], |words| &words[..]);
        let len = words.len() + private.len();
        assert!(len <= PRIVATE_MAX, "{len} bytes of private data");
        let mut flags = 0;
        for (is_set, flag) in [
            (self.wants_markers, MARKERS),
            (self.wants_crc, CRC),
            (self.is_rejected, REJECTED),
            (self.enhanced.is_some(), ENHANCED),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        let mut bytes = ArrayVec::new();
        bytes.extend(*self.kind.key());
        bytes.extend([flags, self.revision.number()]);
        bytes.extend((len as u16).to_be_bytes());
        bytes.extend(words.iter().chain(private).copied());
        bytes
    }
}

impl<'a> Frame<'a> {
    /// The frame at the front of a stream. None if its end has not come yet.
    ///
    /// # Errors
    /// As soon as the bytes show that no frame of this kind begins here.
    pub fn decode(kind: Kind, bytes: &'a [u8]) -> Result<Option<Frame<'a>>, Malformed> {
        let key = kind.key();
        let compared = bytes.len().min(key.len());
        if bytes[..compared] != key[..compared] {
            return Err(Malformed::Key(kind));
        }
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() else { return Ok(None) };
        let [flags, revision, high, low] = [head[16], head[17], head[18], head[19]];
        let revision = Revision::of(revision).ok_or(Malformed::Revision(revision))?;
        let private_len = u16::from_be_bytes([high, low]);
        if usize::from(private_len) > PRIVATE_MAX {
            return Err(Malformed::PrivateLen(private_len));
        }
        let is_rejected = kind == Kind::Reply && flags & REJECTED != 0;
        let is_enhanced = revision == Revision::Two && flags & ENHANCED != 0;
        // siw sends no more than this to a request without the words.
        let is_bare = is_rejected && private_len == 0;
        let has_words = is_enhanced && !is_bare;
        if has_words && usize::from(private_len) < ENHANCED_LEN {
            return Err(Malformed::Enhanced(private_len));
        }
        let Some(private) = rest.get(..usize::from(private_len)) else { return Ok(None) };
        let words = private.split_first_chunk::<ENHANCED_LEN>().filter(|_| has_words);
        let (enhanced, private) = match words {
            Some((words, private)) => (Some(Enhanced::decode(*words)), private),
            None => (None, private),
        };
        let start = Start {
            kind,
            wants_markers: flags & MARKERS != 0,
            wants_crc: flags & CRC != 0,
            is_rejected,
            revision,
            enhanced,
        };
        Ok(Some(Frame { start, private, len: HEAD_LEN + usize::from(private_len) }))
    }

    /// The bytes that a frame has, as far as its first bytes state: never more than it has.
    pub fn len_known(bytes: &[u8]) -> usize {
        match bytes.first_chunk::<HEAD_LEN>() {
            Some(head) => HEAD_LEN + usize::from(u16::from_be_bytes([head[18], head[19]])),
            None => HEAD_LEN,
        }
    }
}

impl Enhanced {
    fn encode(self) -> [u8; ENHANCED_LEN] {
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let ird = self.ird.min(DEPTH_MASK)
            | flag(self.peer_to_peer, PEER_TO_PEER)
            | flag(self.rtr_fpdu, RTR_FPDU);
        let ord = self.ord.min(DEPTH_MASK)
            | flag(self.rtr_write, RTR_WRITE)
            | flag(self.rtr_read, RTR_READ);
        let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [a, b, c, d]
    }

    fn decode([a, b, c, d]: [u8; ENHANCED_LEN]) -> Enhanced {
        let (ird, ord) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Enhanced {
            ird: ird & DEPTH_MASK,
            ord: ord & DEPTH_MASK,
            peer_to_peer: ird & PEER_TO_PEER != 0,
            rtr_fpdu: ird & RTR_FPDU != 0,
            rtr_write: ord & RTR_WRITE != 0,
            rtr_read: ord & RTR_READ != 0,
        }
    }
}

impl Kind {
    fn key(self) -> &'static [u8; 16] {
        match self {
            Kind::Request => b"MPA ID Req Frame",
            Kind::Reply => b"MPA ID Rep Frame",
        }
    }
}

impl Revision {
    /// Its number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Revision::One => 1,
            Revision::Two => 2,
        }
    }

    fn of(number: u8) -> Option<Revision> {
        [Revision::One, Revision::Two].into_iter().find(|known| known.number() == number)
    }
}

fn text_of(kind: Kind) -> &'static str {
    std::str::from_utf8(kind.key()).unwrap_or_default()
}

/// Bytes of a frame without private data.
pub const HEAD_LEN: usize = 20;
/// Bytes of private data that a frame has at most, the words of the enhanced start included.
pub const PRIVATE_MAX: usize = 512;
/// Bytes of the longest frame.
pub const FRAME_MAX: usize = HEAD_LEN + PRIVATE_MAX;
/// Bytes of the words of the enhanced start.
pub const ENHANCED_LEN: usize = 4;
/// The largest depth on the wire, which states that the depth is not negotiated (RFC 6581 9.1).
pub const DEPTH_MASK: u16 = 0x3fff;
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECTED: u8 = 0x20;
const ENHANCED: u8 = 0x10;
/// In the word of the IRD.
const PEER_TO_PEER: u16 = 0x8000;
const RTR_FPDU: u16 = 0x4000;
/// In the word of the ORD.
const RTR_WRITE: u16 = 0x8000;
const RTR_READ: u16 = 0x4000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The private data of RFC 8797: version 1, no flags, 4096 bytes each way.
    const NFS: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 0x01, 0x00, 0x03, 0x03];

    /// As the NFS client of Linux sends it through siw: revision 2, IRD 128, ORD 0.
    const SIW_REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x0c\x00\x80\x00\x00\
        \xf6\xab\x0e\x18\x01\x00\x03\x03";
    /// As this provider sends it: peer-to-peer, the ready-to-receive message is an RDMA Write or
    /// Read.
    const OWN_REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x80\x10\xc0\x10";
    /// siw's reply to it: CRC, an RDMA Write, IRD 16, ORD 8.
    const SIW_REPLY: &[u8] = b"MPA ID Rep Frame\x50\x02\x00\x05\x80\x10\x80\x08!";
    /// siw's rejection of a request of revision 2.
    const SIW_REJECTION: &[u8] = b"MPA ID Rep Frame\x30\x02\x00\x04\x00\x00\x00\x00";
    /// RFC 5044's start.
    const OLD_REQUEST: &[u8] = b"MPA ID Req Frame\x40\x01\x00\x03abc";
    const OLD_REPLY: &[u8] = b"MPA ID Rep Frame\x00\x01\x00\x00";

    fn golden() -> [(&'static [u8], Start, &'static [u8]); 6] {
        let start = |kind, revision, enhanced| Start {
            kind,
            wants_markers: false,
            wants_crc: false,
            is_rejected: false,
            revision,
            enhanced,
        };
        let (request, reply) = (Kind::Request, Kind::Reply);
        let (none, both) = (Enhanced::default(), Revision::Two);
        let own = Enhanced {
            ird: 16,
            ord: 16,
            peer_to_peer: true,
            rtr_fpdu: false,
            rtr_write: true,
            rtr_read: true,
        };
        let chosen = Enhanced { ord: 8, rtr_read: false, ..own };
        let nfs = start(request, both, Some(Enhanced { ird: 128, ..none }));
        let crc = Start { wants_crc: true, ..start(reply, both, Some(chosen)) };
        let rejection = Start { is_rejected: true, ..start(reply, both, Some(none)) };
        let old = Start { wants_crc: true, ..start(request, Revision::One, None) };
        [
            (SIW_REQUEST, nfs, &NFS),
            (OWN_REQUEST, start(request, both, Some(own)), b""),
            (SIW_REPLY, crc, b"!"),
            (SIW_REJECTION, rejection, b""),
            (OLD_REQUEST, old, b"abc"),
            (OLD_REPLY, start(reply, Revision::One, None), b""),
        ]
    }

    #[test]
    fn golden_frames_are_decoded_and_encoded() {
        for (bytes, start, private) in golden() {
            let frame = Frame { start, private, len: bytes.len() };
            assert_eq!(Frame::decode(start.kind, bytes), Ok(Some(frame)));
            assert_eq!(start.encode(private).as_slice(), bytes);
            // What is behind it is not its own.
            let longer = [bytes, b"behind"].concat();
            assert_eq!(Frame::decode(start.kind, &longer), Ok(Some(frame)));
        }
    }

    #[test]
    fn a_frame_that_is_cut_anywhere_is_not_whole() {
        for (bytes, start, _) in golden() {
            for len in 0..bytes.len() {
                assert_eq!(Frame::decode(start.kind, &bytes[..len]), Ok(None), "{len}");
                let known = Frame::len_known(&bytes[..len]);
                assert_eq!(known, if len < HEAD_LEN { HEAD_LEN } else { bytes.len() });
            }
            assert_eq!(Frame::len_known(bytes), bytes.len());
        }
    }

    fn decode(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
        Frame::decode(Kind::Request, bytes)
    }

    fn with(bytes: &[u8], at: usize, byte: u8) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes[at] = byte;
        bytes
    }

    #[test]
    fn what_is_no_frame_is_named_at_its_first_wrong_byte() {
        let key = Malformed::Key(Kind::Request);
        assert_eq!(key.to_string(), "the bytes do not begin with \"MPA ID Req Frame\"");
        for at in 0..16 {
            let wrong = with(OWN_REQUEST, at, b'?');
            assert_eq!(decode(&wrong[..at]), Ok(None));
            assert_eq!(decode(&wrong[..=at]), Err(key));
        }
        assert_eq!(decode(SIW_REPLY), Err(key));
        assert_eq!(Frame::decode(Kind::Reply, SIW_REQUEST), Err(Malformed::Key(Kind::Reply)));
        assert_eq!(decode(b"GET / HTTP/1.1\r\n\r\n"), Err(key));
        for revision in [0, 3, 255] {
            let wrong = Malformed::Revision(revision);
            assert_eq!(decode(&with(OWN_REQUEST, 17, revision)), Err(wrong));
        }
        // The head states it, before the private data have come.
        let long = with(&with(OLD_REQUEST, 18, 2), 19, 1);
        assert_eq!(decode(&long[..HEAD_LEN]), Err(Malformed::PrivateLen(513)));
        assert_eq!(decode(&with(&long, 19, 0)[..HEAD_LEN]), Ok(None), "512 bytes");
        for len in 0..4 {
            let short = with(OWN_REQUEST, 19, len);
            assert_eq!(decode(&short), Err(Malformed::Enhanced(len.into())));
        }
    }

    #[test]
    fn bits_that_say_nothing_here_are_not_checked() {
        // Reserved ones; R in a request; S in revision 1.
        for (bytes, at, bits) in
            [(OWN_REQUEST, 16, 0x1f), (OWN_REQUEST, 16, 0x30), (OLD_REQUEST, 16, 0x5f)]
        {
            let plain = Frame::decode(Kind::Request, bytes);
            assert_eq!(Frame::decode(Kind::Request, &with(bytes, at, bits)), plain);
        }
    }

    #[test]
    fn revision_2_may_come_without_its_words() {
        let request = with(OLD_REQUEST, 17, 2);
        let frame = Frame::decode(Kind::Request, &request).expect("a frame").expect("whole");
        assert_eq!((frame.start.enhanced, frame.private), (None, &b"abc"[..]));
        assert_eq!(frame.start.revision, Revision::Two);
        // So does siw reject a request that lacks them.
        let rejection = with(&SIW_REJECTION[..HEAD_LEN], 19, 0);
        let frame = Frame::decode(Kind::Reply, &rejection).expect("a frame").expect("whole");
        assert!(frame.start.is_rejected && frame.start.enhanced.is_none());
    }

    #[test]
    fn the_longest_frame_has_512_bytes_behind_its_head() {
        let [(_, enhanced, _), .., (_, old, _)] = golden();
        for (start, len) in [(enhanced, PRIVATE_MAX - ENHANCED_LEN), (old, PRIVATE_MAX)] {
            let private = vec![7; len];
            let bytes = start.encode(&private);
            assert_eq!(bytes.len(), FRAME_MAX);
            let frame = Frame { start, private: &private, len: FRAME_MAX };
            assert_eq!(Frame::decode(start.kind, &bytes), Ok(Some(frame)));
        }
    }

    fn starts() -> impl Strategy<Value = Start> {
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        let words = (0..=DEPTH_MASK, 0..=DEPTH_MASK, flags);
        let words =
            words.prop_map(|(ird, ord, (peer_to_peer, rtr_fpdu, rtr_write, rtr_read, _))| {
                Enhanced { ird, ord, peer_to_peer, rtr_fpdu, rtr_write, rtr_read }
            });
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        (flags, prop::option::of(words)).prop_map(
            |((reply, markers, crc, rejected, one), words)| Start {
                kind: if reply { Kind::Reply } else { Kind::Request },
                wants_markers: markers,
                wants_crc: crc,
                is_rejected: reply && rejected,
                revision: if one && words.is_none() { Revision::One } else { Revision::Two },
                enhanced: words,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(start in starts(), private: Vec<u8>) {
            let private = &private[..private.len().min(PRIVATE_MAX - ENHANCED_LEN)];
            let bytes = start.encode(private);
            let frame = Frame { start, private, len: bytes.len() };
            prop_assert_eq!(Frame::decode(start.kind, &bytes), Ok(Some(frame)));
            for len in 0..bytes.len() {
                prop_assert_eq!(Frame::decode(start.kind, &bytes[..len]), Ok(None));
            }
        }

        #[test]
        fn any_bytes_behind_a_key_are_decoded_or_refused(
            is_reply: bool,
            mut rest in prop::collection::vec(any::<u8>(), 0..600),
            revision in 0..4_u8,
            high in 0..4_u8,
        ) {
            if let [_, second, third, ..] = &mut rest[..] {
                (*second, *third) = (revision, high);
            }
            let kind = if is_reply { Kind::Reply } else { Kind::Request };
            let bytes = [kind.key(), &rest[..]].concat();
            if let Ok(Some(Frame { start, private, len })) = Frame::decode(kind, &bytes) {
                prop_assert_eq!(len, Frame::len_known(&bytes));
                let again = start.encode(private);
                let again = Frame::decode(kind, &again).expect("a frame").expect("whole");
                prop_assert_eq!((again.start, again.private), (start, private));
            }
        }
    }
}
