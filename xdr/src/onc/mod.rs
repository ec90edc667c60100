//! ONC RPC messages (RFC 5531): the prefix, which is all that a transport reads, and the headers of
//! calls and replies.
//!
//! ```text
//!   call   | xid CALL  | 2 program version procedure | credentials | verifier | arguments
//!   reply  | xid REPLY | ACCEPTED | verifier | SUCCESS                | results
//!                                            | PROG_MISMATCH low high
//!                                            | PROG_UNAVAIL, PROC_UNAVAIL, GARBAGE_ARGS, SYSTEM_ERR
//!                      | DENIED   | RPC_MISMATCH low high
//!                                 | AUTH_ERROR why
//!   credentials, verifier          | flavor | length | body, padded |
//! ```
//! The header types start after the prefix, which the engine reads and writes.

mod auth;
mod prefix;

use arrayvec::ArrayVec;
use thiserror::Error;

use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::onc::{VERSION, accept_stat, auth_stat, reject_stat, reply_stat};

pub use auth::{Auth, AuthSys};
pub use prefix::{MsgType, Rpc, RpcPrefix};

/// The header of a call, after the prefix (`call_body`, RFC 5531 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// The program (`prog`).
    pub program: u32,
    /// The version of the program (`vers`).
    pub version: u32,
    /// The procedure (`proc`).
    pub procedure: u32,
    /// The credentials (`cred`).
    pub credentials: Auth<'a>,
    /// The verifier (`verf`).
    pub verifier: Auth<'a>,
}

impl<'a> CallHeader<'a> {
    /// Bytes of a header without credentials and verifier.
    pub const PLAIN_LEN: usize = 32;

    /// Bytes of the longest header.
    pub const LEN_MAX: usize = 16 + 2 * Auth::LEN_MAX;

    /// The bytes of a header with AUTH_NONE.
    #[must_use]
    pub const fn plain(program: u32, version: u32, procedure: u32) -> [u8; CallHeader::PLAIN_LEN] {
        let words = [VERSION, program, version, procedure];
        let mut bytes = [0; Self::PLAIN_LEN];
        let mut index = 0;
        while index < words.len() {
            let [a, b, c, d] = words[index].to_be_bytes();
            (bytes[4 * index], bytes[4 * index + 1]) = (a, b);
            (bytes[4 * index + 2], bytes[4 * index + 3]) = (c, d);
            index += 1;
        }
        bytes
    }

    /// Takes a header off the reader, up to the arguments. The padding is not checked.
    ///
    /// # Errors
    /// [`HeaderError`], which makes the reply to such a call.
    #[inline]
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, HeaderError> {
        match reader.u32().map_err(HeaderError::Header)? {
            VERSION => {}
            given => return Err(HeaderError::RpcVersion { given }),
        }
        let [program, version, procedure] = reader.words().map_err(HeaderError::Header)?;
        let credentials = Auth::decode(reader).map_err(HeaderError::Credentials)?;
        let verifier = Auth::decode(reader).map_err(HeaderError::Verifier)?;
        Ok(Self { program, version, procedure, credentials, verifier })
    }

    /// Puts the header.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_words::<4, 16>([VERSION, self.program, self.version, self.procedure])?;
        self.credentials.encode(writer)?;
        self.verifier.encode(writer)
    }

    /// The bytes of the header.
    #[must_use]
    pub fn bytes(&self) -> ArrayVec<u8, { CallHeader::LEN_MAX }> {
        bytes(|writer| self.encode(writer))
    }
}

/// An RPC program of one version: which calls its server executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcProgram {
    /// The program number (`prog`).
    pub number: u32,
    /// The only supported version (`vers`).
    pub version: u32,
    /// The highest procedure number plus one.
    pub procedures: u32,
}

impl RpcProgram {
    /// Checks that a call is to this program. Returns the procedure.
    ///
    /// # Errors
    /// The status of the reply: another program or version, or a procedure that does not exist.
    pub const fn check(&self, call: &CallHeader<'_>) -> Result<u32, AcceptStatus> {
        let &Self { number, version, procedures } = self;
        if call.program != number {
            return Err(AcceptStatus::ProgramUnavailable);
        }
        if call.version != version {
            return Err(AcceptStatus::ProgramMismatch { low: version, high: version });
        }
        if call.procedure >= procedures {
            return Err(AcceptStatus::ProcedureUnavailable);
        }
        Ok(call.procedure)
    }
}

