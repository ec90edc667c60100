//! `tests/mutate --rows` and `--survivors`: with each mutation of a table its test fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rpcrdma_mutants::names::{self, Program, Test};
use rpcrdma_mutants::rules;
use rpcrdma_mutants::table::{self, Mutation};

use crate::batch::{self, Mutant};
use crate::cargo::{Cargo, Executable, Outcome};
use crate::copy::Copy;
use crate::trial::{Ending, Trial};
use crate::workers;

/// The time of a test with a mutation, above what it takes without in five runs.
const GRACE: Duration = Duration::from_secs(20);

/// Where things are, and how many run at one time.
#[derive(Debug)]
pub struct Place {
    /// The workspace.
    pub root: PathBuf,
    /// The folder for what is made.
    pub target: PathBuf,
    /// Programs that run at one time.
    pub jobs: usize,
}

impl Place {
    /// The copy of the sources with this name, and the compiler for it.
    ///
    /// # Errors
    /// If its folder cannot be made.
    pub fn copy(&self, name: &str) -> Result<(Copy, Cargo), String> {
        let folder = self.target.join(name);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let cargo = Cargo { folder: folder.clone(), target: self.target.join("built") };
        Ok((Copy { root: self.root.clone(), folder }, cargo))
    }
}

/// Tries the mutations of a table: those of these ids, or of these rows, or all.
///
/// # Errors
/// What cannot be tried, and what no test notices.
pub fn run(place: &Place, table: &str, chosen: &[String]) -> Result<(), String> {
    let mutations = choose(&place.root, table, chosen)?;
    let faults = table::faults(&place.root, &mutations);
    if !faults.is_empty() {
        return Err(faults.join("\n"));
    }
    let name = Path::new(table).file_stem().and_then(|name| name.to_str()).unwrap_or("rows");
    let mut rows = Rows::new(&place.root, mutations)?;
    let (copy, cargo) = place.copy(name)?;
    let programs: BTreeSet<Program> = rows.of.iter().map(|row| row.test.program.clone()).collect();
    let mutants = rows.of.iter().map(|row| row.mutant.clone()).collect();
    let built = batch::build(&copy, &cargo, mutants, &programs)?;
    rows.read_tests(&built.programs)?;
    rows.try_without()?;
    let alone: BTreeSet<usize> = built.refused.iter().map(|one| one.mutant.number).collect();
    for refused in &built.refused {
        let id = &rows.of[refused.mutant.number - 1].mutation.id;
        println!("{id} is compiled alone: {}", refused.why);
    }
    let (alone, switched): (Vec<&Row>, Vec<&Row>) =
        rows.of.iter().partition(|row| alone.contains(&row.mutant.number));
    let mut count = Count::default();
    workers::run(
        place.jobs,
        switched,
        |row| row.try_with(Some(row.mutant.number)),
        |row, ending| {
            count.add(row, ending);
        },
    );
    for row in alone {
        let ending = row.try_alone(&copy, &cargo);
        count.add(row, ending);
    }
    count.end()
}

/// Those of the rows or ids that were named.
fn choose(root: &Path, table: &str, chosen: &[String]) -> Result<Vec<Mutation>, String> {
    let mutations = match table {
        table::SURVIVORS => table::survivors(root)?,
        _ => table::read(root, table)?,
    };
    if chosen.is_empty() {
        return Ok(mutations);
    }
    let rows = rules::read(root)?;
    let mut ids = BTreeSet::new();
    for name in chosen {
        let row = rows.iter().find(|row| row.number == *name);
        let before = ids.len();
        match row {
            Some(row) => ids.extend(row.mutations().map(str::to_owned)),
            None => ids.extend(mutations.iter().map(|one| one.id.clone()).filter(|id| id == name)),
        }
        if ids.len() == before {
            return Err(format!("no mutation of {table}, and no row with one, is named {name}"));
        }
    }
    Ok(mutations.into_iter().filter(|mutation| ids.contains(&mutation.id)).collect())
}

/// A mutation, its test, and what was found out about it.
struct Row {
    mutation: Mutation,
    test: Test,
    mutant: Mutant,
    executable: Option<Executable>,
    /// The program's own names of the test.
    arguments: Vec<String>,
    limit: Duration,
}

struct Rows {
    of: Vec<Row>,
}

