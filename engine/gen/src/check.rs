//! What a description means: every name is defined once, every value is known and allowed.

use std::collections::{HashMap, HashSet};

use crate::ast::{
    Arm, Count, Declaration, Definition, Description, Enumerator, Name, Program, Type, Union, Value,
};
use crate::problem::Problem;
use crate::span::Span;

/// Finds what is wrong in a description that could be read.
/// `numbers_of_c` are constants of the header of C.
pub(crate) fn check(
    description: &Description,
    numbers_of_c: &HashMap<String, i128>,
    problems: &mut Vec<Problem>,
) {
    let mut check = Check {
        types: HashMap::new(),
        constants: HashMap::new(),
        values: HashMap::new(),
        numbers_of_c,
        problems,
    };
    for definition in &description.definitions {
        check.collect(definition);
    }
    for definition in &description.definitions {
        check.definition(definition);
    }
    check.endless(description);
}

struct Check<'a> {
    types: HashMap<&'a str, &'a Definition>,
    constants: HashMap<&'a str, Constant<'a>>,
    /// The values of constants, as far as they were asked for.
    values: HashMap<&'a str, Known>,
    numbers_of_c: &'a HashMap<String, i128>,
    problems: &'a mut Vec<Problem>,
}

/// What a name of a value stands for.
#[derive(Clone, Copy)]
struct Constant<'a> {
    name: &'a Name,
    /// The value; that of the last enumerator in front which states one. None is 0.
    base: Option<&'a Value>,
    /// Enumerators behind that one.
    offset: i128,
}

/// What is known of a constant.
#[derive(Clone, Copy)]
enum Known {
    /// Its value is being found.
    UnderWay,
    /// Its value; none if it has none, which was reported.
    Value(Option<i128>),
}

impl<'a> Check<'a> {
    fn problem(&mut self, span: Span, message: impl Into<String>) {
        self.problems.push(Problem::new(span, message));
    }

    fn is_type(&self, name: &str) -> bool {
        self.types.contains_key(name) || name == NETOBJ
    }

    fn twice(&mut self, name: &Name, before: Span, what: &str) {
        let message = format!("{what} `{}` is defined twice", name.value);
        self.problems
            .push(Problem::new(name.span, message).with_note(before, "here for the first time"));
    }

    /// Collects the names that a definition defines.
    fn collect(&mut self, definition: &'a Definition) {
        match definition {
            Definition::Const(name, value) => {
                self.constant(Constant { name, base: Some(value), offset: 0 });
            }
            Definition::Typedef(declaration) => self.enumerators_in(&declaration.kind),
            Definition::Enum(_, enumerators) => self.enumerators(enumerators),
            Definition::Struct(_, members) => {
                members.iter().for_each(|member| self.enumerators_in(&member.kind));
            }
            Definition::Union(_, body) => self.enumerators_of_union(body),
            Definition::Program(_) => return,
        }
        let is_type = !matches!(definition, Definition::Const(..)) && !is_of_itself(definition);
        let Some(name) = definition.name().filter(|_| is_type) else { return };
        if let Some(before) = self.types.insert(&name.value, definition)
            && let Some(before) = before.name()
        {
            self.twice(name, before.span, "the type");
        }
    }

    fn constant(&mut self, constant: Constant<'a>) {
        if let Some(before) = self.constants.insert(&constant.name.value, constant) {
            self.twice(constant.name, before.name.span, "the constant");
        }
    }

    fn enumerators(&mut self, enumerators: &'a [Enumerator]) {
        constants_of(enumerators).for_each(|constant| self.constant(constant));
    }

    fn enumerators_in(&mut self, kind: &'a Type) {
        match kind {
            Type::Enum(enumerators) => self.enumerators(enumerators),
            Type::Struct(members) => {
                members.iter().for_each(|member| self.enumerators_in(&member.kind));
            }
            Type::Union(body) => self.enumerators_of_union(body),
            _ => {}
        }
    }

    fn enumerators_of_union(&mut self, body: &'a Union) {
        self.enumerators_in(&body.discriminant.kind);
        let arms = body.arms.iter().map(|arm| &arm.declaration);
        arms.chain(&body.default).for_each(|arm| self.enumerators_in(&arm.kind));
    }

