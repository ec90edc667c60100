//! Types, as they stand in front of a name: those of RFC 4506, and the names that rpcgen has for C.

use super::{Parsed, Parser};
use crate::ast::{Type, Width};
use crate::token::Token;

impl Parser<'_> {
    /// A type.
    pub(super) fn kind(&mut self) -> Parsed<Type> {
        let Token::Word(word) = self.peek() else { return self.fail("a type expected") };
        let word = word.clone();
        if let Some(kind) = of_one_word(&word) {
            self.advance();
            return Ok(kind);
        }
        match word.as_str() {
            "unsigned" => {
                self.advance();
                Ok(self.unsigned())
            }
            "long" | "short" => {
                self.advance();
                // As in C: `long int`.
                self.take_word("int");
                Ok(Type::Int(if word == "long" { Width::ThirtyTwo } else { Width::Sixteen }))
            }
            "enum" | "struct" | "union" => {
                self.advance();
                self.type_with_body(&word)
            }
            _ => Ok(Type::Named(self.name("a type")?)),
        }
    }

    /// What follows `unsigned`, which alone is `unsigned int`.
    fn unsigned(&mut self) -> Type {
        let kinds = [
            ("int", Type::Unsigned(Width::ThirtyTwo)),
            ("long", Type::Unsigned(Width::ThirtyTwo)),
            ("hyper", Type::UnsignedHyper),
            ("short", Type::Unsigned(Width::Sixteen)),
            ("char", Type::Unsigned(Width::Eight)),
        ];
        for (word, kind) in kinds {
            if self.take_word(word) {
                if matches!(word, "long" | "short") {
                    self.take_word("int");
                }
                return kind;
            }
        }
        Type::Unsigned(Width::ThirtyTwo)
    }

    /// `struct { ... }`, or `struct NAME` for a type that is defined elsewhere.
    fn type_with_body(&mut self, word: &str) -> Parsed<Type> {
        let has_body = *self.peek() == Token::BraceOpen || self.peek().is_word("switch");
        if !has_body {
            return Ok(Type::Named(self.name("a type")?));
        }
        if self.depth == DEPTH_MAX {
            return self.fail("types within types end here: a type with a name");
        }
        self.depth += 1;
        let kind = match word {
            "enum" => self.enumerators().map(Type::Enum),
            "struct" => self.members().map(Type::Struct),
            _ => self.union_body().map(|body| Type::Union(Box::new(body))),
        };
        self.depth -= 1;
        kind
    }
}

/// The types that are one word. Those behind `bool` are rpcgen's and of the headers of C.
fn of_one_word(word: &str) -> Option<Type> {
    Some(match word {
        "void" => Type::Void,
        "int" => Type::Int(Width::ThirtyTwo),
        "hyper" => Type::Hyper,
        "float" => Type::Float,
        "double" => Type::Double,
        "quadruple" => Type::Quadruple,
        "opaque" => Type::Opaque,
        "string" => Type::Text,
        "bool" | "bool_t" => Type::Bool,
        "char" | "int8_t" => Type::Int(Width::Eight),
        "u_char" | "uint8_t" | "u_int8_t" => Type::Unsigned(Width::Eight),
        "int16_t" => Type::Int(Width::Sixteen),
        "u_short" | "uint16_t" | "u_int16_t" => Type::Unsigned(Width::Sixteen),
        "int32_t" => Type::Int(Width::ThirtyTwo),
        "u_int" | "u_long" | "uint32_t" | "u_int32_t" => Type::Unsigned(Width::ThirtyTwo),
        "int64_t" | "longlong_t" | "quad_t" => Type::Hyper,
        "uint64_t" | "u_int64_t" | "u_longlong_t" | "u_quad_t" => Type::UnsignedHyper,
        _ => return None,
    })
}

/// Types within types that are read: each takes a part of the stack.
const DEPTH_MAX: u32 = 32;
