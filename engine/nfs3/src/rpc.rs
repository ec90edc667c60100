//! The header of an RPC call, and the answers that come before any procedure (RFC 5531).

use arrayvec::ArrayVec;
use rpcrdma_engine::PayloadReader;

use crate::credentials::{Caller, Credentials};

/// Where the words of a call come from: receive buffers, or the bytes of a record.
pub trait Source {
    /// Fills `out`.
    fn take(&mut self, out: &mut [u8]) -> Result<(), Denial>;

    /// An unsigned integer.
    fn word(&mut self) -> Result<u32, Denial> {
        let mut word = [0; 4];
        self.take(&mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    /// Opaque data of at most `max` bytes, appended to `out`.
    fn opaque<const N: usize>(&mut self, out: &mut ArrayVec<u8, N>) -> Result<(), Denial> {
        let len = self.word()? as usize;
        if len > out.remaining_capacity() {
            return Err(Denial::Garbage);
        }
        let mut left = len.next_multiple_of(4);
        let end = out.len() + len;
        while left > 0 {
            let mut word = [0; 4];
            self.take(&mut word)?;
            out.extend(word.into_iter().take(end - out.len()));
            left -= 4;
        }
        Ok(())
    }
}

impl Source for PayloadReader<'_> {
    fn take(&mut self, out: &mut [u8]) -> Result<(), Denial> {
        self.fixed_into(out).map_err(|_| Denial::Garbage)
    }
}

impl Source for &[u8] {
    fn take(&mut self, out: &mut [u8]) -> Result<(), Denial> {
        let (now, later) = self.split_at_checked(out.len()).ok_or(Denial::Garbage)?;
        out.copy_from_slice(now);
        *self = later;
        Ok(())
    }
}

/// The header of a call to one of our programs, up to its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHeader {
    /// The procedure.
    pub procedure: u32,
    /// Who calls, as it says.
    pub caller: Caller,
}

/// A program as it is offered: its number, its only version, and its procedures.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its number.
    pub number: u32,
    /// Its version.
    pub version: u32,
    /// One more than its highest procedure.
    pub procedures: u32,
}

/// A call that is answered without being executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// Another version of RPC.
    RpcVersion,
    /// The credentials are not to be taken: `auth_stat`.
    Credentials(u32),
    /// Another program.
    Program,
    /// Another version of the program; this one there is.
    Version(u32),
    /// No such procedure.
    Procedure,
    /// Arguments that cannot be read.
    Garbage,
    /// The server cannot now.
    Busy,
}

impl CallHeader {
    /// Reads the header of a call from behind transaction id and message type.
    ///
    /// # Errors
    /// What is to be answered.
    pub fn read(source: &mut impl Source, program: &Program) -> Result<CallHeader, Denial> {
        if source.word()? != RPC_VERSION {
            return Err(Denial::RpcVersion);
        }
        let (number, version, procedure) = (source.word()?, source.word()?, source.word()?);
        let flavor = source.word()?;
        let mut body = ArrayVec::<u8, AUTH_BODY_MAX>::new();
        source.opaque(&mut body).map_err(|_| Denial::Credentials(AUTH_BADCRED))?;
        let _verifier_flavor = source.word()?;
        let mut verifier = ArrayVec::<u8, AUTH_BODY_MAX>::new();
        source.opaque(&mut verifier).map_err(|_| Denial::Credentials(AUTH_BADVERF))?;
        if number != program.number {
            return Err(Denial::Program);
        }
        if version != program.version {
            return Err(Denial::Version(program.version));
        }
        if procedure >= program.procedures {
            return Err(Denial::Procedure);
        }
        let caller = match flavor {
            AUTH_NONE => Caller::Nobody,
            AUTH_SYS => {
                Caller::Says(Credentials::read(&body).ok_or(Denial::Credentials(AUTH_BADCRED))?)
            }
            _ => return Err(Denial::Credentials(AUTH_BADCRED)),
        };
        Ok(CallHeader { procedure, caller })
    }
}

