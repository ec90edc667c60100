//! Compares the structure of a file with [`Raw`]: finds unknown keys and values of the wrong type
//! while the line and the key path are known.

use std::borrow::Cow;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::error::ConfigError;
use crate::raw::Raw;

/// Reads a text into a [`Raw`].
pub(crate) fn read(text: &str) -> Result<Raw, ConfigError> {
    let document = DeTable::parse(text).map_err(|error| syntax(text, &error))?;
    let template = Table::try_from(Raw::default()).expect("every field of Raw is a TOML value");
    check_table(text, "", document.get_ref(), &template)?;
    toml::from_str(text).map_err(|error| syntax(text, &error))
}

/// Reads a text whose missing keys have the values of `base`. The table `own` is the program's:
/// returns its keys, with their values as text.
pub(crate) fn read_over(
    text: &str,
    base: &Raw,
    own: &str,
) -> Result<(Raw, Vec<(String, String)>), ConfigError> {
    let mut document = DeTable::parse(text).map_err(|error| syntax(text, &error))?;
    let mut all = Table::try_from(base).expect("every field of Raw is a TOML value");
    let keys = match document.get_mut().remove(own) {
        Some(table) => texts(text, own, &table)?,
        None => Vec::new(),
    };
    check_table(text, "", document.get_ref(), &all)?;
    let mut given: Table = toml::from_str(text).map_err(|error| syntax(text, &error))?;
    given.remove(own);
    overlay(&mut all, given);
    let raw = all.try_into().map_err(|error| syntax(text, &error))?;
    Ok((raw, keys))
}

/// The keys of a table of the program, with their values as text.
fn texts(
    text: &str,
    name: &str,
    table: &Spanned<DeValue<'_>>,
) -> Result<Vec<(String, String)>, ConfigError> {
    let DeValue::Table(keys) = table.get_ref() else {
        return Err(wrong_kind(text, name.to_owned(), table, "a table"));
    };
    let pair = |(key, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
        let key = key.get_ref().to_string();
        let value = match value.get_ref() {
            DeValue::String(value) => value.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Boolean(is_on) => is_on.to_string(),
            _ => return Err(wrong_kind(text, join(name, &key), value, PLAIN)),
        };
        Ok((key, value))
    };
    keys.iter().map(pair).collect()
}

/// All keys, as dotted paths, without tables that only contain other keys.
pub fn keys() -> Vec<String> {
    let template = Table::try_from(Raw::default()).expect("every field of Raw is a TOML value");
    let mut paths = Vec::new();
    collect("", &template, &mut paths);
    paths
}

/// The value of a key in the notation of a file; `None` if the key does not exist.
pub(crate) fn value_of(raw: &Raw, key: &str) -> Option<String> {
    let table = Table::try_from(raw).expect("every field of Raw is a TOML value");
    let (sections, name) = key.rsplit_once('.')?;
    let mut parts = sections.split('.');
    let section = parts.try_fold(&table, |table, part| table.get(part)?.as_table())?;
    match section.get(name)? {
        Value::String(text) if text == "true" || text == "false" => Some(text.clone()),
        Value::String(text) => Some(format!("{text:?}")),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(is_on) => Some(is_on.to_string()),
        Value::Array(list) => {
            let texts: Vec<_> = list.iter().filter_map(Value::as_str).collect();
            Some(format!("{texts:?}"))
        }
        _ => None,
    }
}

// The recursions have the depth of `Raw`, which is three; a deeper file has an unknown key above.
fn collect(prefix: &str, template: &Table, paths: &mut Vec<String>) {
    for (name, value) in template {
        match value {
            Value::Table(inner) => collect(&join(prefix, name), inner, paths),
            _ => paths.push(join(prefix, name)),
        }
    }
}

/// Puts what is given over what is there: both have the structure of `Raw`.
fn overlay(all: &mut Table, given: Table) {
    for (name, value) in given {
        match (all.get_mut(&name), value) {
            (Some(Value::Table(inner)), Value::Table(given)) => overlay(inner, given),
            (_, value) => {
                all.insert(name, value);
            }
        }
    }
}

fn check_table(
    text: &str,
    prefix: &str,
    given: &DeTable<'_>,
    template: &Table,
) -> Result<(), ConfigError> {
    for (name, value) in given {
        let key = join(prefix, name.get_ref());
        let Some(expected) = template.get(name.get_ref().as_ref()) else {
            return Err(ConfigError::UnknownKey {
                line: line_at(text, name.span().start),
                key,
                given: render(value.get_ref()),
                allowed: template.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
            });
        };
        match (value.get_ref(), expected) {
            (DeValue::Table(inner), Value::Table(template)) => {
                check_table(text, &key, inner, template)?;
            }
            (_, expected) => check_value(text, key, value, expected)?,
        }
    }
    Ok(())
}

fn check_value(
    text: &str,
    key: String,
    value: &Spanned<DeValue<'_>>,
    expected: &Value,
) -> Result<(), ConfigError> {
    let allowed = match (value.get_ref(), expected) {
        (DeValue::Integer(number), Value::Integer(_)) => {
            if i64::from_str_radix(number.as_str(), number.radix()).is_ok() {
                return Ok(());
            }
            "a whole number of at most 63 bits"
        }
        (DeValue::Boolean(_), Value::Boolean(_)) => return Ok(()),
        (
            DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_),
            Value::String(_),
        ) => return Ok(()),
        (DeValue::Array(list), Value::Array(_)) => {
            let is_text = |it: &Spanned<DeValue<'_>>| matches!(it.get_ref(), DeValue::String(_));
            match list.iter().find(|it| !is_text(it)) {
                Some(other) => return Err(wrong_kind(text, key, other, LIST)),
                None => return Ok(()),
            }
        }
        (_, Value::Integer(_)) => "a whole number",
        (_, Value::Boolean(_)) => "true or false",
        (_, Value::Table(_)) => "a table",
        (_, Value::Array(_)) => LIST,
        (_, _) => "text in quotes",
    };
    Err(wrong_kind(text, key, value, allowed))
}

fn wrong_kind(text: &str, key: String, value: &Spanned<DeValue<'_>>, allowed: &str) -> ConfigError {
    let (line, given) = (line_at(text, value.span().start), render(value.get_ref()));
    ConfigError::Kind { line, key, given, allowed: allowed.to_owned() }
}

/// The value of a key that is a list.
const LIST: &str = "a list of texts in quotes";
/// A value in a table of the program.
const PLAIN: &str = "text in quotes, a whole number, true or false";

fn render(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

fn syntax(text: &str, error: &toml::de::Error) -> ConfigError {
    let at = error.span().map_or(0, |span| span.start);
    ConfigError::Syntax { line: line_at(text, at), message: error.message().to_owned() }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}
