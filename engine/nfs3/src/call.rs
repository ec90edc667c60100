//! An NFS call inside the server: the task, and its outcome.

use rpcrdma::Loan;

use crate::credentials::Identity;
use crate::rpc::CallDenial;
use crate::status::Status;

/// A call to be executed.
#[derive(Debug)]
pub struct CallTask {
    /// The procedure.
    pub procedure: u32,
    /// The identity to execute it with.
    pub who: Identity,
    /// Its encoded arguments, without data.
    pub head: Vec<u8>,
    /// The data of a WRITE.
    pub data: Vec<WriteData>,
    /// Registered memory for the data of a READ or the path of a READLINK.
    pub into: Option<Loan>,
}

/// A piece of the data of a WRITE.
#[derive(Debug)]
pub enum WriteData {
    /// The receive memory that contains it.
    Loan(Loan),
    /// A copy: the piece was short, or the memory could not be lent.
    Copy(Vec<u8>),
}

impl WriteData {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            WriteData::Loan(loan) => loan,
            WriteData::Copy(bytes) => bytes,
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Cuts it to `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        match self {
            WriteData::Loan(loan) if len < loan.len() => loan.truncate(len),
            WriteData::Loan(_) => {}
            WriteData::Copy(bytes) => bytes.truncate(len),
        }
    }
}

/// The outcome of a call.
#[derive(Debug)]
pub enum CallOutcome {
    /// The call was executed; its results.
    Results {
        /// The encoded results in front of the data.
        head: Vec<u8>,
        /// DDP-eligible data: the last result of the procedure.
        data: Option<Loan>,
    },
    /// The call was not executed.
    Denied(CallDenial),
}

impl CallOutcome {
    /// Whether the call may have had an effect. If not, a repetition may be executed.
    pub fn was_executed(&self) -> bool {
        match self {
            CallOutcome::Results { head, .. } => {
                !head.starts_with(&(Status::NFS3ERR_JUKEBOX as u32).to_be_bytes())
            }
            // `CallDenial::Busy` also answers a call that made the server panic, at any point.
            CallOutcome::Denied(denial) => matches!(denial, CallDenial::Busy),
        }
    }

    /// A copy for a repeated call. Such outcomes contain no data.
    pub fn repeated(&self) -> CallOutcome {
        match self {
            CallOutcome::Results { head, .. } => {
                CallOutcome::Results { head: head.clone(), data: None }
            }
            CallOutcome::Denied(denial) => CallOutcome::Denied(*denial),
        }
    }
}
