//! Checks the RPC header of a call to NFS or MOUNT, and builds the error replies.

use rpcrdma::onc::{
    AcceptStatus, AuthSys, CallHeader, HeaderError, ReplyHeader, RpcProgram, auth_flavor, auth_stat,
};

use crate::credentials::{Caller, Credentials};

/// A call to NFS or MOUNT, from its RPC header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedCall {
    /// The procedure.
    pub procedure: u32,
    /// The caller, from the credentials.
    pub caller: Caller,
}

/// Why a call is not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallDenial {
    /// The RPC header is invalid.
    Header(HeaderError),
    /// The credentials are not accepted.
    Credentials,
    /// The program, the version or the procedure does not exist: the status of the reply.
    Unavailable(AcceptStatus),
    /// The arguments cannot be decoded.
    Garbage,
    /// The server failed while it executed the call.
    Busy,
}

impl CheckedCall {
    /// Checks a header for a program.
    ///
    /// # Errors
    /// The error to answer with.
    pub fn of(header: &CallHeader<'_>, program: &RpcProgram) -> Result<CheckedCall, CallDenial> {
        let procedure = program.check(header).map_err(CallDenial::Unavailable)?;
        let caller = match header.credentials.flavor() {
            auth_flavor::NONE => Caller::Anonymous,
            auth_flavor::SYS => {
                let user = AuthSys::decode(header.credentials.body());
                Caller::Sys(Credentials::of(&user.map_err(|_| CallDenial::Credentials)?))
            }
            _ => return Err(CallDenial::Credentials),
        };
        Ok(CheckedCall { procedure, caller })
    }
}

impl From<HeaderError> for CallDenial {
    fn from(why: HeaderError) -> CallDenial {
        CallDenial::Header(why)
    }
}

impl CallDenial {
    /// The procedure does not exist.
    pub const PROCEDURE: CallDenial = CallDenial::Unavailable(AcceptStatus::ProcedureUnavailable);

    /// The reply header.
    pub fn reply(self) -> ReplyHeader<'static> {
        let status = match self {
            CallDenial::Header(why) => return why.reply(),
            CallDenial::Credentials => return ReplyHeader::AuthError { why: auth_stat::BADCRED },
            CallDenial::Unavailable(status) => status,
            CallDenial::Garbage => AcceptStatus::GarbageArguments,
            CallDenial::Busy => AcceptStatus::SystemError,
        };
        ReplyHeader::accepted(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma::onc::Reader;

    const PROGRAM: RpcProgram = RpcProgram { number: 100_003, version: 3, procedures: 22 };

    fn header(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn read(words: &[u32]) -> Result<CheckedCall, CallDenial> {
        let bytes = header(words);
        CheckedCall::of(&CallHeader::decode(&mut Reader::new(&bytes))?, &PROGRAM)
    }

    #[test]
    fn a_call_without_credentials_is_accepted() {
        let expected = CheckedCall { procedure: 0, caller: Caller::Anonymous };
        assert_eq!(read(&[2, 100_003, 3, 0, 0, 0, 0, 0]), Ok(expected));
    }

    #[test]
    fn credentials_of_a_call_are_read() {
        let words = [2, 100_003, 3, 1, 1, 32, 7, 1, 0x6100_0000, 1000, 100, 2, 4, 5, 0, 0];
        let called = read(&words).expect("it is whole");
        let Caller::Sys(who) = called.caller else { panic!("AUTH_SYS says who") };
        assert_eq!((who.uid, who.gid, who.groups.as_slice()), (1000, 100, &[4, 5][..]));
    }

    #[test]
    fn every_invalid_header_has_its_reply() {
        for (words, answer) in [
            (&[3, 100_003, 3, 0, 0, 0, 0, 0][..], &[1, 0, 2, 2][..]),
            (&[2, 100_004, 3, 0, 0, 0, 0, 0], &[0, 0, 0, 1]),
            (&[2, 100_003, 4, 0, 0, 0, 0, 0], &[0, 0, 0, 2, 3, 3]),
            (&[2, 100_003, 3, 22, 0, 0, 0, 0], &[0, 0, 0, 3]),
            (&[2, 100_003, 3, 1, 6, 0, 0, 0], &[1, 1, 1]),
            // AUTH_SYS without a body, with more groups than are allowed, and cut off.
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
        assert_eq!(CallDenial::Busy.reply().bytes()[..], header(&[0, 0, 0, 5]));
    }
}
