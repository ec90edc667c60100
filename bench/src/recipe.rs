//! Recipes: option values from a file.
//!
//! ```text
//!   rounds = 20            for every mode that has the option
//!   [lat]                  for one mode
//!   size = "4KiB"
//! ```
//! Keys are long options. A recipe becomes arguments before the typed ones, without options that
//! were typed or that conflict with them; clap treats both alike.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::BenchError;

/// The arguments of the program, with those of the recipe that they name, if they name one.
pub fn applied(command: &Command, arguments: Vec<OsString>) -> Result<Vec<OsString>, BenchError> {
    let Ok(matches) = command.clone().try_get_matches_from(&arguments) else {
        return Ok(arguments);
    };
    let (of, typed) = match matches.subcommand() {
        None => (command, &matches),
        Some((name, typed)) => {
            let of = command.find_subcommand(name).expect("it was parsed as one");
            (of, typed)
        }
    };
    let Ok(Some(requested)) = typed.try_get_one::<String>(OPTION) else { return Ok(arguments) };
    let recipe = Recipe::find(requested)?;
    let mode = if of.get_name() == command.get_name() { DEFAULT_MODE } else { of.get_name() };
    let given = recipe.arguments(command, of, mode, typed)?;
    // Behind the name of the program and of the mode.
    let at = if std::ptr::eq(of, command) { 1 } else { 2 };
    let mut all = arguments;
    let at = at.min(all.len());
    all.splice(at..at, given.into_iter().map(OsString::from));
    Ok(all)
}

/// The names of the recipes that come with the program.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

struct Recipe {
    file: String,
    text: String,
}

struct Entry<'a> {
    key: &'a str,
    value: &'a DeValue<'a>,
    line: usize,
}

impl Recipe {
    fn find(requested: &str) -> Result<Recipe, BenchError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == requested) {
            return Ok(Recipe { file: format!("recipe {name}"), text: (*text).to_owned() });
        }
        let text = fs::read_to_string(requested).map_err(|error| {
            let known = names().collect::<Vec<_>>().join(", ");
            let reason = format!("{error}; recipes that come with the program are {known}");
            BenchError::Read { path: requested.into(), reason }
        })?;
        Ok(Recipe { file: requested.to_owned(), text })
    }

    /// What the recipe says to a mode, without what was typed.
    fn arguments(
        &self,
        command: &Command,
        of: &Command,
        mode: &str,
        typed: &ArgMatches,
    ) -> Result<Vec<String>, BenchError> {
        let document = DeTable::parse(&self.text).map_err(|error| {
            self.wrong(self.line(error.span().unwrap_or_default()), error.message())
        })?;
        let (mut common, mut own) = (Vec::new(), Vec::new());
        for (key, value) in document.get_ref() {
            let entry = self.entry(key.get_ref(), key.span(), value);
            let DeValue::Table(table) = value.get_ref() else {
                common.push(entry);
                continue;
            };
            let part = command.find_subcommand(entry.key).ok_or_else(|| {
                self.wrong(entry.line, &format!("there is no mode `{}`", entry.key))
            })?;
            for (key, value) in table {
                let entry = self.entry(key.get_ref(), key.span(), value);
                option(part, entry.key).ok_or_else(|| self.unknown(&entry, Some(part)))?;
                if [of.get_name(), mode].contains(&part.get_name()) {
                    own.push(entry);
                }
            }
        }
        let has = |part: &Command, entry: &Entry<'_>| option(part, entry.key).is_some();
        let is_unknown =
            |entry: &&Entry<'_>| !command.get_subcommands().any(|part| has(part, entry));
        if let Some(entry) = common.iter().find(is_unknown) {
            return Err(self.unknown(entry, None));
        }
        common.retain(|entry| has(of, entry) && own.iter().all(|one| one.key != entry.key));
        let all = common.iter().chain(&own).map(|entry| self.argument(of, entry, typed));
        Ok(all.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// An entry as clap takes it; nothing if something was typed that takes its place.
    fn argument(
        &self,
        of: &Command,
        entry: &Entry<'_>,
        typed: &ArgMatches,
    ) -> Result<Vec<String>, BenchError> {
        let arg = option(of, entry.key).expect("it was looked at by the caller");
        if is_typed(of, arg, typed) {
            return Ok(Vec::new());
        }
        let values = values(arg, entry).map_err(|reason| self.wrong(entry.line, &reason))?;
        let alone = [of.get_name().to_owned()].into_iter().chain(values.iter().cloned());
        match of.clone().try_get_matches_from(alone) {
            Err(error) if error.kind() != ErrorKind::MissingRequiredArgument => {
                let text = error.to_string();
                let reason = text.lines().next().unwrap_or_default();
                Err(self.wrong(entry.line, reason.trim_start_matches("error: ")))
            }
            _ => Ok(values),
        }
    }

    fn entry<'a>(
        &self,
        key: &'a str,
        span: Range<usize>,
        value: &'a Spanned<DeValue<'_>>,
    ) -> Entry<'a> {
        Entry { key, value: value.get_ref(), line: self.line(span) }
    }

    fn line(&self, span: Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        before.matches('\n').count() + 1
    }

    fn unknown(&self, entry: &Entry<'_>, part: Option<&Command>) -> BenchError {
        let whose = part.map_or("no mode".into(), |part| format!("`{}`", part.get_name()));
        let has = if part.is_some() { "has no" } else { "has an" };
        self.wrong(entry.line, &format!("{whose} {has} option --{}", entry.key))
    }

    fn wrong(&self, line: usize, reason: &str) -> BenchError {
        BenchError::Usage(format!("{}, line {line}: {reason}", self.file))
    }
}

