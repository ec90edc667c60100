//! The commands of the pages: each is tried as far as that is cheap, or named with what it waits
//! for.
//!
//! A program is started with the options of the page and `--help`: it parses them, and ends. So an
//! option that does not exist, or a value that is not allowed, is an error here.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::tracked::{files, root};

/// Commands that no test runs, by their first words, and what they wait for.
const WAIT: &[(&str, &str)] = &[
    ("apt install", "root, and a package"),
    ("callgrind_annotate", "what tests/instructions leaves, of which the step instructions is"),
    ("cargo fuzz", "cargo-fuzz, and hours"),
    ("cargo install --locked cargo-deny", "a registry, and minutes"),
    ("cargo install cargo-fuzz", "a registry, and minutes"),
    ("cargo publish", "a release"),
    ("cc echo.c", "an installed library: the step capi runs it"),
    ("cp docs/wireshark/rpcrdma2.lua", "Wireshark"),
    ("editor", "a user"),
    ("engine/packaging/install", "a folder of the system: the step capi runs it"),
    ("fio", "fio: the step fio runs it"),
    ("git tag", "a release"),
    ("man", "a terminal"),
    ("mkdir", "Wireshark"),
    ("modprobe", "root, and a kernel with the module"),
    ("mount", "root, and a server"),
    ("rdma link", "root"),
    ("systemctl", "root, and the package"),
    ("tshark", "Wireshark: a test of rpcrdma-xdr reads captures with the dissector"),
    ("verbs_rxe", "the emulated machine: the step vm runs it"),
];

/// A command of a page.
struct Line {
    /// The page and the line.
    at: String,
    words: Vec<String>,
}

/// The commands in the blocks `sh` of a page, and those in its text that install something.
fn commands_of(name: &str, page: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let mut block: Option<(usize, String)> = None;
    for (line, text) in (1..).zip(page.lines()) {
        let fence = text.trim_start().strip_prefix("```");
        match (&mut block, fence) {
            (None, Some("sh" | "bash" | "console" | "shell")) => {
                block = Some((line + 1, String::new()));
            }
            (Some((start, commands)), Some("")) => {
                let of_block = lines(name, *start, commands);
                found.extend(of_block);
                block = None;
            }
            (Some((_, commands)), None) => *commands += &format!("{text}\n"),
            (None, None) => {
                let quoted = text.split('`').skip(1).step_by(2);
                let installs = quoted
                    .filter(|it| it.starts_with("cargo install ") || it.starts_with("cargo add "));
                found.extend(installs.flat_map(|it| lines(name, line, it)));
            }
            _ => {}
        }
    }
    found
}

