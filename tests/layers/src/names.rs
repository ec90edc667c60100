//! The names that an item mentions: what its `use` brings in, and every path in its code.

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Meta, Token, UseTree};

/// What was read so far, without what is compiled for tests or the documentation only.
#[derive(Debug, Default)]
pub struct Names {
    pub bindings: Vec<Binding>,
    pub paths: Vec<Name>,
}

/// A path of names, and where it stands.
#[derive(Debug)]
pub struct Name {
    pub segments: Vec<String>,
    pub line: usize,
}

/// What a `use` binds.
#[derive(Debug)]
pub struct Binding {
    /// Nothing for `*`.
    pub local: Option<String>,
    pub name: Name,
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, value: &'ast syn::FieldValue) {
        if !is_for_tests(&value.attrs) {
            visit::visit_field_value(self, value);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.bind(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments: Vec<String> =
                path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let line = path.segments.first().map_or(0, |first| first.ident.span().start().line);
            self.paths.push(Name { segments, line });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.scan(call.tokens.clone(), false);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.scan(list.tokens.clone(), true);
        }
    }

    /// A restriction of visibility names a module and imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

impl Names {
    /// The `use` that binds this name.
    pub fn binding(&self, local: &str) -> Option<&Binding> {
        self.bindings.iter().find(|binding| binding.local.as_deref() == Some(local))
    }

    /// Flattens a tree of `use`.
    fn bind(&mut self, before: &mut Vec<String>, tree: &UseTree) {
        let (local, last) = match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.bind(before, &path.tree);
                before.pop();
                return;
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.bind(before, tree));
                return;
            }
            UseTree::Name(name) => (Some(&name.ident), Some(&name.ident)),
            UseTree::Rename(rename) => (Some(&rename.rename), Some(&rename.ident)),
            UseTree::Glob(_) => (None, None),
        };
        let line = syn::spanned::Spanned::span(tree).start().line;
        let mut segments = before.clone();
        segments.extend(last.map(ToString::to_string).filter(|last| last != "self"));
        let is_self = |local: &&syn::Ident| *local == "self";
        let local = match local.filter(|local| !is_self(local)) {
            Some(local) => Some(local.to_string()),
            None => local.and_then(|_| segments.last().cloned()),
        };
        self.bindings.push(Binding { local, name: Name { segments, line } });
    }

    /// Paths of two names or more in what only a macro understands; in attributes also those that
    /// are written as strings.
    fn scan(&mut self, tokens: TokenStream, has_strings: bool) {
        let mut path = Name { segments: Vec::new(), line: 0 };
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.keep(&mut path);
                        path.line = ident.span().start().line;
                    }
                    path.segments.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Group(group) => {
                    self.keep(&mut path);
                    self.scan(group.stream(), has_strings);
                    colons = 0;
                }
                TokenTree::Literal(literal) if has_strings => {
                    let text = literal.to_string();
                    if let Ok(inner) = text.trim_matches('"').parse::<TokenStream>() {
                        self.scan(inner, false);
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.keep(&mut path);
                    colons = 0;
                }
            }
        }
        self.keep(&mut path);
    }

    fn keep(&mut self, path: &mut Name) {
        let segments = std::mem::take(&mut path.segments);
        if segments.len() > 1 {
            self.paths.push(Name { segments, line: path.line });
        }
    }
}

/// The attributes of an item, whatever its kind.
pub fn attributes(item: &syn::Item) -> &[Attribute] {
    use syn::Item;
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether one of the attributes holds in tests or for the documentation only.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<Meta>().is_ok_and(|condition| !may_hold(&condition).0)
    })
}

/// Whether a condition may hold without `test` and `doc`, and whether it may not.
fn may_hold(condition: &Meta) -> (bool, bool) {
    let parts = || match condition {
        Meta::List(list) => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .map(|parts| parts.iter().map(may_hold).collect())
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    let path = condition.path();
    if path.is_ident("test") || path.is_ident("doc") {
        (false, true)
    } else if path.is_ident("not") {
        parts().first().map_or((true, true), |(may, may_not)| (*may_not, *may))
    } else if path.is_ident("all") {
        let parts: Vec<(bool, bool)> = parts();
        (parts.iter().all(|part| part.0), parts.iter().any(|part| part.1))
    } else if path.is_ident("any") {
        let parts: Vec<(bool, bool)> = parts();
        (parts.iter().any(|part| part.0), parts.iter().all(|part| part.1))
    } else {
        (true, true)
    }
}
