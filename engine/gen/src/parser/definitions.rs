//! Constants, types with names, and their bodies (RFC 4506 section 6.3).

use super::{Parsed, Parser};
use crate::ast::{Arm, Count, Declaration, Definition, Enumerator, Type, Union, Value};
use crate::span::At;
use crate::token::Token;

impl Parser<'_> {
    pub(super) fn definition(&mut self) -> Parsed<Definition> {
        let definition = if self.take_word("const") {
            let name = self.name("a constant")?;
            self.expect(&Token::Equals, "behind the name of the constant")?;
            let span = self.span();
            if let Token::Text(text) = self.peek() {
                let text = Value::Text(At::new(text.clone(), span));
                self.advance();
                self.expect(&Token::Semicolon, "behind the definition")?;
                return Ok(Definition::Const(name, text));
            }
            Definition::Const(name, self.value("the value of the constant")?)
        } else if self.take_word("typedef") {
            let declaration = self.declaration("a type")?;
            self.expect(&Token::Semicolon, "behind the typedef")?;
            return Ok(Definition::Typedef(self.placed(declaration)));
        } else if self.take_word("enum") {
            let name = self.name("an enum")?;
            Definition::Enum(name, self.enumerators()?)
        } else if self.take_word("struct") {
            let name = self.name("a struct")?;
            Definition::Struct(name, self.members()?)
        } else if self.take_word("union") {
            let name = self.name("a union")?;
            Definition::Union(name, Box::new(self.union_body()?))
        } else if self.take_word("program") {
            Definition::Program(self.program()?)
        } else {
            return self.fail("const, typedef, enum, struct, union or program expected");
        };
        self.expect(&Token::Semicolon, "behind the definition")?;
        Ok(definition)
    }

    /// `{ NAME = VALUE, ... }`
    pub(super) fn enumerators(&mut self) -> Parsed<Vec<Enumerator>> {
        self.expect(&Token::BraceOpen, "in front of the names of an enum")?;
        let mut enumerators = Vec::new();
        loop {
            let name = self.name("an enumerator")?;
            let value = match self.take(&Token::Equals) {
                true => Some(self.value("the value of the enumerator")?),
                false => None,
            };
            enumerators.push(Enumerator { name, value });
            // A comma behind the last name is rpcgen's.
            let is_more = self.take(&Token::Comma);
            if self.take(&Token::BraceClose) {
                return Ok(enumerators);
            }
            if !is_more {
                return self.fail("`=`, `,` or `}` expected behind the name of an enumerator");
            }
        }
    }

    /// `{ DECLARATION; ... }`
    pub(super) fn members(&mut self) -> Parsed<Vec<Declaration>> {
        self.expect(&Token::BraceOpen, "in front of the members of a struct")?;
        let mut members = Vec::new();
        loop {
            let member = self.declaration("a member")?;
            self.expect(&Token::Semicolon, "behind the member")?;
            members.push(self.placed(member));
            if self.take(&Token::BraceClose) {
                return Ok(members);
            }
        }
    }

    /// `switch (DECLARATION) { case VALUE: ... default: DECLARATION; }`
    pub(super) fn union_body(&mut self) -> Parsed<Union> {
        self.expect_word("switch", "behind the name of a union")?;
        self.expect(&Token::ParenOpen, "in front of the discriminant")?;
        let discriminant = self.declaration("the discriminant")?;
        self.expect(&Token::ParenClose, "behind the discriminant")?;
        self.expect(&Token::BraceOpen, "in front of the arms of a union")?;
        let (mut arms, mut default) = (Vec::new(), None);
        while arms.is_empty() || !self.take(&Token::BraceClose) {
            if self.take_word("default") {
                self.expect(&Token::Colon, "behind `default`")?;
                let arm = self.arm()?;
                if default.replace(arm).is_some() {
                    return self.fail_at(self.last_span(), "one `default` arm expected");
                }
                continue;
            }
            let mut cases = Vec::new();
            while self.take_word("case") {
                cases.push(self.value("the value of a case")?);
                self.expect(&Token::Colon, "behind the value of a case")?;
            }
            if cases.is_empty() {
                return self.fail("`case`, `default` or `}` expected");
            }
            arms.push(Arm { cases, declaration: self.arm()? });
        }
        Ok(Union { discriminant, arms, default })
    }

    fn arm(&mut self) -> Parsed<Declaration> {
        let declaration = self.declaration("an arm")?;
        self.expect(&Token::Semicolon, "behind the arm")?;
        Ok(self.placed(declaration))
    }

    /// The declaration, with the annotation that may stand behind its `;`.
    fn placed(&mut self, declaration: Declaration) -> Declaration {
        let behind = (*self.peek() == Token::Ddp).then(|| self.span());
        if behind.is_some() {
            self.advance();
        }
        Declaration { ddp: declaration.ddp.or(behind), ..declaration }
    }

    /// `TYPE NAME` with its count, or `void`.
    pub(super) fn declaration(&mut self, of: &str) -> Parsed<Declaration> {
        let start = self.span();
        let kind = self.kind()?;
        let span = start.to(self.last_span());
        if kind == Type::Void {
            return Ok(Declaration { kind, span, name: None, count: Count::One, ddp: None });
        }
        let is_optional = self.take(&Token::Star);
        let name = Some(self.name(of)?);
        let count = if is_optional { Count::Optional } else { self.count()? };
        let ddp = (*self.peek() == Token::Ddp).then(|| self.span());
        if ddp.is_some() {
            self.advance();
        }
        Ok(Declaration { kind, span, name, count, ddp })
    }

    /// `[VALUE]`, `<VALUE>`, `<>` or nothing.
    pub(super) fn count(&mut self) -> Parsed<Count> {
        if self.take(&Token::BracketOpen) {
            let value = self.value("the number of elements")?;
            self.expect(&Token::BracketClose, "behind the number of elements")?;
            return Ok(Count::Fixed(value));
        }
        if !self.take(&Token::AngleOpen) {
            return Ok(Count::One);
        }
        if self.take(&Token::AngleClose) {
            return Ok(Count::Variable(None));
        }
        let value = self.value("the largest number of elements")?;
        self.expect(&Token::AngleClose, "behind the largest number of elements")?;
        Ok(Count::Variable(Some(value)))
    }
}
