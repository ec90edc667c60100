//! The program `peer` in a process of its own, and what it says.

use std::process::Command;

use rustix::process::Signal;

use rpcrdma_testing::children::Started;

/// The program, and all that it has said so far.
pub struct Peer {
    program: Started,
    said: Vec<String>,
}

impl Peer {
    /// Starts it by this command.
    ///
    /// # Panics
    /// If it cannot be started, as all of these if it ends too early.
    pub fn by(command: &mut Command) -> Peer {
        Peer { program: Started::by(command), said: Vec::new() }
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.program.id()
    }

    /// Reads what it says until `find` has found something.
    pub fn says<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> T {
        loop {
            let Some(line) = self.program.line() else {
                panic!("it ended too early: {:#?}", self.said);
            };
            let found = find(&line);
            self.said.push(line);
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// The address that a server listens at, once it does.
    pub fn listens(&mut self) -> String {
        self.says(|line| line.strip_prefix("listening at ").map(str::to_owned))
    }

    /// The calls of each line that are answered now, at least.
    pub fn answered(&mut self) -> u64 {
        self.says(|line| line.strip_prefix("answered ")?.parse().ok())
    }

    /// Returns when each line has had twenty more calls answered.
    pub fn goes_on(&mut self) {
        let before = self.answered();
        while self.answered() < before + 20 {}
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// Kills it without a chance to say good-bye.
    pub fn kill(self) {
        self.program.kill();
    }

    /// Waits for its end. Its code must be this one, and it must not have leaked buffers.
    pub fn ends(mut self, code: i32) -> Vec<String> {
        self.said.extend(self.program.rest());
        let status = self.program.wait();
        assert_eq!(status.code(), Some(code), "{:#?}", self.said);
        let clean = self
            .said
            .iter()
            .any(|line| line.ends_with(" 0 buffers leaked") || line == "0 buffers leaked");
        assert!(clean, "{:#?}", self.said);
        self.said
    }
}

/// The calls that a caller's lines had answered.
pub fn calls_of(said: &[String]) -> Vec<u64> {
    let answered = |line: &String| {
        let (_, rest) = line.strip_prefix("line ")?.split_once(": ")?;
        rest.split_once(" calls answered")?.0.parse().ok()
    };
    said.iter().filter_map(answered).collect()
}