    fn definition(&mut self, definition: &'a Definition) {
        match definition {
            Definition::Const(_, Value::Text(_)) => {}
            Definition::Const(_, value) => drop(self.number(value)),
            Definition::Typedef(declaration) => {
                if declaration.kind == Type::Void {
                    self.problem(declaration.span, "`void` cannot have a name");
                }
                self.declaration(declaration);
            }
            Definition::Enum(_, enumerators) => self.enumeration(enumerators),
            Definition::Struct(_, members) => self.members(members),
            Definition::Union(_, body) => self.union_body(body),
            Definition::Program(program) => self.program(program),
        }
    }

    fn members(&mut self, members: &'a [Declaration]) {
        let mut names: HashMap<&str, Span> = HashMap::new();
        for member in members {
            if member.kind == Type::Void {
                self.problem(member.span, "a member cannot be `void`");
            }
            self.declaration(member);
            self.member_name(member, &mut names);
        }
    }

    fn member_name(&mut self, member: &'a Declaration, names: &mut HashMap<&'a str, Span>) {
        let Some(name) = &member.name else { return };
        if let Some(before) = names.insert(&name.value, name.span) {
            self.twice(name, before, "the member");
        }
    }

    fn declaration(&mut self, declaration: &'a Declaration) {
        let Declaration { kind, span, name, count, ddp } = declaration;
        match kind {
            Type::Named(name) if !self.is_type(&name.value) => {
                self.problem(name.span, format!("the type `{}` is not defined", name.value));
            }
            Type::Enum(enumerators) => self.enumeration(enumerators),
            Type::Struct(members) => self.members(members),
            Type::Union(body) => self.union_body(body),
            _ => {}
        }
        let place = name.as_ref().map_or(*span, |name| name.span);
        match (kind, count) {
            (Type::Opaque, Count::One) => {
                self.problem(
                    place,
                    "opaque data have a length: `[LENGTH]`, `<LONGEST>` or `<>` expected",
                );
            }
            (Type::Text, Count::One | Count::Fixed(_)) => {
                self.problem(place, "a string has a longest length: `<LONGEST>` or `<>` expected");
            }
            (Type::Opaque | Type::Text, Count::Optional) => {
                self.problem(place, "opaque data and strings have no `*`: `<LONGEST>` expected");
            }
            _ => {}
        }
        if let Count::Fixed(value) | Count::Variable(Some(value)) = count {
            self.number_of_elements(value);
        }
        let is_bytes = matches!(kind, Type::Opaque | Type::Text | Type::Named(_));
        if let Some(ddp) = ddp
            && !is_bytes
        {
            self.problem(*ddp, "only opaque data and strings are placed (RFC 8166 section 6)");
        }
    }

    fn number_of_elements(&mut self, value: &'a Value) {
        match self.number(value) {
            Some(number) if !(0..=i128::from(u32::MAX)).contains(&number) => {
                let message = format!("{number} elements; 0 to {} are allowed", u32::MAX);
                self.problem(value.span(), message);
            }
            _ => {}
        }
    }

    fn enumeration(&mut self, enumerators: &'a [Enumerator]) {
        for constant in constants_of(enumerators) {
            let Some(value) = self.value_of(constant) else { continue };
            if i32::try_from(value).is_err() {
                let message = format!("the value is {value}; an enum has 32 bits");
                self.problem(constant.name.span, message);
            }
        }
    }

    /// The values of an enum.
    fn values_of(&mut self, enumerators: &'a [Enumerator]) -> HashSet<i128> {
        constants_of(enumerators).filter_map(|constant| self.value_of(constant)).collect()
    }

    fn union_body(&mut self, body: &'a Union) {
        let Union { discriminant, arms, default } = body;
        self.declaration(discriminant);
        let allowed = self.discriminant(discriminant);
        let mut names = HashMap::new();
        let mut cases: HashMap<i128, Span> = HashMap::new();
        for Arm { cases: values, declaration } in arms {
            for value in values {
                self.case(value, allowed.as_ref(), &mut cases);
            }
            self.declaration(declaration);
            self.member_name(declaration, &mut names);
        }
        if let Some(default) = default {
            self.declaration(default);
            self.member_name(default, &mut names);
        }
    }

