//! `docs/configuration.md` describes exactly the existing keys, and its examples are valid.

use rpcrdma_config::{Config, keys};

const PAGE: &str = include_str!("../../../docs/configuration.md");

/// The keys that the tables of the page describe: the first cell of a row, in backticks.
fn described() -> Vec<&'static str> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split_once('`').map(|(key, _)| key));
    cells.filter(|key| key.split('.').count() > 1 && !key.contains(' ')).collect()
}

#[test]
fn every_key_has_a_row() {
    let described = described();
    for key in keys() {
        assert!(described.contains(&key.as_str()), "docs/configuration.md lacks {key}");
    }
}

#[test]
fn every_row_names_a_key() {
    let keys = keys();
    for key in described() {
        assert!(keys.iter().any(|known| known == key), "docs/configuration.md invents {key}");
    }
}

#[test]
fn every_default_is_the_real_one() {
    let template = toml::Table::try_from(Config::default().raw()).expect("Raw is TOML");
    for key in keys() {
        let mut value = None;
        for part in key.split('.') {
            let table = value.map_or(Some(&template), toml::Value::as_table);
            value = table.and_then(|table| table.get(part));
        }
        let default = match value.expect("a key is in the template") {
            // A switch that knows a word, too.
            toml::Value::String(text) if text == "true" || text == "false" => text.clone(),
            toml::Value::String(text) => format!("`\"{text}\"`"),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(on) => on.to_string(),
            toml::Value::Array(list) => format!("`{list:?}`"),
            other => panic!("{key} is {other:?}"),
        };
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{key}`")));
        let cell = row.and_then(|row| row.split('|').nth(3)).map(str::trim);
        assert_eq!(cell, Some(default.as_str()), "default of {key}");
    }
}

#[test]
fn the_first_example_of_an_error_is_the_printed_text() {
    let error = Config::parse("[receive]\n\n\ninlin = \"8KiB\"").expect_err("a misspelt key");
    assert!(PAGE.contains(&format!("server.toml: {error}\n")), "{error}");
    let error = Config::parse("[receive]\ninline = \"8KB\"").expect_err("a foreign unit");
    assert!(PAGE.contains(&format!("\n{error}\n")), "{error}");
}

#[test]
fn the_example_of_a_file_is_a_configuration() {
    let (_, rest) = PAGE.split_once("```toml\n").expect("an example");
    let (file, _) = rest.split_once("```").expect("its end");
    let config = Config::parse(file).expect("it adds up");
    assert_eq!(config.engine().shards.as_usize(), 2);
}
