//! The tables of bindings: programs, procedures, and DDP-eligible items.

use super::protection::Protection;
use crate::error::CallRefused;

/// The binding of one version of one program. A constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// What people call it.
    pub name: &'static str,
    /// The program number.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// Its procedures.
    pub procedures: &'static [Procedure],
    /// What holds for procedures that are not listed; `None`: there are no others.
    pub others: Option<&'static Procedure>,
    /// The port that the program has on RDMA without being asked for, if it has one.
    pub port: Option<u16>,
}

/// A procedure, as far as it matters for transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Procedure {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// The arguments that may be placed, in the order of the call. All others must not.
    pub arguments: &'static [Item],
    /// The results that may be placed, in the order of the reply. All others must not.
    pub results: &'static [Item],
    /// How long the reply can be.
    pub reply: ReplyMax,
}

/// A data item that may be placed: variable-length opaque data or a string. Its length word stays
/// in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Its name in the program's XDR.
    pub name: &'static str,
    /// The operation that it belongs to, in a procedure that is a list of operations.
    pub operation: Option<u32>,
    /// The longest that it can be, in bytes.
    pub len_max: u32,
}

/// How long the results of a procedure can be, in bytes of XDR, without the bytes of items that
/// may be placed (RFC 8166 6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyMax {
    /// So long in the longest case, whatever the arguments.
    Fixed(u32),
    /// So long, and as long as the arguments ask for.
    Asked(u32),
    /// The table cannot know: the caller has to.
    Stated,
}

impl Binding {
    /// A procedure by its number.
    pub fn procedure(&self, number: u32) -> Option<&'static Procedure> {
        // The numbers of most programs are those of the table.
        let at = self.procedures.get(number as usize).filter(|found| found.number == number);
        at.or_else(|| self.procedures.iter().find(|found| found.number == number)).or(self.others)
    }

    /// Takes up a procedure, under the protection that its credentials ask for.
    ///
    /// # Errors
    /// [`BindError::NoProcedure`]: a server answers PROC_UNAVAIL.
    pub fn bind(&self, procedure: u32, protection: Protection) -> Result<Bound, BindError> {
        let found = self.procedure(procedure).ok_or(BindError::NoProcedure { procedure })?;
        Ok(Bound { procedure: found, protection })
    }
}

/// A procedure of a binding, and how its calls are protected: who calls, answers and reads does so
/// by it.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    procedure: &'static Procedure,
    protection: Protection,
}

impl Bound {
    /// The procedure.
    pub fn procedure(&self) -> &'static Procedure {
        self.procedure
    }

    /// How its messages are protected.
    pub fn protection(&self) -> Protection {
        self.protection
    }
}

/// The next of the items that may be placed, in the order of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    items: &'static [Item],
    operation: Option<u32>,
    passed: usize,
}

impl Order {
    /// Before the first item of a message.
    pub(super) fn new(items: &'static [Item]) -> Order {
        Order { items, operation: None, passed: 0 }
    }

    /// An operation begins.
    pub(super) fn begin(&mut self, operation: u32) {
        self.operation = Some(operation);
        self.passed = 0;
    }

    /// The next item of the operation, or of a message that is not made of operations.
    pub(super) fn next(&mut self) -> Option<&'static Item> {
        let of_operation = self.items.iter().filter(|item| item.operation == self.operation);
        let found = of_operation.clone().nth(self.passed)?;
        self.passed += 1;
        Some(found)
    }

    /// Whether all items were passed; operations are not looked back upon.
    pub(super) fn is_done(&self) -> bool {
        self.items.iter().skip(self.passed).all(|item| item.operation.is_some())
    }
}

/// A message cannot be made by its binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The program has no such procedure.
    #[error("the program has no procedure {procedure}")]
    NoProcedure {
        /// What was asked for.
        procedure: u32,
    },
    /// The binding names no item here, or no further one: it belongs into the stream.
    #[error("{procedure} has no further item here that may be placed")]
    NotEligible {
        /// The name of the procedure.
        procedure: &'static str,
    },
    /// An item is longer than the program allows.
    #[error("{item} has {len} bytes, and {max} at most")]
    TooLong {
        /// The name of the item.
        item: &'static str,
        /// Its length.
        len: u64,
        /// What is allowed.
        max: u32,
    },
    /// It was not said how long the reply can be: [`BoundCall::result`](super::BoundCall::result) for each of the items that
    /// it may have, and [`BoundCall::asks`](super::BoundCall::asks) where the table says so.
    #[error("how long the reply to {procedure} can be was not said")]
    ReplyUnknown {
        /// The name of the procedure.
        procedure: &'static str,
    },
    /// The engine refused the call.
    #[error(transparent)]
    Refused(#[from] CallRefused),
}
