//! Every test alone, without mutations: how long it takes, and which switches it reaches.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rpcrdma_mutants::names::Program;

use crate::cargo::Executable;
use crate::state::{Entry, State, Tried};
use crate::trial::{Ending, Trial};
use crate::workers;

/// How long a test may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Adds the tests of these programs that are not known yet.
///
/// # Errors
/// If a program cannot be run, or the state not be written.
pub fn add(
    tests: &mut Vec<Tried>,
    programs: &[(&Program, &Executable)],
    folder: &Path,
    state: &State,
    jobs: usize,
) -> Result<(), String> {
    let mut left = Vec::new();
    let mut all = Vec::new();
    for &(program, executable) in programs {
        for name in Trial::list(executable)? {
            all.push((program, executable, name));
        }
    }
    for (program, executable, name) in &all {
        if !tests.iter().any(|known| known.program == **program && known.name == *name) {
            left.push(Test { program, executable, name });
        }
    }
    println!("{} tests, {} of which are to be tried without mutations", all.len(), left.len());
    let mut outcome = Ok(());
    workers::run(
        jobs,
        left,
        |test| test.try_without(folder),
        |_, tried| {
            let added = tried.and_then(|tried| {
                state.add(&Entry::Tried(tried.clone()))?;
                tests.push(tried);
                Ok(())
            });
            if added.is_err() {
                outcome = added;
            }
        },
    );
    outcome
}

#[derive(Clone, Copy)]
struct Test<'a> {
    program: &'a Program,
    executable: &'a Executable,
    name: &'a str,
}

impl Test<'_> {
    fn try_without(&self, folder: &Path) -> Result<Tried, String> {
        let Program { package, kind, name } = self.program;
        let place = format!("{package}-{kind:?}-{name}-{}", self.name.replace("::", "-"));
        let folder = folder.join(place);
        // Some threads of tests are another user's.
        fs::create_dir_all(&folder)
            .and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o777)))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let began = Instant::now();
        let arguments = [self.name.to_owned(), "--exact".to_owned()];
        let trial = Trial {
            executable: self.executable,
            number: None,
            reached: Some(&folder),
            arguments: &arguments,
            limit: LIMIT,
        };
        let ending = trial.run()?;
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let reached = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut reached: Vec<usize> =
            reached.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
        reached.sort_unstable();
        // The process may have left children that write there.
        let _ = fs::remove_dir_all(&folder);
        if ending.is_caught() {
            println!("{} of {package}: {ending:?} without a mutation; it is not used", self.name);
        }
        Ok(Tried {
            program: self.program.clone(),
            name: self.name.to_owned(),
            ms,
            is_passed: ending == Ending::Passed,
            reached,
        })
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_mutants::names::Kind;

    use super::*;

    /// Only root can be another user.
    const SCRIPT: &str = "\
[ $(id -u) != 0 ] || as_other='setpriv --reuid 1234'
$as_other touch $RPCRDMA_REACHED/7
echo test result: ok
";

    #[test]
    fn what_another_user_reaches_is_reached() {
        let folder = std::env::temp_dir().join(format!("rpcrdma-survey-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("ours");
        fs::write(folder.join("script"), SCRIPT).expect("ours");
        let program = Program { package: "none".into(), kind: Kind::Lib, name: "none".into() };
        let executable = Executable { path: "/bin/sh".into(), folder: folder.clone() };
        let test = Test { program: &program, executable: &executable, name: "script" };
        let tried = test.try_without(&folder).expect("a shell");
        fs::remove_dir_all(&folder).expect("ours");
        assert_eq!((tried.is_passed, tried.reached), (true, vec![7]));
    }
}