    fn case(
        &mut self,
        value: &'a Value,
        allowed: Option<&Discriminant>,
        cases: &mut HashMap<i128, Span>,
    ) {
        let Some(number) = self.number(value) else { return };
        let is_allowed = match allowed {
            Some(Discriminant::Range(range)) => range.contains(&number),
            Some(Discriminant::Enum(values)) => values.contains(&number),
            None => true,
        };
        if !is_allowed {
            self.problem(value.span(), format!("the discriminant cannot be {number}"));
        }
        if let Some(before) = cases.insert(number, value.span()) {
            let message = format!("the case {number} is there twice");
            let problem = Problem::new(value.span(), message);
            self.problems.push(problem.with_note(before, "here for the first time"));
        }
    }

    /// The values that a discriminant may have; none if it is no discriminant.
    fn discriminant(&mut self, declaration: &'a Declaration) -> Option<Discriminant> {
        let (mut kind, mut count, mut seen) = (&declaration.kind, &declaration.count, 0);
        while let Type::Named(name) = kind
            && *count == Count::One
        {
            match self.types.get(name.value.as_str())? {
                Definition::Typedef(of) if seen < TYPEDEFS_MAX => {
                    (kind, count, seen) = (&of.kind, &of.count, seen + 1);
                }
                Definition::Enum(_, enumerators) => {
                    return Some(Discriminant::Enum(self.values_of(enumerators)));
                }
                _ => break,
            }
        }
        let allowed = match kind {
            Type::Int(_) => Some(Discriminant::Range(i32::MIN.into()..=i32::MAX.into())),
            Type::Unsigned(_) => Some(Discriminant::Range(0..=u32::MAX.into())),
            Type::Bool => Some(Discriminant::Range(0..=1)),
            Type::Enum(enumerators) => Some(Discriminant::Enum(self.values_of(enumerators))),
            _ => None,
        };
        let allowed = allowed.filter(|_| *count == Count::One);
        if allowed.is_none() {
            let message = "a discriminant is an int, an unsigned int, an enum or a bool";
            self.problem(declaration.span, message);
        }
        allowed
    }

    fn program(&mut self, program: &'a Program) {
        self.number_within_32_bits(&program.number);
        let mut versions = HashMap::new();
        for version in &program.versions {
            self.unique(&version.number, &mut versions, "the version");
            let mut procedures = HashMap::new();
            for procedure in &version.procedures {
                self.unique(&procedure.number, &mut procedures, "the procedure");
                self.declaration(&procedure.result);
                let has_several = procedure.arguments.len() > 1;
                for argument in &procedure.arguments {
                    if has_several && argument.kind == Type::Void {
                        self.problem(argument.span, "`void` is no argument among others");
                    }
                    self.declaration(argument);
                }
            }
        }
    }

    fn unique(&mut self, number: &'a Value, known: &mut HashMap<i128, Span>, what: &str) {
        let Some(value) = self.number_within_32_bits(number) else { return };
        if let Some(before) = known.insert(value, number.span()) {
            let problem = Problem::new(number.span(), format!("{what} {value} is there twice"));
            self.problems.push(problem.with_note(before, "here for the first time"));
        }
    }

    fn number_within_32_bits(&mut self, value: &'a Value) -> Option<i128> {
        let number = self.number(value)?;
        if u32::try_from(number).is_err() {
            let message = format!("the number is {number}; 0 to {} are allowed", u32::MAX);
            self.problem(value.span(), message);
            return None;
        }
        Some(number)
    }