/// An option by its long name; not the recipe itself, which names no other.
fn option<'a>(of: &'a Command, key: &str) -> Option<&'a Arg> {
    of.get_arguments().find(|arg| arg.get_long() == Some(key) && key != OPTION)
}

/// Whether an option was typed, or one that excludes it.
fn is_typed(of: &Command, arg: &Arg, typed: &ArgMatches) -> bool {
    let was =
        |arg: &Arg| typed.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let excludes = |other: &Arg, one: &Arg| {
        of.get_arg_conflicts_with(other).iter().any(|arg| arg.get_id() == one.get_id())
    };
    let others = of.get_arguments().filter(|other| was(other));
    was(arg) || others.into_iter().any(|other| excludes(other, arg) || excludes(arg, other))
}

/// `--key=value`, once for each value.
fn values(arg: &Arg, entry: &Entry<'_>) -> Result<Vec<String>, String> {
    let key = entry.key;
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return match entry.value {
            DeValue::Boolean(true) => Ok(vec![format!("--{key}")]),
            DeValue::Boolean(false) => Ok(Vec::new()),
            _ => Err(format!("{key} is true or false")),
        };
    }
    let items = match entry.value {
        DeValue::Array(items) => items.iter().map(|item| scalar(key, item.get_ref())).collect(),
        one => scalar(key, one).map(|one| vec![one]),
    };
    let items: Vec<String> = items?;
    Ok(match arg.get_value_delimiter() {
        Some(delimiter) => vec![format!("--{key}={}", items.join(&delimiter.to_string()))],
        None => items.iter().map(|item| format!("--{key}={item}")).collect(),
    })
}

fn scalar(key: &str, value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        _ => Err(format!("{key} is a text, a number, or a list of them")),
    }
}

