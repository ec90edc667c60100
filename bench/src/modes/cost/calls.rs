//! System calls of the measured calls, counted by strace in one more run of this program.
//!
//! Each thread marks where its part begins and ends ([`Tally::Marks`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

#[cfg(doc)]
use crate::contenders::tally::Tally;
use crate::contenders::tally::{Mark, mark_of};

/// System calls by name, which ends with [`WITHOUT_EFFECT`] for those that found nothing.
pub type Calls = BTreeMap<String, u64>;

/// How many of them found nothing, or no room.
pub fn without_effect(calls: &Calls) -> u64 {
    calls.iter().filter(|(name, _)| name.ends_with(WITHOUT_EFFECT)).map(|(_, count)| count).sum()
}

/// Runs a program under strace and counts the system calls between the marks of each side.
pub fn count<const N: usize>(
    program: &Path,
    args: &[String],
    sides: [&str; N],
    folder: &Path,
) -> Result<[Calls; N], String> {
    let out = folder.join("strace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(&out).arg(program).args(args);
    let ran = command.stdin(Stdio::null()).output();
    let ran = ran.map_err(|_| "strace is missing: apt-get install strace".to_owned())?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(format!("strace: {}", said.lines().next().unwrap_or("it failed")));
    }
    let text = fs::read_to_string(&out).map_err(|why| format!("{}: {why}", out.display()))?;
    let counted = sides.map(|side| between(&text, side));
    if counted.iter().any(Option::is_none) {
        return Err("strace did not see the measured part".into());
    }
    Ok(counted.map(Option::unwrap_or_default))
}

/// The system calls of the thread that made the marks of this side, from one to the other.
fn between(text: &str, side: &str) -> Option<Calls> {
    let (begin, end) = (mark_of(side, Mark::Begin), mark_of(side, Mark::End));
    let mut lines = text.lines();
    let thread = lines.find(|line| line.contains(&begin))?.split(' ').next()?;
    let (mut calls, mut is_begun) = (Calls::new(), false);
    for line in lines {
        let Some(call) = line.strip_prefix(thread).and_then(|rest| rest.strip_prefix(' ')) else {
            continue;
        };
        if call.contains(&end) {
            return Some(calls);
        }
        let call = call.trim_start();
        // A call that other threads interrupt has two lines: `futex( <unfinished ...>` and
        // `<... futex resumed>`. The first mark may be such a one. `---` is a signal.
        if call.ends_with("<unfinished ...>") {
            is_begun = true;
            continue;
        }
        let found = match call.strip_prefix("<... ") {
            Some(rest) if is_begun => rest.split_once(" resumed>"),
            Some(_) => None,
            None => call.split_once('('),
        };
        if let Some((name, rest)) = found
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            let suffix = if is_without_effect(name, rest) { WITHOUT_EFFECT } else { "" };
            *calls.entry(format!("{name}{suffix}")).or_default() += 1;
        }
    }
    None
}

/// Whether a call failed with EAGAIN, or waited for events of which there was none.
fn is_without_effect(name: &str, rest: &str) -> bool {
    let result = rest.rsplit_once("= ").map_or("", |(_, result)| result);
    result.starts_with("-1 EAGAIN") || POLLS.contains(&name) && result.starts_with('0')
}

/// Behind the name of a call that found nothing.
const WITHOUT_EFFECT: &str = ":empty";
const POLLS: [&str; 5] = ["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll"];

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let mark = |side, place| format!("statx(AT_FDCWD, \"{}\", 0) = -1", mark_of(side, place));
        [
            "7 mmap(NULL, 4096) = 0x7f".to_owned(),
            format!("7 {}", mark("client", Mark::Begin)),
            format!("8 statx(AT_FDCWD, \"{}\",  <unfinished ...>", mark_of("server", Mark::Begin)),
            "8 <... statx resumed>0) = -1 ENOENT".into(),
            "7 write(1, \"x(\", 2) = 2".into(),
            "8 ppoll([{fd=3}], 1 <unfinished ...>".into(),
            "7 write(1, \"y\", 1) = 1".into(),
            "8 recvfrom(4, 0x7f, 64, MSG_DONTWAIT, NULL, NULL) = -1 EAGAIN (Again)".into(),
            "8 recvfrom(4,  <unfinished ...>".into(),
            "8 <... recvfrom resumed>0x7f, 64) = -1 EAGAIN (Again)".into(),
            "8 recvfrom(4, \"z\", 64) = 1".into(),
            "8 epoll_wait(5, [], 64, 0) = 0".into(),
            "8 epoll_wait(5, [{events=EPOLLIN}], 64, 0) = 1".into(),
            "8 <... ppoll resumed>) = 1 (in [0])".into(),
            "7 --- SIGURG {si_signo=SIGURG} ---".into(),
            "78 read(3, 4) = 4".into(),
            format!("7 {}", mark("client", Mark::End)),
            "7 munmap(0x7f, 4096) = 0".into(),
            format!("8 {}", mark("server", Mark::End)),
        ]
        .join("\n")
    }

    #[test]
    fn calls_between_the_marks_of_a_thread_are_counted_once() {
        let calls = between(&text(), "client").expect("both marks are there");
        assert_eq!(calls.into_iter().collect::<Vec<_>>(), [("write".to_owned(), 2)]);
        let calls = between(&text(), "server").expect("both marks are there");
        assert_eq!(without_effect(&calls), 3);
        let expected = [
            ("epoll_wait", 1),
            ("epoll_wait:empty", 1),
            ("ppoll", 1),
            ("recvfrom", 1),
            ("recvfrom:empty", 2),
        ];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(calls.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn without_both_marks_nothing_is_known() {
        assert_eq!(between(&text(), "witness"), None);
        let cut = text().rsplit_once('\n').expect("lines").0.to_owned();
        assert_eq!(between(&cut, "server"), None);
    }
}