    /// The number that a value stands for. If there is none, that is a problem, which is reported
    /// once for each constant.
    fn number(&mut self, mut value: &'a Value) -> Option<i128> {
        let mut chain = Vec::new();
        let mut number = loop {
            let name = match value {
                Value::Number(number) => break Some(number.value),
                Value::Text(text) => {
                    self.problem(text.span, "a text is no number");
                    break None;
                }
                Value::Named(name) if name.value == "TRUE" => break Some(1),
                Value::Named(name) if name.value == "FALSE" => break Some(0),
                Value::Named(name) => name,
            };
            let known = self.values.insert(&name.value, Known::UnderWay);
            let constant = self.constants.get(name.value.as_str()).filter(|_| known.is_none());
            chain.push((name.value.as_str(), constant.map_or(0, |constant| constant.offset)));
            match (known, constant) {
                (Some(Known::Value(number)), _) => break number,
                (Some(Known::UnderWay), _) => {
                    self.problem(name.span, format!("`{}` is defined by itself", name.value));
                    break None;
                }
                (None, Some(Constant { base: Some(base), .. })) => value = base,
                (None, Some(Constant { base: None, .. })) => break Some(0),
                (None, None) => {
                    let number = self.numbers_of_c.get(&name.value).copied();
                    if number.is_none() {
                        let message = format!("the constant `{}` is not defined", name.value);
                        self.problem(name.span, message);
                    }
                    break number;
                }
            }
        };
        for (name, offset) in chain.into_iter().rev() {
            number = number.map(|number| number.saturating_add(offset));
            self.values.insert(name, Known::Value(number));
        }
        number
    }

    fn value_of(&mut self, Constant { base, offset, .. }: Constant<'a>) -> Option<i128> {
        let base = base.map_or(Some(0), |base| self.number(base));
        base.map(|base| base.saturating_add(offset))
    }

    /// Types that contain themselves without end.
    fn endless(&mut self, description: &'a Description) {
        // Whether the walk through a type has ended.
        let mut state: HashMap<&str, bool> = HashMap::new();
        for name in description.definitions.iter().filter_map(Definition::name) {
            if !state.contains_key(name.value.as_str()) {
                self.walk(&name.value, &mut state);
            }
        }
    }

    /// Walks through a type and all that it contains, without recursion: descriptions may be deep.
    fn walk(&mut self, name: &'a str, state: &mut HashMap<&'a str, bool>) {
        let mut open = vec![(name, self.contained(name), 0)];
        state.insert(name, false);
        while let Some((at, inner, next)) = open.last_mut() {
            let Some((inside, span)) = inner.get(*next).copied() else {
                state.insert(*at, true);
                open.pop();
                continue;
            };
            *next += 1;
            match state.get(inside) {
                Some(true) => {}
                Some(false) => {
                    let message = format!(
                        "`{inside}` contains itself without end: `*`, `<>` or a union between expected"
                    );
                    self.problem(span, message);
                }
                None => {
                    state.insert(inside, false);
                    let contained = self.contained(inside);
                    open.push((inside, contained, 0));
                }
            }
        }
    }

    /// The types that every value of a type contains.
    fn contained(&self, name: &str) -> Vec<(&'a str, Span)> {
        let mut found = Vec::new();
        match self.types.get(name) {
            Some(Definition::Typedef(declaration)) => contained_in(declaration, &mut found),
            Some(Definition::Struct(_, members)) => {
                members.iter().for_each(|member| contained_in(member, &mut found));
            }
            _ => {}
        }
        found
    }
}

/// The values of a discriminant.
enum Discriminant {
    Range(std::ops::RangeInclusive<i128>),
    Enum(HashSet<i128>),
}

fn constants_of(enumerators: &[Enumerator]) -> impl Iterator<Item = Constant<'_>> {
    let (mut base, mut offset) = (None, -1);
    enumerators.iter().map(move |Enumerator { name, value }| {
        (base, offset) = match value {
            Some(value) => (Some(value), 0),
            None => (base, offset + 1),
        };
        Constant { name, base, offset }
    })
}

fn contained_in<'a>(declaration: &'a Declaration, found: &mut Vec<(&'a str, Span)>) {
    if !matches!(declaration.count, Count::One | Count::Fixed(_)) {
        return;
    }
    match &declaration.kind {
        Type::Named(name) => found.push((&name.value, name.span)),
        Type::Struct(members) => members.iter().for_each(|member| contained_in(member, found)),
        _ => {}
    }
}

/// `typedef struct NAME NAME;`, which is for C.
pub(crate) fn is_of_itself(definition: &Definition) -> bool {
    let Definition::Typedef(Declaration { kind: Type::Named(of), name: Some(name), count, .. }) =
        definition
    else {
        return false;
    };
    of.value == name.value && *count == Count::One
}

/// The type that the headers of C have beside those of the language: `opaque netobj<1024>`.
pub(crate) const NETOBJ: &str = "netobj";
/// Typedefs of typedefs that are followed.
const TYPEDEFS_MAX: u32 = 1000;
