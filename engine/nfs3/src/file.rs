//! The configuration file: options of the command line in its table `nfs3`.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches, Parser};
use rpcrdma::Config;
use rpcrdma_nfs3 as server;

use crate::args::{Args, TABLE};

/// What the command line and the file of `--config` state together.
#[derive(Debug)]
pub struct Stated {
    /// The options of the command line, and those of the file that it does not state.
    pub args: Args,
    /// The configuration of the engine.
    pub config: Config,
}

/// The options and the configuration. The file is read once: it may be a pipe. `None` if the man
/// page is requested.
///
/// # Errors
/// A [`clap::Error`] if the command line is wrong, otherwise an error that names the file.
pub fn stated(line: &[OsString]) -> Result<Option<Stated>, Box<dyn Error>> {
    // What is wrong in the line is reported below.
    let first = Args::command().ignore_errors(true).try_get_matches_from(line).ok();
    if first.as_ref().is_some_and(|options| options.get_one("man") == Some(&true)) {
        return Ok(None);
    }
    let own = server::config()?;
    let (args, file) = match first.as_ref().and_then(|given| given.get_one::<PathBuf>("config")) {
        Some(path) => {
            let (file, keys) = own.load_over(path, TABLE)?;
            (options(path, &keys, line)?, file)
        }
        None => (Args::try_parse_from(line)?, own),
    };
    let config = args.config(&file)?;
    Ok(Some(Stated { args, config }))
}

/// The options of a command line, and the keys of a file that the line does not state.
fn options(
    path: &Path,
    keys: &[(String, String)],
    line: &[OsString],
) -> Result<Args, Box<dyn Error>> {
    let in_file = |what: String| format!("{}: table {TABLE}: {what}", path.display());
    let command = Args::command();
    let mut options = vec![OsString::from(command.get_name())];
    for (key, value) in keys {
        options.extend(option(&command, key, value).map_err(in_file)?);
    }
    let alone = command.clone().mut_args(|option| option.required(false));
    alone.try_get_matches_from(&options).map_err(|error| in_file(first_line(&error)))?;

    options.extend(line.iter().skip(1).cloned());
    let mut found = command.args_override_self(true).try_get_matches_from(options).map_err(
        |error| -> Box<dyn Error> {
            match (error.kind(), error.get(ContextKind::InvalidArg)) {
                (ErrorKind::MissingRequiredArgument, Some(missing)) => {
                    in_file(format!("neither it nor the command line has {missing}")).into()
                }
                _ => error.into(),
            }
        },
    )?;
    Ok(Args::from_arg_matches_mut(&mut found)?)
}

/// A key as an option; a switch that is off is none.
fn option(command: &Command, key: &str, value: &str) -> Result<Option<OsString>, String> {
    let allowed = || command.get_arguments().filter(|option| may_be_key(option));
    let Some(option) = allowed().find(|option| option.get_long() == Some(key)) else {
        let names: Vec<&str> = allowed().filter_map(Arg::get_long).collect();
        return Err(format!("{key} = {value:?}: unknown key; allowed: {}", names.join(", ")));
    };
    match (option.get_action().takes_values(), value) {
        (true, value) => Ok(Some(format!("--{key}={value}").into())),
        (false, "true") => Ok(Some(format!("--{key}").into())),
        (false, "false") => Ok(None),
        (false, other) => Err(format!("{key} = {other:?}; allowed: true or false")),
    }
}

/// Whether an option may be a key: not the file itself, nor what only prints.
fn may_be_key(option: &Arg) -> bool {
    option.get_id() != "config" && !option.is_exclusive_set()
}

/// What an error says, without advice about a command line.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use rpcrdma_nfs3::Squash;
    use rpcrdma_tests::folder::Folder;

    use super::*;

    /// The options of this line behind a file with this text.
    fn read(text: &str, line: &str) -> Result<Args, String> {
        let folder = Folder::new();
        let path = folder.join("nfs3.toml");
        std::fs::write(&path, text).expect("written");
        let line = format!("nfs3 --config {} {line}", path.display());
        let line: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let stated = stated(&line).map_err(|error| error.to_string())?;
        Ok(stated.expect("no man page").args)
    }

    const ENOUGH: &str = "[nfs3]\nexport = \"/srv\"\nlisten = \"10.0.0.1:20049\"\n";

    #[test]
    fn keys_are_options_and_the_command_line_comes_first() {
        let text = format!("{ENOUGH}workers = 2\nasync = true\nsquash = \"none\"");
        let args = read(&text, "").expect("enough");
        assert_eq!((args.workers, args.is_async, args.squash), (2, true, Squash::None));
        assert_eq!(args.export, Path::new("/srv"));
        let args = read(&text, "--workers 3 --export /other --squash all").expect("enough");
        assert_eq!((args.workers, args.squash), (3, Squash::All));
        assert_eq!(args.export, Path::new("/other"));
        assert!(!read(&format!("{ENOUGH}async = false"), "").expect("enough").is_async);
        assert!(read("", "--export /srv --listen 10.0.0.1:1").is_ok());
    }

    #[test]
    fn keys_of_the_engine_in_a_pipe_are_over_those_of_the_server() {
        // Which can be read once, as that of `--config <(command)`.
        let (file, mut text) = std::io::pipe().expect("two descriptors");
        write!(text, "{ENOUGH}[connections]\ndeny = [\"10.1.0.0/16\"]").expect("there is room");
        drop(text);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let line = ["nfs3", "--config", &path].map(OsString::from);
        let Stated { args, config: given } = stated(&line).expect("sound").expect("no man page");
        assert_eq!(args.export, Path::new("/srv"));
        let usual = server::config().expect("sound");
        assert_eq!(given.raw().connections.deny, ["10.1.0.0/16"]);
        assert_eq!(given.connections().calls_max, usual.connections().calls_max);
        assert_eq!(given.raw().app, usual.raw().app);
    }

    #[test]
    fn errors_name_the_file_and_the_key() {
        for (text, said) in [
            (
                "[nfs3]\nexprot = \"/srv\"",
                "table nfs3: exprot = \"/srv\": unknown key; allowed: export,",
            ),
            ("[nfs3]\nconfig = \"other\"", "config = \"other\": unknown key"),
            ("[nfs3]\nworkers = 0", "table nfs3: invalid value '0' for '--workers <WORKERS>'"),
            ("[nfs3]\nasync = 1", "async = \"1\"; allowed: true or false"),
            (
                "[nfs3]\nexport = [\"/srv\"]",
                "line 2: nfs3.export = an array; allowed: text in quotes",
            ),
            ("nfs3 = 1", "line 1: nfs3 = 1; allowed: a table"),
            (
                "[nfs3]\nexport = \"/srv\"",
                "neither it nor the command line has --listen <ADDR:PORT",
            ),
            ("[conections]", "line 1: conections = a table: unknown key"),
        ] {
            let error = read(text, "").expect_err(text);
            assert!(error.contains("nfs3.toml: ") && error.contains(said), "{error}");
        }
        let error = read(ENOUGH, "--workers 0").expect_err("the command line is wrong");
        assert!(error.starts_with("error: invalid value"), "{error}");
    }
}
