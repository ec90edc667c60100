//! A description as it is written: definitions, with the places of their names.

use crate::span::{At, Span};

/// All definitions of a description, in order.
#[derive(Debug, Default)]
pub struct Description {
    /// The definitions.
    pub definitions: Vec<Definition>,
}

/// A name.
pub type Name = At<String>;

/// A definition.
#[derive(Debug, PartialEq, Eq)]
pub enum Definition {
    /// `const NAME = VALUE;`
    Const(Name, Value),
    /// `typedef ...;`
    Typedef(Declaration),
    /// `enum NAME { ... };`
    Enum(Name, Vec<Enumerator>),
    /// `struct NAME { ... };`
    Struct(Name, Vec<Declaration>),
    /// `union NAME switch (...) { ... };`
    Union(Name, Box<Union>),
    /// `program NAME { ... } = NUMBER;`
    Program(Program),
}

impl Definition {
    /// Its name; none for a typedef of `void`, which is an error.
    pub fn name(&self) -> Option<&Name> {
        match self {
            Definition::Const(name, _)
            | Definition::Enum(name, _)
            | Definition::Struct(name, _)
            | Definition::Union(name, _) => Some(name),
            Definition::Typedef(declaration) => declaration.name.as_ref(),
            Definition::Program(program) => Some(&program.name),
        }
    }
}

/// A value: a number, or the name of a constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(At<i128>),
    /// A constant or an enumerator.
    Named(Name),
    /// A text in quotes, which only a constant can be: it is for C.
    Text(At<String>),
}

impl Value {
    /// Where it is written.
    pub fn span(&self) -> Span {
        match self {
            Value::Number(number) => number.span,
            Value::Named(At { span, .. }) | Value::Text(At { span, .. }) => *span,
        }
    }
}

/// A name of an enumeration.
#[derive(Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// The name.
    pub name: Name,
    /// Its value; without one, as rpcgen takes it, one more than that of the name before, or 0.
    pub value: Option<Value>,
}

/// What a member, an arm, an argument or a typedef is.
#[derive(Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The type, of the elements if there are several.
    pub kind: Type,
    /// Where the type is written.
    pub span: Span,
    /// The name; none for `void`, and for arguments and results.
    pub name: Option<Name>,
    /// How many there are.
    pub count: Count,
    /// Whether `/* ddp */` stands behind it: the transport may place its bytes.
    pub ddp: Option<Span>,
}

/// How many of a type a declaration has.
#[derive(Debug, PartialEq, Eq)]
pub enum Count {
    /// One.
    One,
    /// `[VALUE]`: so many.
    Fixed(Value),
    /// `<VALUE>` or `<>`: at most so many, behind their number.
    Variable(Option<Value>),
    /// `*`: one or none.
    Optional,
}

/// A type.
#[derive(Debug, PartialEq, Eq)]
pub enum Type {
    /// No value.
    Void,
    /// 32 bits, signed. The types `short` and `char` of rpcgen are the same on the wire.
    Int(Width),
    /// 32 bits, unsigned.
    Unsigned(Width),
    /// 64 bits, signed.
    Hyper,
    /// 64 bits, unsigned.
    UnsignedHyper,
    /// IEEE 754, 32 bits.
    Float,
    /// IEEE 754, 64 bits.
    Double,
    /// IEEE 754, 128 bits.
    Quadruple,
    /// False or true.
    Bool,
    /// Bytes; always with a count.
    Opaque,
    /// Text; always with a count.
    Text,
    /// A type with a name.
    Named(Name),
    /// `enum { ... }` in the place of a type.
    Enum(Vec<Enumerator>),
    /// `struct { ... }` in the place of a type.
    Struct(Vec<Declaration>),
    /// `union switch ...` in the place of a type.
    Union(Box<Union>),
}

/// The values that an integer of a program has; each takes 32 bits on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 8 bits, `char`.
    Eight,
    /// 16 bits, `short`.
    Sixteen,
    /// 32 bits.
    ThirtyTwo,
}

/// A discriminated union.
#[derive(Debug, PartialEq, Eq)]
pub struct Union {
    /// What decides about the arm.
    pub discriminant: Declaration,
    /// The arms.
    pub arms: Vec<Arm>,
    /// What there is in all other cases.
    pub default: Option<Declaration>,
}

/// An arm of a union.
#[derive(Debug, PartialEq, Eq)]
pub struct Arm {
    /// The values that lead to it.
    pub cases: Vec<Value>,
    /// What it has.
    pub declaration: Declaration,
}

/// A program.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: Name,
    /// Its number.
    pub number: Value,
    /// Its versions.
    pub versions: Vec<ProgramVersion>,
}

/// A version of a program.
#[derive(Debug, PartialEq, Eq)]
pub struct ProgramVersion {
    /// Its name.
    pub name: Name,
    /// Its number.
    pub number: Value,
    /// Its procedures.
    pub procedures: Vec<Procedure>,
}

/// A procedure.
#[derive(Debug, PartialEq, Eq)]
pub struct Procedure {
    /// Its name.
    pub name: Name,
    /// Its number.
    pub number: Value,
    /// Its arguments; one `void` if there are none.
    pub arguments: Vec<Declaration>,
    /// Its result.
    pub result: Declaration,
}
