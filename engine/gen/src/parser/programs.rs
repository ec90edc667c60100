//! Programs, their versions and procedures (RFC 5531 section 12).

use super::{Parsed, Parser};
use crate::ast::{Count, Declaration, Procedure, Program, ProgramVersion, Type};
use crate::token::Token;

impl Parser<'_> {
    /// `NAME { version ... } = NUMBER`
    pub(super) fn program(&mut self) -> Parsed<Program> {
        let name = self.name("a program")?;
        self.expect(&Token::BraceOpen, "in front of the versions of a program")?;
        let mut versions = Vec::new();
        while versions.is_empty() || !self.take(&Token::BraceClose) {
            self.expect_word("version", "in a program")?;
            versions.push(self.version()?);
        }
        self.expect(&Token::Equals, "behind a program")?;
        Ok(Program { name, number: self.value("the number of the program")?, versions })
    }

    /// `NAME { procedure ... } = NUMBER;`
    fn version(&mut self) -> Parsed<ProgramVersion> {
        let name = self.name("a version")?;
        self.expect(&Token::BraceOpen, "in front of the procedures of a version")?;
        let mut procedures = Vec::new();
        while procedures.is_empty() || !self.take(&Token::BraceClose) {
            procedures.push(self.procedure()?);
        }
        self.expect(&Token::Equals, "behind a version")?;
        let number = self.value("the number of the version")?;
        self.expect(&Token::Semicolon, "behind the number of a version")?;
        Ok(ProgramVersion { name, number, procedures })
    }

    /// `RESULT NAME(ARGUMENT, ...) = NUMBER;`
    fn procedure(&mut self) -> Parsed<Procedure> {
        let result = self.unnamed()?;
        let name = self.name("a procedure")?;
        self.expect(&Token::ParenOpen, "in front of the arguments of a procedure")?;
        let mut arguments = Vec::new();
        while !self.take(&Token::ParenClose) {
            if !arguments.is_empty() {
                self.expect(&Token::Comma, "between the arguments of a procedure")?;
            }
            let argument = self.unnamed()?;
            // rpcgen takes names of arguments with -N.
            let name = match self.peek() {
                Token::Word(_) => Some(self.name("an argument")?),
                _ => None,
            };
            arguments.push(Declaration { name, ..argument });
        }
        self.expect(&Token::Equals, "behind a procedure")?;
        let number = self.value("the number of the procedure")?;
        self.expect(&Token::Semicolon, "behind the number of a procedure")?;
        Ok(Procedure { name, number, arguments, result })
    }

    /// A type without a name: a result, or an argument. `string` needs no `<>` there.
    fn unnamed(&mut self) -> Parsed<Declaration> {
        let start = self.span();
        let kind = self.kind()?;
        let count = match (self.take(&Token::Star), &kind) {
            (true, Type::Void) => return self.fail_at(start, "`void` has no `*`: a type expected"),
            (true, _) => Count::Optional,
            (false, Type::Text | Type::Opaque) => match self.count()? {
                Count::One => Count::Variable(None),
                count => count,
            },
            (false, _) => Count::One,
        };
        let span = start.to(self.last_span());
        Ok(Declaration { kind, span, name: None, count, ddp: None })
    }
}
