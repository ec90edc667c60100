//! Counts the instructions of RPCs and compares them with what was kept: `tests/instructions`.

mod apart;
mod capi;
mod cases;
mod entered;
mod figures;
mod pair;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, thread};

use cases::{By, CASES};
use entered::Entered;
use figures::Figure;
use pair::{CALLS, Counted, Side, WARM_UP};
use rpcrdma_instructions::callgrind::{self, Count, CountError, Where};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [RUN, side @ (CLIENT | SERVER), how @ (PLAIN | APART)] => run(side, how),
        ["--check", path, compiler] => check(Path::new(path), compiler),
        ["--accept", path, compiler] => accept(Path::new(path), compiler),
        ["--entered", root] => entered(root),
        _ => {
            eprintln!("see tests/instructions --help");
            ExitCode::from(USAGE)
        }
    }
}

/// Makes the calls of all cases: what runs under callgrind.
fn run(side: &str, how: &str) -> ExitCode {
    let side = if side == CLIENT { Side::Client } else { Side::Server };
    let counted = Counted { side, is_apart: how == APART };
    for case in CASES {
        match case.by {
            By::C => capi::run(pair::fabric(), pair::config(case), case, [WARM_UP, CALLS]),
            By::Client | By::Session => pair::run(counted, case),
        }
    }
    ExitCode::SUCCESS
}

/// Compares; the exit code says whether all is well.
fn check(path: &Path, compiler: &str) -> ExitCode {
    let (kept, was) = match kept(path) {
        Ok(kept) => kept,
        Err(why) => return failed(&why),
    };
    let now = match counted() {
        Ok(now) => now,
        Err(why) => return failed(&why.to_string()),
    };
    print!("{}", figures::table(&now));
    let excesses = figures::excesses(&now);
    excesses.iter().for_each(|line| println!("too dear: {line}"));
    let differences = figures::differences(&was, &now);
    if differences.is_empty() {
        println!("as kept in {}, within {} %", path.display(), figures::SLACK * 100.0);
        return if excesses.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    println!("\nnot as kept in {}:", path.display());
    differences.iter().for_each(|line| println!("  {line}"));
    if !kept.contains(&by(compiler)) {
        println!("these figures are of another compiler; this is {compiler}");
    }
    println!("if this is meant: tests/instructions --accept, and say why in the commit");
    ExitCode::FAILURE
}

/// Keeps what is counted now, and shows what was kept before.
fn accept(path: &Path, compiler: &str) -> ExitCode {
    let was = kept(path).map_or_else(|_| Vec::new(), |(_, was)| was);
    let now = match counted() {
        Ok(now) => now,
        Err(why) => return failed(&why.to_string()),
    };
    println!("old\n{}\nnew\n{}", figures::table(&was), figures::table(&now));
    figures::differences(&was, &now).iter().for_each(|line| println!("{line}"));
    figures::excesses(&now).iter().for_each(|line| println!("too dear: {line}"));
    let text = format!("{HEADER}{}\n{}", by(compiler), figures::table(&now));
    match fs::write(path, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failed(&format!("{}: {why}", path.display())),
    }
}

/// Prints what the server enters for a call of each kind.
fn entered(root: &str) -> ExitCode {
    let found = env::current_exe().map_err(|why| CountError::File("this program".into(), why));
    let read = found.and_then(|program| {
        one(SERVER, PLAIN)?;
        let files = (1..=CASES.len()).map(|part| format!("out.{part}"));
        let paths = files.map(|name| folder(&program, SERVER, PLAIN).join(name));
        let read =
            |path: PathBuf| fs::read_to_string(&path).map_err(|why| CountError::File(path, why));
        paths.map(read).collect::<Result<Vec<String>, CountError>>()
    });
    match read {
        Ok(texts) => {
            for (case, text) in CASES.iter().zip(texts) {
                println!(
                    "{:<28} {:>4} {:>4} {}",
                    case.name,
                    case.connections,
                    case.window,
                    Entered::read(&text, root).per_call(CALLS)
                );
            }
            ExitCode::SUCCESS
        }
        Err(why) => failed(&why.to_string()),
    }
}

/// The text of the file, and the figures in it.
fn kept(path: &Path) -> Result<(String, Vec<Figure>), String> {
    let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|why| named(&why))?;
    let figures = figures::parse(&text).map_err(|why| named(&why))?;
    Ok((text, figures))
}

/// Runs this program under callgrind, once for each side with the provider and once without.
fn counted() -> Result<Vec<Figure>, CountError> {
    let runs = [(CLIENT, PLAIN), (SERVER, PLAIN), (CLIENT, APART), (SERVER, APART)];
    let counts = thread::scope(|scope| {
        let runs = runs.map(|(side, how)| scope.spawn(move || one(side, how)));
        runs.map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let [client, server, client_apart, server_apart] = counts;
    let sides = [(CLIENT, client?, client_apart?), (SERVER, server?, server_apart?)];
    let figure = |index: usize, side: &str, all: &Count, apart: &Count| Figure {
        call: CASES[index].name.into(),
        connections: CASES[index].connections,
        window: CASES[index].window,
        side: side.into(),
        all: per_call(all.own),
        engine: per_call(apart.own - apart.source),
        provider: per_call(all.own - apart.own),
        library_calls: per_call(all.library_calls),
        library: per_call(all.library),
    };
    let figures = (0..CASES.len()).flat_map(|index| {
        let figure = &figure;
        sides.iter().map(move |(side, all, apart)| figure(index, side, &all[index], &apart[index]))
    });
    Ok(figures.collect())
}

/// All cases, of one side, with the provider's functions or without.
fn one(side: &str, how: &str) -> Result<Vec<Count>, CountError> {
    let program = env::current_exe().map_err(|why| CountError::File("this program".into(), why))?;
    let mut toggles = vec![format!("*{side}_turn*")];
    // The fake driver of an RDMA device never counts. Apart, it is outside with its provider.
    toggles.push(if how == APART { "*outside_*" } else { "*driver_*" }.into());
    let at = Where {
        toggles,
        begin: "*begin_part*".into(),
        end: "*end_part*".into(),
        source: THIS_PROGRAM.into(),
        addresses: false,
    };
    let counts = callgrind::count(&program, &[RUN, side, how], &at, &folder(&program, side, how))?;
    if counts.len() != CASES.len() {
        return Err(CountError::Strange(format!("{} parts", counts.len())));
    }
    Ok(counts.iter().map(|part| part.count).collect())
}

/// Where callgrind writes: beside the program, and left there for `callgrind_annotate`.
fn folder(program: &Path, side: &str, how: &str) -> PathBuf {
    program.with_file_name(format!("callgrind.{side}.{}", how.trim_start_matches('-')))
}

fn per_call(count: u64) -> f64 {
    count as f64 / CALLS as f64
}

fn by(compiler: &str) -> String {
    format!("# {compiler}")
}

fn failed(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

const RUN: &str = "--run";
const CLIENT: &str = "client";
const SERVER: &str = "server";
const PLAIN: &str = "plain";
const APART: &str = "apart";
const USAGE: u8 = 2;
/// Where the sources of this program are.
const THIS_PROGRAM: &str = "bench/instructions/src";
const HEADER: &str = "\
# Instructions per RPC, by callgrind: written by tests/instructions --accept, never by hand.
# all = engine + provider + the program that makes the calls, without the C library, whose instructions
# depend on the processor.
";
