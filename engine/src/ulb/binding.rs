//! The tables of bindings: programs, procedures, and DDP-eligible items.

use super::protection::Protection;
use crate::error::CallRefused;
use crate::stats::latency::ProcedureKey;

/// The binding of one version of one program. A constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// Its common name.
    pub name: &'static str,
    /// The program number.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// Its procedures.
    pub procedures: &'static [Procedure],
    /// The rules for procedures that are not listed; `None`: there are no others.
    pub others: Option<&'static Procedure>,
    /// The program's default port on RDMA, if it has one.
    pub port: Option<u16>,
}

/// The transport properties of a procedure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Procedure {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// The DDP-eligible arguments, in the order of the call. All others must stay inline.
    pub arguments: &'static [Item],
    /// The DDP-eligible results, in the order of the reply. All others must stay inline.
    pub results: &'static [Item],
    /// The maximum length of the reply.
    pub reply: ReplyMax,
}

/// A DDP-eligible data item: variable-length opaque data or a string. Its length word stays in the
/// stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Its name in the program's XDR.
    pub name: &'static str,
    /// The operation that it belongs to, in a procedure that is a list of operations.
    pub operation: Option<u32>,
    /// Its maximum length, in bytes.
    pub len_max: u32,
    /// Whether it is the target of a symbolic link, which `interop.links_in_line` requests in the
    /// stream.
    pub is_link: bool,
}

/// The maximum length of a procedure's results, in bytes of XDR, without the bytes of DDP-eligible
/// items (RFC 8166 6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyMax {
    /// This length at most, for any arguments.
    Fixed(u32),
    /// This length, plus the length that the arguments ask for.
    Asked(u32),
    /// Not known from the table: the caller states it.
    Stated,
}

impl Binding {
    /// A procedure by its number.
    pub fn procedure(&self, number: u32) -> Option<&'static Procedure> {
        // Most programs number their procedures by table index.
        let at = self.procedures.get(number as usize).filter(|found| found.number == number);
        at.or_else(|| self.procedures.iter().find(|found| found.number == number)).or(self.others)
    }

    /// Binds a procedure, with the protection of its credentials.
    ///
    /// # Errors
    /// [`BindError::NoProcedure`]: a server answers PROC_UNAVAIL.
    pub fn bind(&self, procedure: u32, protection: Protection) -> Result<Bound, BindError> {
        let found = self.procedure(procedure).ok_or(BindError::NoProcedure { procedure })?;
        let Binding { program, version, .. } = *self;
        Ok(Bound { procedure: found, number: procedure, protection, program, version })
    }
}

/// A procedure of a binding with the protection of its calls. Builds calls and replies, and reads
/// messages.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    procedure: &'static Procedure,
    protection: Protection,
    program: u32,
    version: u32,
    number: u32,
}

impl Bound {
    /// The procedure.
    pub fn procedure(&self) -> &'static Procedure {
        self.procedure
    }

    /// The protection of its messages.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Which latency the calls belong to: of own calls, or of those of peers.
    pub(super) fn key(&self, is_own: bool) -> ProcedureKey {
        let Bound { program, version, number, procedure: Procedure { name, .. }, .. } = *self;
        ProcedureKey { program, version, number, name, is_own }
    }
}

/// The next DDP-eligible item, in the order of a message.
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

    /// Whether all items were passed; earlier operations do not count.
    pub(super) fn is_done(&self) -> bool {
        self.items.iter().skip(self.passed).all(|item| item.operation.is_some())
    }
}

/// A message does not conform to its binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The program has no such procedure.
    #[error("the program has no procedure {procedure}")]
    NoProcedure {
        /// The requested number.
        procedure: u32,
    },
    /// The binding has no item here, or no further one: the data belongs in the stream.
    #[error("{procedure} has no further DDP-eligible item here")]
    NotEligible {
        /// The name of the procedure.
        procedure: &'static str,
    },
    /// An item is longer than the program allows.
    #[error("{item} has {len} bytes; at most {max} are allowed")]
    TooLong {
        /// The name of the item.
        item: &'static str,
        /// Its length.
        len: u64,
        /// The maximum.
        max: u32,
    },
    /// The maximum length of the reply was not stated: use
    /// [`BoundCall::result`](super::BoundCall::result) for each item that the reply may have, and
    /// [`BoundCall::asks`](super::BoundCall::asks) where the table requires it.
    #[error("the maximum length of the reply to {procedure} was not stated")]
    ReplyUnknown {
        /// The name of the procedure.
        procedure: &'static str,
    },
    /// The engine did not send the call.
    #[error(transparent)]
    Refused(#[from] CallRefused),
}
