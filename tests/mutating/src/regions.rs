//! The regions of a file that can be switched: expressions, statements and blocks that are run.
//!
//! Constants, patterns, types and attributes are none. Nor is a place
//! expression, such as `self.count`: switched, it would be a copy of what it names.

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Pat, Stmt, UnOp};

/// How a switch is written around a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// In parentheses.
    Expression,
    /// As a statement, or an arm.
    Statement,
    /// Within its braces.
    Block,
}

/// A place where code can be switched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The bytes of the file.
    pub range: Range<usize>,
    /// How a switch is written around it.
    pub shape: Shape,
    /// The function that may not be one of the compiler then.
    pub constant: Option<Constant>,
}

/// A `const fn`. With a switch it is an ordinary one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// The word `const`.
    pub word: Range<usize>,
}

/// All regions of a file.
///
/// # Errors
/// If it is no Rust.
pub fn of(source: &str) -> Result<Vec<Region>, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut finder = Finder::default();
    finder.visit_file(&file);
    Ok(finder.found)
}

/// Those that contain a part of the file, the smallest first.
#[must_use]
pub fn around(regions: &[Region], part: &Range<usize>) -> Vec<Region> {
    let contains =
        |region: &&Region| region.range.start <= part.start && part.end <= region.range.end;
    let mut found: Vec<Region> = regions.iter().filter(contains).cloned().collect();
    found.sort_by_key(|region| region.range.len());
    found
}

#[derive(Default)]
struct Finder {
    found: Vec<Region>,
    constant: Option<Constant>,
}

impl Finder {
    fn add(&mut self, range: Range<usize>, shape: Shape) {
        if !range.is_empty() {
            self.found.push(Region { range, shape, constant: self.constant.clone() });
        }
    }

    fn visit_function(&mut self, head: &syn::Signature, body: &Block) {
        let word = head.constness.map(|word| word.span.byte_range());
        let constant = word.map(|word| Constant { name: head.ident.to_string(), word });
        let outer = std::mem::replace(&mut self.constant, constant);
        self.visit_block(body);
        self.constant = outer;
    }

    /// A place: only what it is computed of can be switched.
    fn visit_place(&mut self, place: &Expr) {
        match place {
            Expr::Paren(inner) => self.visit_place(&inner.expr),
            Expr::Tuple(tuple) => tuple.elems.iter().for_each(|place| self.visit_place(place)),
            _ if is_place(place) => visit::visit_expr(self, place),
            _ => {}
        }
    }

    /// The parts of an expression, which is none itself.
    fn visit_parts(&mut self, expr: &Expr) {
        match expr {
            Expr::Assign(assign) => {
                self.visit_place(&assign.left);
                self.visit_expr(&assign.right);
            }
            Expr::Binary(binary) if is_assignment(&binary.op) => {
                self.visit_place(&binary.left);
                self.visit_expr(&binary.right);
            }
            Expr::If(branch) => {
                self.visit_expr(&branch.cond);
                self.visit_block(&branch.then_branch);
                if let Some((_, other)) = &branch.else_branch {
                    self.visit_parts(other);
                }
            }
            Expr::Closure(closure) => match (&closure.output, closure.body.as_ref()) {
                // A type needs a block behind it.
                (syn::ReturnType::Type(..), Expr::Block(body)) => self.visit_block(&body.block),
                (_, body) => self.visit_expr(body),
            },
            Expr::Repeat(repeat) => self.visit_expr(&repeat.expr),
            Expr::Const(_) => {}
            _ => visit::visit_expr(self, expr),
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        let is_none = is_place(expr)
            || has_let(expr)
            || matches!(expr, Expr::Paren(_) | Expr::Infer(_) | Expr::Verbatim(_) | Expr::Const(_));
        if !is_none {
            self.add(expr.span().byte_range(), Shape::Expression);
        }
        self.visit_parts(expr);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        match statement {
            Stmt::Expr(expr, _) => {
                self.add(statement.span().byte_range(), Shape::Statement);
                self.visit_parts(expr);
            }
            Stmt::Macro(_) => self.add(statement.span().byte_range(), Shape::Statement),
            Stmt::Local(local) => {
                let Some(init) = &local.init else { return };
                self.visit_expr(&init.expr);
                if let Some((_, other)) = &init.diverge {
                    self.visit_parts(other);
                }
            }
            Stmt::Item(_) => visit::visit_stmt(self, statement),
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Pat::Guard(pattern) = &arm.pat {
            self.visit_expr(&pattern.guard);
        }
        self.add(arm.body.span().byte_range(), Shape::Statement);
        self.visit_parts(&arm.body);
    }

    fn visit_block(&mut self, block: &'ast Block) {
        let braces = block.brace_token.span;
        self.add(braces.open().byte_range().end..braces.close().byte_range().start, Shape::Block);
        visit::visit_block(self, block);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.visit_function(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.visit_function(&item.sig, &item.block);
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}

    fn visit_generics(&mut self, _: &'ast syn::Generics) {}

    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        _: &'ast syn::AngleBracketedGenericArguments,
    ) {
    }

    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_pat(&mut self, _: &'ast Pat) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Field(_) | Expr::Index(_) => true,
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)),
        _ => false,
    }
}

/// A condition that binds names.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(both) if matches!(both.op, BinOp::And(_)) => {
            has_let(&both.left) || has_let(&both.right)
        }
        _ => false,
    }
}

fn is_assignment(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The regions around the one `@` of a source, the smallest first.
    fn around_mark(source: &str) -> Vec<String> {
        let at = source.find('@').expect("a mark");
        let source = source.replacen('@', "", 1);
        let regions = around(&of(&source).expect("Rust"), &(at..at + 1));
        regions.into_iter().map(|region| source[region.range].trim().to_owned()).collect()
    }

    #[test]
    fn an_expression_its_statement_and_its_blocks_can_be_switched() {
        let found = around_mark("fn f() { if a { g(@1 + 2); h() } }");
        let all = "if a { g(1 + 2); h() }";
        assert_eq!(found, ["1", "1 + 2", "g(1 + 2);", "g(1 + 2); h()", all, all]);
        assert_eq!(around_mark("fn f() { a = |b| -> u8 { @b.c() } }").first().unwrap(), "b.c()");
        assert_eq!(around_mark("fn f() { if let @a = b() {} }").len(), 2);
    }

    #[test]
    fn a_function_of_the_compiler_becomes_an_ordinary_one() {
        let source = "pub const fn f() -> u8 { fn g() -> u8 { 2 } 1 }";
        let regions = of(source).expect("Rust");
        let at = |text| source.find(text).expect("the text");
        let constant = Some(Constant { name: "f".into(), word: 4..9 });
        assert_eq!(around(&regions, &(at("1")..at("1") + 1))[0].constant, constant);
        assert_eq!(around(&regions, &(at("2")..at("2") + 1))[0].constant, None);
    }

    #[test]
    fn a_place_and_a_constant_cannot() {
        assert_eq!(around_mark("fn f() { self.@count += 1; }"), ["self.count += 1;"; 2]);
        assert!(around_mark("const A: u8 = @1;").is_empty());
        assert!(around_mark("enum A { B = @1 }").is_empty());
        assert_eq!(around_mark("fn f() { let a = [0; @1]; }"), ["[0; 1]", "let a = [0; 1];"]);
        assert_eq!(around_mark("fn f() { match a { @1 => b, _ => c } }").len(), 2);
    }
}