impl Denial {
    /// The answer, from behind transaction id and message type.
    pub fn words(self) -> ArrayVec<u32, 6> {
        let accepted = |words: &[u32]| {
            let head = [ACCEPTED, AUTH_NONE, 0];
            head.iter().chain(words).copied().collect()
        };
        match self {
            Denial::RpcVersion => {
                [DENIED, RPC_MISMATCH, RPC_VERSION, RPC_VERSION].into_iter().collect()
            }
            Denial::Credentials(status) => [DENIED, AUTH_ERROR, status].into_iter().collect(),
            Denial::Program => accepted(&[1]),
            Denial::Version(only) => accepted(&[2, only, only]),
            Denial::Procedure => accepted(&[3]),
            Denial::Garbage => accepted(&[4]),
            Denial::Busy => accepted(&[5]),
        }
    }
}

/// In front of the results of a procedure that was executed: MSG_ACCEPTED, no verifier, SUCCESS.
pub const EXECUTED: [u32; 4] = [ACCEPTED, AUTH_NONE, 0, 0];

const RPC_VERSION: u32 = 2;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// RFC 5531 8.2.
const AUTH_BODY_MAX: usize = 400;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
const AUTH_BADCRED: u32 = 1;
const AUTH_BADVERF: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program { number: 100_003, version: 3, procedures: 22 };

    fn header(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn read(words: &[u32]) -> Result<CallHeader, Denial> {
        CallHeader::read(&mut &header(words)[..], &PROGRAM)
    }

    #[test]
    fn a_call_of_nobody_is_read() {
        let expected = CallHeader { procedure: 0, caller: Caller::Nobody };
        assert_eq!(read(&[2, 100_003, 3, 0, 0, 0, 0, 0]), Ok(expected));
    }

    #[test]
    fn a_call_says_who_makes_it() {
        let words = [2, 100_003, 3, 1, 1, 32, 7, 1, 0x6100_0000, 1000, 100, 2, 4, 5, 0, 0];
        let header = read(&words).expect("it is whole");
        let Caller::Says(who) = header.caller else { panic!("AUTH_SYS says who") };
        assert_eq!((who.uid, who.gid, who.groups.as_slice()), (1000, 100, &[4, 5][..]));
    }

    #[test]
    fn every_other_header_has_its_answer() {
        for (words, denial) in [
            (&[3, 100_003, 3, 0, 0, 0, 0, 0][..], Denial::RpcVersion),
            (&[2, 100_004, 3, 0, 0, 0, 0, 0], Denial::Program),
            (&[2, 100_003, 4, 0, 0, 0, 0, 0], Denial::Version(3)),
            (&[2, 100_003, 3, 22, 0, 0, 0, 0], Denial::Procedure),
            (&[2, 100_003, 3, 1, 6, 0, 0, 0], Denial::Credentials(1)),
            // AUTH_SYS without a body, with more groups than there are, and one that is cut off.
            (&[2, 100_003, 3, 1, 1, 0, 0, 0], Denial::Credentials(1)),
            (&[2, 100_003, 3, 1, 1, 20, 7, 0, 0, 0, 17, 0, 0], Denial::Credentials(1)),
            (&[2, 100_003, 3, 1, 1, 401], Denial::Credentials(1)),
            (&[2, 100_003, 3, 1, 0, 0, 0, u32::MAX], Denial::Credentials(3)),
            (&[2, 100_003], Denial::Garbage),
            (&[], Denial::Garbage),
        ] {
            assert_eq!(read(words), Err(denial), "{words:?}");
        }
    }

    #[test]
    fn an_answer_says_which_versions_there_are() {
        assert_eq!(Denial::Version(3).words()[..], [0, 0, 0, 2, 3, 3]);
        assert_eq!(Denial::RpcVersion.words()[..], [1, 0, 2, 2]);
        assert_eq!(Denial::Credentials(1).words()[..], [1, 1, 1]);
    }
}
