//! What an RPC header calls of our programs, and the answers that come before any procedure.

use rpcrdma_engine::onc::{
    AcceptStatus, AuthSys, CallHeader, HeaderError, ReplyHeader, auth_flavor, auth_stat,
};

use crate::credentials::{Caller, Credentials};

/// A call to one of our programs, by its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
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
    /// A header that cannot be used.
    Header(HeaderError),
    /// The credentials are not to be taken.
    Credentials,
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

impl Called {
    /// What a header calls of a program.
    ///
    /// # Errors
    /// What is to be answered.
    pub fn of(header: &CallHeader<'_>, program: &Program) -> Result<Called, Denial> {
        if header.program != program.number {
            return Err(Denial::Program);
        }
        if header.version != program.version {
            return Err(Denial::Version(program.version));
        }
        if header.procedure >= program.procedures {
            return Err(Denial::Procedure);
        }
        let caller = match header.credentials.flavor() {
            auth_flavor::NONE => Caller::Nobody,
            auth_flavor::SYS => {
                let user = AuthSys::decode(header.credentials.body());
                Caller::Says(Credentials::of(&user.map_err(|_| Denial::Credentials)?))
            }
            _ => return Err(Denial::Credentials),
        };
        Ok(Called { procedure: header.procedure, caller })
    }
}

impl From<HeaderError> for Denial {
    fn from(why: HeaderError) -> Denial {
        Denial::Header(why)
    }
}

impl Denial {
    /// The answer.
    pub fn reply(self) -> ReplyHeader<'static> {
        let status = match self {
            Denial::Header(why) => return why.reply(),
            Denial::Credentials => return ReplyHeader::AuthError { why: auth_stat::BADCRED },
            Denial::Program => AcceptStatus::ProgramUnavailable,
            Denial::Version(only) => AcceptStatus::ProgramMismatch { low: only, high: only },
            Denial::Procedure => AcceptStatus::ProcedureUnavailable,
            Denial::Garbage => AcceptStatus::GarbageArguments,
            Denial::Busy => AcceptStatus::SystemError,
        };
        ReplyHeader::accepted(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_engine::onc::Reader;

    const PROGRAM: Program = Program { number: 100_003, version: 3, procedures: 22 };

    fn header(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn read(words: &[u32]) -> Result<Called, Denial> {
        let bytes = header(words);
        Called::of(&CallHeader::decode(&mut Reader::new(&bytes))?, &PROGRAM)
    }

    #[test]
    fn a_call_of_nobody_is_read() {
        let expected = Called { procedure: 0, caller: Caller::Nobody };
        assert_eq!(read(&[2, 100_003, 3, 0, 0, 0, 0, 0]), Ok(expected));
    }

    #[test]
    fn a_call_says_who_makes_it() {
        let words = [2, 100_003, 3, 1, 1, 32, 7, 1, 0x6100_0000, 1000, 100, 2, 4, 5, 0, 0];
        let called = read(&words).expect("it is whole");
        let Caller::Says(who) = called.caller else { panic!("AUTH_SYS says who") };
        assert_eq!((who.uid, who.gid, who.groups.as_slice()), (1000, 100, &[4, 5][..]));
    }

    #[test]
    fn every_other_header_has_its_answer() {
        for (words, answer) in [
            (&[3, 100_003, 3, 0, 0, 0, 0, 0][..], &[1, 0, 2, 2][..]),
            (&[2, 100_004, 3, 0, 0, 0, 0, 0], &[0, 0, 0, 1]),
            (&[2, 100_003, 4, 0, 0, 0, 0, 0], &[0, 0, 0, 2, 3, 3]),
            (&[2, 100_003, 3, 22, 0, 0, 0, 0], &[0, 0, 0, 3]),
            (&[2, 100_003, 3, 1, 6, 0, 0, 0], &[1, 1, 1]),
            // AUTH_SYS without a body, with more groups than there are, and one that is cut off.
            (&[2, 100_003, 3, 1, 1, 0, 0, 0], &[1, 1, 1]),
            (&[2, 100_003, 3, 1, 1, 20, 7, 0, 0, 0, 17, 0, 0], &[1, 1, 1]),
            (&[2, 100_003, 3, 1, 1, 401], &[1, 1, 1]),
            (&[2, 100_003, 3, 1, 0, 0, 0, u32::MAX], &[1, 1, 3]),
            (&[2, 100_003], &[0, 0, 0, 4]),
            (&[], &[0, 0, 0, 4]),
        ] {
            let denial = read(words).expect_err("it is not executed");
            assert_eq!(denial.reply().bytes()[..], header(answer), "{words:?}");
        }
        assert_eq!(Denial::Busy.reply().bytes()[..], header(&[0, 0, 0, 5]));
    }
}