/// The simple commands of a script, without redirections and assignments.
fn lines(page: &str, first: usize, script: &str) -> Vec<Line> {
    let (mut found, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let (mut line, mut start, mut is_target) = (first, first, false);
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        line += usize::from(letter == '\n');
        match letter {
            '\\' if letters.peek() == Some(&'\n') => {
                letters.next();
                line += 1;
            }
            '\'' | '"' => {
                let quoted: String = letters.by_ref().take_while(|it| *it != letter).collect();
                line += quoted.matches('\n').count();
                word.get_or_insert_default().push_str(&quoted);
            }
            '$' if letters.peek() == Some(&'(') => {
                let inner: String = letters.by_ref().take_while(|it| *it != ')').collect();
                word.get_or_insert_default().push_str(&format!("${inner})"));
            }
            '#' if word.is_none() => while letters.next_if(|it| *it != '\n').is_some() {},
            ' ' | '\n' | ';' | '|' | '&' | '>' => {
                let ended = word.take().filter(|_| !std::mem::take(&mut is_target));
                words.extend(ended.filter(|it| !words.is_empty() || !is_prefix(it)));
                is_target |= letter == '>';
                if "\n;|&".contains(letter) && !words.is_empty() {
                    let at = format!("{page}:{start}");
                    found.push(Line { at, words: std::mem::take(&mut words) });
                }
                if words.is_empty() {
                    start = line;
                }
            }
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    if !words.is_empty() {
        found.push(Line { at: format!("{page}:{start}"), words });
    }
    found
}

/// What stands in front of a command and is none: `sudo`, or a variable.
fn is_prefix(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    word == "sudo" || word == "export" || word.contains('=') && !name.contains(['/', '-'])
}

fn all() -> Vec<Line> {
    let pages = files().into_iter().filter(|name| name.ends_with(".md"));
    let of =
        |name: String| commands_of(&name, &fs::read_to_string(root().join(&name)).expect("text"));
    pages.flat_map(of).collect()
}

#[test]
fn every_command_of_a_page_can_be_typed() {
    let (mut wrong, mut waiting, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for line in all() {
        count += 1;
        let typed = line.words.join(" ");
        let waits = WAIT.iter().find(|(first, _)| {
            typed.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        });
        if let Some((first, _)) = waits {
            waiting.insert(*first);
        } else if let Err(why) = try_to_type(&line.words) {
            wrong.push(format!("{}: {typed}\n    {why}", line.at));
        }
    }
    assert!(count > 150, "{count} commands are found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unused = WAIT.iter().find(|(first, _)| !waiting.contains(first));
    assert_eq!(unused, None, "no page has it");
}

fn try_to_type(words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["cargo", "add", ..] => adds(&words[2..]),
        ["cargo", "install", ref rest @ ..] => match rest.iter().position(|it| *it == "--path") {
            Some(at) => is_folder(rest.get(at + 1).unwrap_or(&"")),
            None => Err("it waits for a publication: --path names a folder".into()),
        },
        ["cargo", "build"] => Ok(()),
        ["cargo", "build" | "run", ref rest @ ..] => {
            let at = rest.iter().position(|it| *it == "--").unwrap_or(rest.len());
            let (own, options) = rest.split_at(at);
            runs(own, options.get(1..).unwrap_or_default())
        }
        ["cd", folder] => is_folder(folder),
        ["tests/run", ref rest @ ..] => test_run(rest),
        [script, ref rest @ ..] if root().join(script).is_file() => is_script(script, rest),
        [program, ref rest @ ..] => starts(program, rest),
        [] => Ok(()),
    }
}

fn is_folder(name: &str) -> Result<(), String> {
    if root().join(name).is_dir() { Ok(()) } else { Err(format!("{name} is no folder")) }
}

/// `cargo add`, in a new package.
fn adds(options: &[&str]) -> Result<(), String> {
    let Some(at) = options.iter().position(|it| *it == "--path") else {
        return Err("it waits for a publication: --path names a folder".into());
    };
    let path = options.get(at + 1).and_then(|it| it.strip_prefix("CHECKOUT/"));
    let path = root().join(path.ok_or("the path begins with CHECKOUT/")?);
    let folder = Folder::new();
    fs::create_dir(folder.join("src")).expect("it is ours");
    fs::write(folder.join("src/lib.rs"), "").expect("it is ours");
    let manifest = "[package]\nname = \"trial\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(folder.join("Cargo.toml"), manifest).expect("it is ours");
    let mut command = Command::new(env!("CARGO"));
    command.args(["add", "--dry-run", "--offline"]).current_dir(folder.join(""));
    command.args(&options[..=at]).arg(path).args(&options[at + 2..]);
    succeeds(&mut command)
}

/// `cargo run` and `cargo build` of a package, with the options of its program.
fn runs(own: &[&str], options: &[&str]) -> Result<(), String> {
    let value = |name: &str| own.iter().position(|it| *it == name).and_then(|at| own.get(at + 1));
    let package = value("-p").ok_or("no package")?;
    let folder = folder_of(package).ok_or_else(|| format!("no package is named {package}"))?;
    let known = ["--release", "-p", "--example"];
    if let Some(other) = own.iter().find(|it| it.starts_with('-') && !known.contains(it)) {
        return Err(format!("{other} is no option that this test knows"));
    }
    match value("--example") {
        Some(example) => is_example(&folder.join("examples").join(example), options),
        None if *package == "rpcrdma-layers" => options.iter().try_for_each(|it| is_folder(it)),
        None => starts(package, options),
    }
}

fn folder_of(package: &str) -> Option<PathBuf> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the root manifest");
    let members = manifest.split("members = [").nth(1)?.split(']').next()?;
    let folders = members.split('"').skip(1).step_by(2).map(|folder| root().join(folder));
    let name = format!("name = \"{package}\"\n");
    folders.into_iter().find(|folder| {
        fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|text| text.contains(&name))
    })
}

/// A script of the repository: its options are words in it.
fn is_script(script: &str, options: &[&str]) -> Result<(), String> {
    let path = root().join(script);
    let mode = path.metadata().expect("it is a file").permissions().mode();
    if mode & 0o111 == 0 {
        return Err("it cannot be executed".into());
    }
    let text = fs::read_to_string(path).expect("text");
    let options = options.iter().take_while(|it| **it != "--").filter(|it| it.starts_with('-'));
    match options.into_iter().find(|it| !text.contains(**it)) {
        Some(option) => Err(format!("{option} is not in the script")),
        None => Ok(()),
    }
}

fn test_run(words: &[&str]) -> Result<(), String> {
    let listed = Command::new(root().join("tests/run")).arg("--list").output();
    let steps = String::from_utf8(listed.expect("bash").stdout).expect("text");
    match words {
        [] | ["quick" | "--list" | "--help"] => Ok(()),
        [program @ ("simulate" | "stress"), rest @ ..] => {
            let usage = Command::new(built(program)?).arg("--help").output();
            let usage = usage.map_err(|error| error.to_string())?;
            let usage =
                String::from_utf8_lossy(&[usage.stdout, usage.stderr].concat()).into_owned();
            let mut options = rest.iter().filter(|it| it.starts_with("--") && **it != "--help");
            match options.find(|it| !usage.contains(**it)) {
                Some(option) => Err(format!("it has no option {option}")),
                None => Ok(()),
            }
        }
        ["vm", rest @ ..] => {
            let mut all = Command::new(root().join("tests/vm/all"));
            succeeds(all.arg("--list").args(rest))
        }
        steps_named => match steps_named.iter().find(|it| !steps.lines().any(|one| one == **it)) {
            Some(other) => Err(format!("no step is named {other}")),
            None => Ok(()),
        },
    }
}

/// An example has the options: they are fields of a structure in its sources. Only programs are
/// built for all tests.
fn is_example(folder: &Path, options: &[&str]) -> Result<(), String> {
    let sources = fs::read_dir(folder).map_err(|_| format!("no example {}", folder.display()))?;
    let text: String = sources
        .map(|entry| fs::read_to_string(entry.expect("an entry").path()).unwrap_or_default())
        .collect();
    for option in options.iter().filter_map(|it| it.strip_prefix("--")) {
        let field = format!(" {}: ", option.split('=').next().unwrap_or(option).replace('-', "_"));
        if !text.contains(&field) {
            return Err(format!("it has no option --{option}"));
        }
    }
    Ok(())
}

/// A program of the workspace parses the options.
fn starts(program: &str, options: &[&str]) -> Result<(), String> {
    let name = program.split("target/release/").last().unwrap_or(program);
    if let Some(example) = name.strip_prefix("examples/") {
        let found = root().join("engine/examples").join(example);
        if !found.is_dir() {
            return Err("no example has this name".into());
        }
        return is_example(&found, options);
    }
    if !OURS.contains(&name) {
        return Err("no such program is known here: name in WAIT what it waits for".into());
    }
    let path = built(name)?;
    // What a shell would replace is not known.
    if options.iter().any(|it| it.contains('$')) {
        return Ok(());
    }
    succeeds(Command::new(path).args(options).arg("--help"))
}

/// The path of a program of the workspace: it is built for all tests.
fn built(name: &str) -> Result<PathBuf, String> {
    let this = env::current_exe().expect("this program has a path");
    let path = this.ancestors().nth(2).expect("the folder of the profile").join(name);
    let build = "cargo build --workspace --bins";
    if path.is_file() { Ok(path) } else { Err(format!("{} is not built: {build}", path.display())) }
}

/// The programs of the workspace that pages name.
const OURS: &[&str] =
    &["rpcrdma-bench", "rpcrdma-gen", "rpcrdma-nfs3", "rpcrdma-top", "simulate", "stress"];

fn succeeds(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", output.status, said.lines().next().unwrap_or_default()))
}

#[test]
fn commands_are_found_as_a_shell_finds_them() {
    let page = "```sh\n# a comment\nsudo X=1 a 'b c' \\\n  d > e # f\ng | h --i=\"j\nk\" && l\n\
                m=$(n o)\n```\nText with `cargo add p`.\n```rust\nlet no = 1;\n```\n";
    let found = commands_of("page", page);
    let shown: Vec<_> = found.iter().map(|it| (it.at.as_str(), it.words.join("|"))).collect();
    let expected = [
        ("page:3", "a|b c|d"),
        ("page:5", "g"),
        ("page:5", "h|--i=j\nk"),
        ("page:6", "l"),
        ("page:9", "cargo|add|p"),
    ];
    assert_eq!(shown, expected.map(|(at, words)| (at, words.to_owned())));
}

#[test]
fn what_cannot_be_typed_is_an_error() {
    for wrong in [
        "cargo add rpcrdma",
        "cargo add rpcrdma --path CHECKOUT/engine/nothing",
        "cargo install rpcrdma-bench",
        "cargo install --path engine/nothing",
        "cargo run --release -p rpcrdma-nothing",
        "cargo build --release -p rpcrdma --example nothing",
        "cargo run -p rpcrdma-bench -- lat --no-such-option",
        "rpcrdma-bench nothing",
        "rpcrdma-bench lat --size nothing",
        "target/release/rpcrdma-nfs3 --exprot /srv",
        "target/release/examples/echo --lisen shm:/tmp/a",
        "tests/run nothing",
        "tests/run simulate --nothing",
        "tests/mutate --nothing",
        "cd nothing",
        "nothing",
    ] {
        let words: Vec<String> = wrong.split(' ').map(str::to_owned).collect();
        assert!(try_to_type(&words).is_err(), "{wrong}");
    }
}
