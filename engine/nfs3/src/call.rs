//! A call on its way through the server: what is to be done, and what became of it.

use rpcrdma_engine::Loan;

use crate::credentials::Identity;
use crate::rpc::Denial;
use crate::status::Status;

/// What is to be done.
#[derive(Debug)]
pub struct Task {
    /// The procedure.
    pub procedure: u32,
    /// As whom.
    pub who: Identity,
    /// Its arguments, without data.
    pub head: Vec<u8>,
    /// The data of a WRITE.
    pub data: Vec<Part>,
    /// Registered memory for the data of a READ, or the path of a READLINK.
    pub into: Option<Loan>,
}

/// A piece of the data of a WRITE.
#[derive(Debug)]
pub enum Part {
    /// Where it landed.
    Loan(Loan),
    /// It was short, or could not be taken.
    Copy(Vec<u8>),
}

impl Part {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Part::Loan(loan) => loan,
            Part::Copy(bytes) => bytes,
        }
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Forgets what is behind `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        match self {
            Part::Loan(loan) if len < loan.len() => loan.truncate(len),
            Part::Loan(_) => {}
            Part::Copy(bytes) => bytes.truncate(len),
        }
    }
}

/// What became of a call.
#[derive(Debug)]
pub enum Outcome {
    /// It was executed; its results.
    Results {
        /// In front of the data.
        head: Vec<u8>,
        /// Data that may be placed: the last result of its procedure.
        data: Option<Loan>,
    },
    /// It was not.
    Denied(Denial),
}

impl Outcome {
    /// Whether something may have been done. If not, the call may be executed when it comes again.
    pub fn was_executed(&self) -> bool {
        match self {
            Outcome::Results { head, .. } => {
                !head.starts_with(&(Status::NFS3ERR_JUKEBOX as u32).to_be_bytes())
            }
            // Busy is said of a call in which the server has made a mistake, at whatever point.
            Outcome::Denied(denial) => matches!(denial, Denial::Busy),
        }
    }

    /// The same for a call that was repeated. There are never data in it.
    pub fn repeated(&self) -> Outcome {
        match self {
            Outcome::Results { head, .. } => Outcome::Results { head: head.clone(), data: None },
            Outcome::Denied(denial) => Outcome::Denied(*denial),
        }
    }
}