/// Why a call header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The version of RPC is not 2.
    #[error("RPC version {given}; only 2 is supported")]
    RpcVersion {
        /// The version.
        given: u32,
    },
    /// The credentials are too long or truncated.
    #[error("the credentials: {0}")]
    Credentials(DecodeError),
    /// The verifier is too long or truncated.
    #[error("the verifier: {0}")]
    Verifier(DecodeError),
    /// The header is truncated before them.
    #[error("the header of the call: {0}")]
    Header(DecodeError),
}

impl HeaderError {
    /// The reply to such a call.
    #[must_use]
    pub const fn reply(&self) -> ReplyHeader<'static> {
        match self {
            Self::RpcVersion { .. } => ReplyHeader::RPC_MISMATCH,
            Self::Credentials(_) => ReplyHeader::AuthError { why: auth_stat::BADCRED },
            Self::Verifier(_) => ReplyHeader::AuthError { why: auth_stat::BADVERF },
            Self::Header(_) => ReplyHeader::accepted(AcceptStatus::GarbageArguments),
        }
    }
}

impl From<HeaderError> for ReplyHeader<'static> {
    fn from(why: HeaderError) -> Self {
        why.reply()
    }
}

impl From<AcceptStatus> for ReplyHeader<'static> {
    fn from(status: AcceptStatus) -> Self {
        Self::accepted(status)
    }
}

/// The header of a reply, after the prefix (`reply_body`, RFC 5531 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHeader<'a> {
    /// The call was accepted.
    Accepted {
        /// The verifier (`verf`).
        verifier: Auth<'a>,
        /// The status of the call (`stat`).
        status: AcceptStatus,
    },
    /// The call was denied: the version of RPC is not supported.
    RpcMismatch {
        /// The lowest supported version.
        low: u32,
        /// The highest supported version.
        high: u32,
    },
    /// The call was denied: the caller is not authenticated.
    AuthError {
        /// The reason (`auth_stat`).
        why: u32,
    },
}

/// The status of an accepted call (`accept_stat`, RFC 5531 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStatus {
    /// It was executed; results follow.
    Success,
    /// The program is not available.
    ProgramUnavailable,
    /// The version of the program is not available.
    ProgramMismatch {
        /// The lowest supported version.
        low: u32,
        /// The highest supported version.
        high: u32,
    },
    /// The procedure is not available.
    ProcedureUnavailable,
    /// The arguments cannot be decoded.
    GarbageArguments,
    /// A system error of the server, such as lack of memory.
    SystemError,
}

impl<'a> ReplyHeader<'a> {
    /// Bytes of the header in front of results, without a verifier.
    pub const SUCCESS_LEN: usize = 16;

    /// The bytes of the header in front of results, without a verifier: four words of zero.
    pub const SUCCESS: [u8; ReplyHeader::SUCCESS_LEN] = [0; ReplyHeader::SUCCESS_LEN];

    /// Bytes of the longest header.
    pub const LEN_MAX: usize = 4 + Auth::LEN_MAX + 4 + Self::VERSIONS_LEN;

    /// Bytes of the lowest and the highest version.
    pub const VERSIONS_LEN: usize = 8;

    /// The reply to a call of another version of RPC.
    pub const RPC_MISMATCH: Self = Self::RpcMismatch { low: VERSION, high: VERSION };

    /// The call was accepted; no verifier.
    #[must_use]
    pub const fn accepted(status: AcceptStatus) -> Self {
        Self::Accepted { verifier: Auth::NONE, status }
    }

    /// Takes a header off the reader, up to the results. The padding is not checked.
    ///
    /// # Errors
    /// [`DecodeError`] if it is truncated, the verifier is too long, or a status is not in RFC
    /// 5531.
    #[inline]
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match reader.u32()? {
            reply_stat::ACCEPTED => {
                let verifier = Auth::decode(reader)?;
                Ok(Self::Accepted { verifier, status: AcceptStatus::decode(reader)? })
            }
            reply_stat::DENIED => match reader.u32()? {
                reject_stat::RPC_MISMATCH => {
                    let [low, high] = reader.words()?;
                    Ok(Self::RpcMismatch { low, high })
                }
                reject_stat::AUTH_ERROR => Ok(Self::AuthError { why: reader.u32()? }),
                value => Err(DecodeError::BadDiscriminant { at: reader.at_last_word(), value }),
            },
            value => Err(DecodeError::BadDiscriminant { at: reader.at_last_word(), value }),
        }
    }

    /// Puts the header.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Accepted { verifier, status } => {
                writer.put_u32(reply_stat::ACCEPTED)?;
                verifier.encode(writer)?;
                status.encode(writer)
            }
            Self::RpcMismatch { low, high } => {
                let words = [reply_stat::DENIED, reject_stat::RPC_MISMATCH, *low, *high];
                writer.put_words::<4, 16>(words)
            }
            Self::AuthError { why } => {
                let words = [reply_stat::DENIED, reject_stat::AUTH_ERROR, *why];
                writer.put_words::<3, 12>(words)
            }
        }
    }

    /// The bytes of the header.
    #[must_use]
    pub fn bytes(&self) -> ArrayVec<u8, { ReplyHeader::LEN_MAX }> {
        bytes(|writer| self.encode(writer))
    }
}