const OPTION: &str = "recipe";
const DEFAULT_MODE: &str = "lat";
const BUILT_IN: [(&str, &str); 3] = [
    ("quick", include_str!("../recipes/quick.toml")),
    ("thorough", include_str!("../recipes/thorough.toml")),
    ("nic", include_str!("../recipes/nic.toml")),
];

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, Mode};
    use crate::modes::contest::Contest;

    /// The arguments that come of a recipe and of what is typed.
    fn with(recipe: &str, typed: &str) -> Result<Vec<String>, String> {
        let command = Cli::command();
        let words = ["rpcrdma-bench"].into_iter().chain(typed.split_whitespace());
        let matches = command.clone().try_get_matches_from(words).expect("it parses");
        let (of, mode, typed) = match matches.subcommand() {
            None => (&command, "lat", &matches),
            Some((name, typed)) => (command.find_subcommand(name).expect("a mode"), name, typed),
        };
        let recipe = Recipe { file: "my.toml".into(), text: recipe.into() };
        recipe.arguments(&command, of, mode, typed).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_at_the_top_are_for_every_mode_that_has_the_option() {
        let recipe = "rounds = 3\nsends-per-post = [1, 4]\n[bw]\nsize = \"1MiB\"\nrounds = 5\n";
        let expect = |typed: &str, expected: &[&str]| {
            assert_eq!(with(recipe, typed).expect("it fits"), expected, "{typed}");
        };
        expect("rate", &["--rounds=3", "--sends-per-post=1,4"]);
        expect("floor", &["--rounds=3"]);
        expect("bw", &["--sends-per-post=1,4", "--rounds=5", "--size=1MiB"]);
        expect("", &["--rounds=3", "--sends-per-post=1,4"]);
    }

    #[test]
    fn without_a_mode_the_recipe_is_that_of_lat() {
        assert_eq!(with("[lat]\nop = \"null\"", "").expect("it fits"), ["--op=null"]);
    }

    #[test]
    fn what_is_typed_wins_and_so_does_what_excludes_the_recipe() {
        let recipe = "rounds = 3\nseconds = 0.5\nstrict = true\nquiet = false\n";
        let all = ["--rounds=3", "--seconds=0.5", "--strict"];
        assert_eq!(with(recipe, "lat").expect("it fits"), all);
        assert_eq!(with(recipe, "lat -r 9").expect("it fits"), all[1..]);
        assert_eq!(with(recipe, "lat -n 5").expect("it fits"), ["--rounds=3", "--strict"]);
    }

    #[test]
    fn conditions_are_repeated() {
        let recipe = "[lat]\nfail-if = [\"rpc.rate<1M\", \"raw.rate<2M\"]\n";
        let expected = ["--fail-if=rpc.rate<1M", "--fail-if=raw.rate<2M"];
        assert_eq!(with(recipe, "lat").expect("it fits"), expected);
    }

    #[test]
    fn errors_name_the_file_the_line_and_the_key() {
        for (recipe, reason) in [
            ("rounds = 3\nruonds = 4\n", "my.toml, line 2: no mode has an option --ruonds"),
            ("[lat]\n\ndelay = \"5us\"\n", "my.toml, line 3: `lat` has no option --delay"),
            ("[sideways]\nrounds = 1\n", "my.toml, line 1: there is no mode `sideways`"),
            ("rounds = 0\n", "my.toml, line 1: invalid value '0' for '--rounds <N>'"),
            ("\nsize = {}\n", "my.toml, line 2: there is no mode `size`"),
            ("strict = 1\n", "my.toml, line 1: strict is true or false"),
            ("recipe = \"x\"\n", "my.toml, line 1: no mode has an option --recipe"),
            ("rounds = \n", "my.toml, line 1: "),
        ] {
            let error = with(recipe, "lat").expect_err(recipe);
            assert!(error.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn a_recipe_for_another_mode_is_checked_all_the_same() {
        let error = with("[rate]\nstat = \"/\"\n", "lat").expect_err("rate has no such option");
        assert!(error.contains("`rate` has no option --stat"), "{error}");
    }

    #[test]
    fn recipes_that_come_with_the_program_fit_every_mode() {
        let command = Cli::command();
        for name in names() {
            for mode in command.get_subcommands().map(Command::get_name) {
                let typed = ["rpcrdma-bench", mode, "--recipe", name].map(OsString::from);
                if command.clone().try_get_matches_from(&typed).is_err() {
                    continue;
                }
                let all = applied(&command, typed.to_vec()).unwrap_or_else(|e| panic!("{e}"));
                let parsed = command.clone().try_get_matches_from(&all);
                assert!(parsed.is_ok(), "{name} {mode}: {}", parsed.expect_err("not ok"));
            }
        }
    }

    #[test]
    fn a_recipe_is_found_by_name_and_put_behind_the_mode() {
        let typed = ["rpcrdma-bench", "lat", "--recipe", "quick"].map(OsString::from).to_vec();
        let all = applied(&Cli::command(), typed).expect("it comes with the program");
        assert_eq!(all[..2], ["rpcrdma-bench", "lat"]);
        assert!(all.len() > 4 && all.ends_with(&["--recipe".into(), "quick".into()]), "{all:?}");
        let Mode::Contest(Contest::Lat(args)) =
            Cli::try_parse_from(&all).expect("it parses").mode()
        else {
            panic!("another mode")
        };
        assert!(args.length.rounds < 10);
    }

    #[test]
    fn a_recipe_that_is_not_there_is_named_beside_those_that_are() {
        let typed = ["rpcrdma-bench", "--recipe", "/no/such"].map(OsString::from).to_vec();
        let error = applied(&Cli::command(), typed).expect_err("there is none").to_string();
        assert!(error.contains("/no/such") && error.contains("quick, thorough, nic"), "{error}");
    }
}