impl Rows {
    fn new(root: &Path, mutations: Vec<Mutation>) -> Result<Rows, String> {
        let row = |(number, mutation): (usize, Mutation)| -> Result<Row, String> {
            let source = fs::read_to_string(root.join(&mutation.file));
            let source = source.map_err(|error| format!("{}: {error}", mutation.file))?;
            let mutant = Mutant {
                number: number + 1,
                file: mutation.file.clone(),
                part: mutation.find(&source)?,
                other: mutation.other.clone(),
            };
            let test = names::find(root, &mutation.test)?;
            Ok(Row {
                mutation,
                test,
                mutant,
                executable: None,
                arguments: Vec::new(),
                limit: GRACE,
            })
        };
        let of = mutations.into_iter().enumerate().map(row).collect::<Result<_, _>>()?;
        Ok(Rows { of })
    }

    /// Finds the tests in their programs.
    fn read_tests(&mut self, built: &Outcome) -> Result<(), String> {
        let mut listed: BTreeMap<Program, Vec<String>> = BTreeMap::new();
        for row in &mut self.of {
            let program = &row.test.program;
            let executable = built.programs.get(program);
            let executable = executable.ok_or(format!("cargo made no program of {program:?}"))?;
            if !listed.contains_key(program) {
                listed.insert(program.clone(), Trial::list(executable)?);
            }
            row.executable = Some(executable.clone());
            row.name_test(&listed[program])?;
        }
        Ok(())
    }

    /// Runs every test without a mutation: it has to pass.
    fn try_without(&mut self) -> Result<(), String> {
        let mut limits: BTreeMap<String, Duration> = BTreeMap::new();
        for row in &mut self.of {
            let name = &row.mutation.test;
            if !limits.contains_key(name) {
                let began = Instant::now();
                row.limit = 10 * GRACE;
                let ending = row.try_with(None)?;
                if ending.is_caught() {
                    return Err(format!("{name}: {ending:?}, without a mutation"));
                }
                limits.insert(name.clone(), 5 * began.elapsed() + GRACE);
            }
            row.limit = limits[name];
        }
        Ok(())
    }
}

impl Row {
    fn name_test(&mut self, listed: &[String]) -> Result<(), String> {
        let names = listed.iter().filter(|name| self.test.is_listed_as(name)).cloned();
        self.arguments = names.collect();
        if self.arguments.is_empty() {
            return Err(format!("{}: its program has no such test", self.mutation.test));
        }
        self.arguments.extend(["--exact".into(), "--include-ignored".into()]);
        Ok(())
    }

    fn try_with(&self, number: Option<usize>) -> Result<Ending, String> {
        let executable = self.executable.as_ref().ok_or("no program")?;
        let (arguments, limit) = (&self.arguments, self.limit);
        Trial { executable, number, reached: None, arguments, limit }.run()
    }

    /// Compiles the program with this mutation, in place of the switches of its file.
    fn try_alone(&self, copy: &Copy, cargo: &Cargo) -> Result<Ending, String> {
        let Mutant { file, part, other, .. } = &self.mutant;
        let read = fs::read_to_string(copy.root.join(file));
        let mut source = read.map_err(|error| format!("{file}: {error}"))?;
        source.replace_range(part.clone(), other);
        copy.update(&BTreeMap::from([(file.clone(), source)]))?;
        let program = &self.test.program;
        let outcome = cargo.build(&BTreeSet::from([program.clone()]))?;
        if let Some(fault) = outcome.errors.first() {
            return Err(format!("it does not compile: {}", fault.text));
        }
        let executable = outcome.programs.get(program).ok_or("cargo made no program")?;
        let (arguments, limit) = (&self.arguments, self.limit);
        Trial { executable, number: None, reached: None, arguments, limit }.run()
    }
}

#[derive(Default)]
struct Count {
    caught: usize,
    faults: usize,
}

impl Count {
    /// Prints a line.
    fn add(&mut self, row: &Row, ending: Result<Ending, String>) {
        let Mutation { id, test, .. } = &row.mutation;
        let is_caught = ending.as_ref().is_ok_and(Ending::is_caught);
        match ending {
            Ok(Ending::Passed) => println!("SURVIVED {id}: {test} passes"),
            Ok(Ending::Failed(_)) => println!("caught   {id}: {test}"),
            Ok(Ending::Crashed(how)) => println!("caught   {id}: {test} ({how})"),
            Ok(Ending::Hung) => println!("caught   {id}: {test} (does not end)"),
            Err(why) => println!("ERROR    {id}: {why}"),
        }
        self.caught += usize::from(is_caught);
        self.faults += usize::from(!is_caught);
    }

    fn end(&self) -> Result<(), String> {
        println!("{} mutations: {} caught", self.caught + self.faults, self.caught);
        match self.faults {
            0 => Ok(()),
            faults => Err(format!("{faults} mutations were not noticed or cannot be tried")),
        }
    }
}