impl AcceptStatus {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u32()? {
            accept_stat::SUCCESS => Self::Success,
            accept_stat::PROG_UNAVAIL => Self::ProgramUnavailable,
            accept_stat::PROG_MISMATCH => {
                let [low, high] = reader.words()?;
                Self::ProgramMismatch { low, high }
            }
            accept_stat::PROC_UNAVAIL => Self::ProcedureUnavailable,
            accept_stat::GARBAGE_ARGS => Self::GarbageArguments,
            accept_stat::SYSTEM_ERR => Self::SystemError,
            value => {
                return Err(DecodeError::BadDiscriminant { at: reader.at_last_word(), value });
            }
        })
    }

    fn encode(self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(match self {
            Self::Success => accept_stat::SUCCESS,
            Self::ProgramUnavailable => accept_stat::PROG_UNAVAIL,
            Self::ProgramMismatch { low, high } => {
                return writer.put_words::<3, 12>([accept_stat::PROG_MISMATCH, low, high]);
            }
            Self::ProcedureUnavailable => accept_stat::PROC_UNAVAIL,
            Self::GarbageArguments => accept_stat::GARBAGE_ARGS,
            Self::SystemError => accept_stat::SYSTEM_ERR,
        })
    }
}

/// What `encode` puts, which is no more than `LEN_MAX` bytes.
fn bytes<const LEN_MAX: usize>(
    encode: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
) -> ArrayVec<u8, LEN_MAX> {
    let mut bytes = ArrayVec::from([0; LEN_MAX]);
    let mut writer = Writer::new(&mut bytes);
    encode(&mut writer).expect("LEN_MAX is the longest");
    let len = writer.position();
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::onc::auth_flavor;
    use std::vec::Vec;

    fn bytes_of(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// Decodes words to a header without a rest, and encodes the header to the words.
    fn call(words: &[u32]) -> Result<CallHeader<'static>, HeaderError> {
        let bytes = bytes_of(words).leak();
        let mut reader = Reader::new(bytes);
        let header = CallHeader::decode(&mut reader)?;
        assert_eq!(reader.remaining(), 0);
        assert_eq!(header.bytes().as_slice(), bytes);
        Ok(header)
    }

    fn reply(words: &[u32]) -> Result<ReplyHeader<'static>, DecodeError> {
        let bytes = bytes_of(words).leak();
        let mut reader = Reader::new(bytes);
        let header = ReplyHeader::decode(&mut reader)?;
        assert_eq!(reader.remaining(), 0);
        assert_eq!(header.bytes().as_slice(), bytes);
        Ok(header)
    }

    #[test]
    fn a_prefix_encodes_to_what_it_was_decoded_from() {
        for (word, kind) in [(0, MsgType::Call), (1, MsgType::Reply)] {
            let bytes = [1, 2, 3, 4, 0, 0, 0, word];
            let prefix = RpcPrefix::decode(&bytes).unwrap();
            assert_eq!(prefix, RpcPrefix { xid: 0x0102_0304, kind });
            assert_eq!(prefix.bytes(), bytes);
        }
    }

    #[test]
    fn a_message_that_is_neither_call_nor_reply_is_refused() {
        let error = DecodeError::BadDiscriminant { at: 4, value: 2 };
        assert_eq!(RpcPrefix::decode(&[0, 0, 0, 1, 0, 0, 0, 2]), Err(error));
    }

    #[test]
    fn seven_bytes_are_not_an_rpc_message() {
        assert_eq!(RpcPrefix::decode(&[0; 7]), Err(DecodeError::Truncated { at: 4 }));
        assert!(RpcPrefix::decode(&[0; 8]).is_ok());
    }

    #[test]
    fn a_call_without_credentials_is_eight_words() {
        let words = [2, 100_003, 3, 1, 0, 0, 0, 0];
        let header = call(&words).unwrap();
        assert_eq!((header.program, header.version, header.procedure), (100_003, 3, 1));
        assert_eq!((header.credentials, header.verifier), (Auth::NONE, Auth::NONE));
        assert_eq!(CallHeader::plain(100_003, 3, 1)[..], bytes_of(&words));
    }

    // As the Linux kernel's client calls GETATTR: "pc1", user 1000, group 100, groups 4 and 27.
    #[test]
    fn a_call_with_auth_sys_names_user_and_machine() {
        let words = [2, 100_003, 3, 1, 1, 32, 0x9e37, 3, 0x7063_3100, 1000, 100, 2, 4, 27, 0, 0];
        let header = call(&words).unwrap();
        assert_eq!(header.credentials.flavor(), auth_flavor::SYS);
        let who = AuthSys::decode(header.credentials.body()).unwrap();
        assert_eq!((who.stamp, who.machine, who.uid, who.gid), (0x9e37, &b"pc1"[..], 1000, 100));
        assert!(who.groups.iter().eq([4, 27]));
        let mut buffer = [0xff; 32];
        who.encode(&mut Writer::new(&mut buffer)).unwrap();
        assert_eq!(buffer, header.credentials.body());
    }

    // RFC 2203 5: version, procedure, sequence number, service, handle; a verifier of 20 bytes.
    #[test]
    fn the_credentials_and_the_verifier_of_rpcsec_gss_are_skipped_and_name_a_service() {
        let gss = [6, 24, 1, 0, 55, 2, 4, 0xabad_1dea];
        let verifier = [6, 20, 1, 2, 3, 4, 5];
        let words = [&[2, 100_003, 4, 1][..], &gss, &verifier].concat();
        let header = call(&words).unwrap();
        assert_eq!(header.credentials.flavor(), auth_flavor::GSS);
        assert_eq!(header.credentials.gss_service(), Some(2));
        assert_eq!(header.verifier.body(), bytes_of(&[1, 2, 3, 4, 5]));
        for len in 0..16 {
            let cut = Auth::new(6, &header.credentials.body()[..len]).unwrap();
            assert_eq!(cut.gss_service(), None);
        }
    }

    #[test]
    fn credentials_and_verifiers_have_400_bytes_and_not_401() {
        let most = [&[2, 1, 1, 1, 1, 400][..], &[7; 100], &[6, 400], &[9; 100]].concat();
        assert_eq!(call(&most).unwrap().bytes().len(), CallHeader::LEN_MAX);
        let too_many = |at| DecodeError::TooMany { at, count: 401, max: 400 };
        let credentials = [&[2, 1, 1, 1, 1, 401][..], &[7; 102]].concat();
        assert_eq!(call(&credentials), Err(HeaderError::Credentials(too_many(20))));
        let verifier = [&[2, 1, 1, 1, 0, 0, 0, 401][..], &[7; 102]].concat();
        assert_eq!(call(&verifier), Err(HeaderError::Verifier(too_many(28))));
        assert_eq!(reply(&[0, 1, 401]), Err(too_many(8)));
        assert_eq!(
            reply(&[&[0, 1, 400][..], &[7; 100], &[2, 3, 4]].concat()).unwrap().bytes().len(),
            424
        );
        assert!(Auth::new(0, &[0; 400]).is_some() && Auth::new(0, &[0; 401]).is_none());
    }

    #[test]
    fn a_header_cut_anywhere_is_an_error_and_names_what_is_cut() {
        let words = [2, 100_003, 3, 1, 1, 7, 0x0102_0304, 0x0506_0700, 6, 4, 9];
        let whole = bytes_of(&words);
        for len in 0..whole.len() {
            let cut = CallHeader::decode(&mut Reader::new(&whole[..len]));
            match len {
                0..16 => assert!(matches!(cut, Err(HeaderError::Header(_))), "{len}"),
                16..32 => assert!(matches!(cut, Err(HeaderError::Credentials(_))), "{len}"),
                _ => assert!(matches!(cut, Err(HeaderError::Verifier(_))), "{len}"),
            }
        }
        assert!(CallHeader::decode(&mut Reader::new(&whole)).is_ok());
        for words in [&[0, 6, 4, 9, 2, 3, 3][..], &[1, 0, 2, 2], &[1, 1, 5]] {
            let whole = bytes_of(words);
            for len in 0..whole.len() {
                let cut = ReplyHeader::decode(&mut Reader::new(&whole[..len]));
                assert!(matches!(cut, Err(DecodeError::Truncated { .. })), "{len}");
            }
        }
    }

    #[test]
    fn the_bytes_of_padding_are_ignored() {
        let bytes = bytes_of(&[2, 1, 1, 1, 1, 5, 0x0102_0304, 0x05ff_ffff, 0, 0]);
        let header = CallHeader::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(header.credentials.body(), [1, 2, 3, 4, 5]);
        assert_eq!(header.bytes()[..28], bytes[..28][..]);
        assert_eq!(header.bytes()[28..32], [5, 0, 0, 0]);
    }

    #[test]
    fn an_invalid_call_has_its_reply() {
        for (words, answer) in [
            (&[3, 100_003][..], &[1, 0, 2, 2][..]),
            (&[2, 100_003, 3], &[0, 0, 0, 4]),
            (&[2, 100_003, 3, 0, 1, 401], &[1, 1, 1]),
            (&[2, 100_003, 3, 0, 1, 0, 0, 401], &[1, 1, 3]),
        ] {
            let error = call(words).unwrap_err();
            assert_eq!(error.reply().bytes().as_slice(), bytes_of(answer), "{error}");
        }
    }

    #[test]
    fn a_program_checks_its_number_then_its_version_then_the_procedure() {
        let program = RpcProgram { number: 100_003, version: 3, procedures: 22 };
        let mismatch = AcceptStatus::ProgramMismatch { low: 3, high: 3 };
        for (words, expected) in [
            ([2, 100_003, 3, 21], Ok(21)),
            ([2, 100_003, 3, 22], Err(AcceptStatus::ProcedureUnavailable)),
            ([2, 100_003, 2, 22], Err(mismatch)),
            ([2, 100_003, 4, 0], Err(mismatch)),
            ([2, 100_004, 4, 22], Err(AcceptStatus::ProgramUnavailable)),
        ] {
            let words = [&words[..], &[0; 4]].concat();
            assert_eq!(program.check(&call(&words).unwrap()), expected, "{words:?}");
        }
    }

    #[test]
    fn every_reply_is_decoded_from_its_words() {
        let accepted = |status| Ok(ReplyHeader::accepted(status));
        let mismatch = AcceptStatus::ProgramMismatch { low: 2, high: 4 };
        assert_eq!(reply(&[0; 4]), accepted(AcceptStatus::Success));
        assert_eq!(reply(&[0, 0, 0, 1]), accepted(AcceptStatus::ProgramUnavailable));
        assert_eq!(reply(&[0, 0, 0, 2, 2, 4]), accepted(mismatch));
        assert_eq!(reply(&[0, 0, 0, 3]), accepted(AcceptStatus::ProcedureUnavailable));
        assert_eq!(reply(&[0, 0, 0, 4]), accepted(AcceptStatus::GarbageArguments));
        assert_eq!(reply(&[0, 0, 0, 5]), accepted(AcceptStatus::SystemError));
        assert_eq!(reply(&[1, 0, 2, 2]), Ok(ReplyHeader::RPC_MISMATCH));
        assert_eq!(reply(&[1, 1, 13]), Ok(ReplyHeader::AuthError { why: 13 }));
        let verifier = Auth::new(6, &[0, 0, 0, 7]).unwrap();
        let proven = ReplyHeader::Accepted { verifier, status: AcceptStatus::Success };
        assert_eq!(reply(&[0, 6, 4, 7, 0]), Ok(proven));
        assert_eq!(ReplyHeader::SUCCESS, ReplyHeader::accepted(AcceptStatus::Success).bytes()[..]);
        for (words, at) in [(&[2][..], 0), (&[0, 0, 0, 6], 12), (&[1, 2], 4)] {
            let value = *words.last().unwrap();
            assert_eq!(reply(words), Err(DecodeError::BadDiscriminant { at, value }));
        }
    }

    #[test]
    fn the_parameters_of_a_user_are_bounded() {
        let name = |len: u32| [&[0, len][..], &[0; 64], &[5, 6, 0]].concat();
        assert!(AuthSys::decode(&bytes_of(&name(255))).is_ok());
        let long = DecodeError::TooMany { at: 4, count: 256, max: 255 };
        assert_eq!(AuthSys::decode(&bytes_of(&name(256))), Err(long));
        let groups = |count: u32| [&[0, 0, 5, 6, count][..], &[7; 17]].concat();
        assert_eq!(AuthSys::decode(&bytes_of(&groups(16))).unwrap().groups.len(), 16);
        let many = DecodeError::TooMany { at: 16, count: 17, max: 16 };
        assert_eq!(AuthSys::decode(&bytes_of(&groups(17))), Err(many));
        for len in 0..20 {
            assert!(AuthSys::decode(&bytes_of(&[1, 0, 2, 3, 0])[..len]).is_err(), "{len}");
        }
    }
}
