//! System calls that fail: for a thread, for a command, or one call of a thread after the other;
//! and those that a thread makes.
//!
//! ```text
//!   Denied ── seccomp: ERRNO for some calls ──▶ a thread and what it starts, or a command
//!   Fault ─── seccomp: ask ──▶ the thread that tests: the nth call fails, the others go on
//!   Watched ─ seccomp: ask ──▶ the thread that tests: writes them down
//! ```
//! A filter cannot be removed, so it is on a thread of its own, or in a child.

#![expect(unsafe_code, reason = "seccomp(2) has no safe interface")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use libc::{c_int, c_long};

/// System calls that fail, and their error.
#[derive(Debug, Clone, Copy)]
pub struct Denied<'a> {
    /// Their numbers: `libc::SYS_openat2`.
    pub calls: &'a [c_long],
    /// The error: `libc::ENOSYS`.
    pub errno: c_int,
}

impl Denied<'_> {
    /// Calls `act` on a thread for which they fail, and for the threads that it starts.
    ///
    /// # Panics
    /// If `act` does, or if the kernel has no seccomp.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let filter = self.filter();
        on_thread(move || {
            install(&filter, 0).expect("seccomp(2) is allowed");
            act()
        })
    }

    /// Makes them fail for a command.
    pub fn apply(&self, command: &mut Command) {
        let filter = self.filter();
        // SAFETY: the closure only makes two system calls: it allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || install(&filter, 0).map(drop)) };
    }

    fn filter(&self) -> Vec<libc::sock_filter> {
        let fails = libc::SECCOMP_RET_ERRNO | self.errno as u32;
        filter(self.calls, fails, libc::SECCOMP_RET_ALLOW)
    }
}

/// One system call that fails: the `nth` of a thread, counted from 0. Calls that concern memory,
/// threads and time are not counted, nor is `close`.
#[derive(Debug, Clone, Copy)]
pub struct Fault<'a> {
    /// Its number.
    pub nth: usize,
    /// The error: `libc::EIO`.
    pub errno: c_int,
    /// Other calls that do not fail and are not counted.
    pub spared: &'a [c_long],
}

impl Fault<'_> {
    /// Calls `act` on a thread for which that call fails. Also returns which system call it was;
    /// `None` if `act` makes fewer.
    ///
    /// # Panics
    /// If `act` does, or if the kernel has no seccomp that asks (Linux 5.5).
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> (T, Option<c_long>) {
        let spared = [UNCOUNTED, self.spared].concat();
        let filter = filter(&spared, libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF);
        let (mut count, mut failed) = (0, None);
        let outcome = asking(&filter, act, |asked| {
            let fails = count == self.nth;
            count += 1;
            failed = failed.or(fails.then_some(asked.call.into()));
            fails.then_some(self.errno)
        });
        (outcome, failed)
    }
}

/// System calls that are written down when a thread makes them.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'a> {
    /// Their numbers: `libc::SYS_fsync`.
    pub calls: &'a [c_long],
}

/// A system call that a thread has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its number.
    pub call: c_long,
    /// The file of the descriptor that is its first argument, if that is one.
    pub file: Option<PathBuf>,
}

impl Watched<'_> {
    /// Calls `act` on a thread. Also returns which of the system calls the thread has made, in
    /// their order.
    ///
    /// # Panics
    /// If `act` does, or if the kernel has no seccomp that asks (Linux 5.5).
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> (T, Vec<Made>) {
        let watched = [self.calls, &[END]].concat();
        let filter = filter(&watched, libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_ALLOW);
        let mut made = Vec::new();
        let outcome = asking(&filter, act, |asked| {
            // Threads of a process have the same descriptors.
            let file = format!("/proc/self/fd/{}", asked.arguments[0]);
            made.push(Made { call: asked.call.into(), file: std::fs::read_link(file).ok() });
            None
        });
        (outcome, made)
    }
}

/// Calls `act` on a thread that asks about the system calls of a filter. They have the error that
/// `fails` returns; without one they go on.
fn asking<T: Send>(
    filter: &[libc::sock_filter],
    act: impl FnOnce() -> T + Send,
    fails: impl FnMut(&Asked) -> Option<c_int>,
) -> T {
    let (listening, listener) = channel();
    thread::scope(|scope| {
        let acting = scope.spawn(move || {
            let asks = install(filter, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
            let asks = asks.expect("seccomp(2) is allowed");
            // SAFETY: the descriptor was made just now, and has no other owner.
            let asks = unsafe { OwnedFd::from_raw_fd(asks) };
            listening.send(asks).expect("the other thread waits for it");
            let end = AtEnd;
            let outcome = act();
            drop(end);
            outcome
        });
        answer(&listener.recv().expect("the thread sends it"), fails);
        acting.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Answers a thread until its end.
fn answer(asks: &OwnedFd, mut fails: impl FnMut(&Asked) -> Option<c_int>) {
    loop {
        let mut asked = Asked::default();
        // SAFETY: the request is as long as the kernel's structure.
        let read = retried(|| unsafe {
            libc::ioctl(asks.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &mut asked)
        });
        read.expect("the thread makes calls until its end");
        let is_last = c_long::from(asked.call) == END;
        let error = if is_last { None } else { fails(&asked) };
        let mut reply = Reply { id: asked.id, ..Reply::default() };
        match error {
            Some(errno) => reply.error = -errno,
            None => reply.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        }
        // SAFETY: the reply is as long as the kernel's structure.
        let sent = retried(|| unsafe {
            libc::ioctl(asks.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &mut reply)
        });
        sent.expect("the thread waits for it");
        if is_last {
            return;
        }
    }
}

/// Says by a system call that nothing else is to be counted, also after a panic.
struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        // SAFETY: it has no arguments, and cannot fail.
        unsafe { libc::syscall(END) };
    }
}

/// `struct seccomp_notif`
#[derive(Default)]
#[repr(C)]
struct Asked {
    id: u64,
    thread: u32,
    flags: u32,
    // `struct seccomp_data`
    call: c_int,
    arch: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`
#[derive(Default)]
#[repr(C)]
struct Reply {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Asked>() == size_of::<libc::seccomp_notif>());
const _: () = assert!(size_of::<Reply>() == size_of::<libc::seccomp_notif_resp>());

fn on_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let outcome = thread::scope(|scope| scope.spawn(act).join());
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

fn retried(mut call: impl FnMut() -> c_int) -> io::Result<()> {
    loop {
        let error = match call() {
            0 => return Ok(()),
            _ => io::Error::last_os_error(),
        };
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A program that returns `these` for these calls and `others` for all others.
fn filter(calls: &[c_long], these: u32, others: u32) -> Vec<libc::sock_filter> {
    let step = |code: u32, k: u32, jt: usize| libc::sock_filter {
        code: code as u16,
        jt: u8::try_from(jt).expect("a filter of fewer than 255 calls"),
        jf: 0,
        k,
    };
    // The number of the call is the first word of `struct seccomp_data`.
    let mut steps = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (index, call) in calls.iter().enumerate() {
        let to_last = calls.len() - index;
        steps.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call as u32, to_last));
    }
    steps.extend([others, these].map(|action| step(libc::BPF_RET | libc::BPF_K, action, 0)));
    steps
}

/// Filters the calls of this thread from now on. Allocates nothing.
fn install(filter: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<c_int> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: integers alone.
    let code = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: a program that lives longer than the call, which copies it and changes nothing.
    let made = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &program) };
    if made < 0 { Err(io::Error::last_os_error()) } else { Ok(made as c_int) }
}

/// The last call that is asked about.
const END: c_long = libc::SYS_getppid;
/// What is made for memory, threads and time, at moments that no test determines.
const UNCOUNTED: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_prctl,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn error_of<T>(outcome: io::Result<T>) -> Option<i32> {
        outcome.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn a_denied_call_fails_for_the_thread_and_its_threads_alone() {
        let denied = Denied { calls: &[libc::SYS_mkdirat, libc::SYS_mkdir], errno: libc::ENOTTY };
        let make = || error_of(fs::create_dir("/"));
        let [own, started] = denied.run(|| [make(), on_thread(make)]);
        assert_eq!((own, started, make()), (Some(25), Some(25), Some(libc::EEXIST)));
    }

    #[test]
    fn a_command_is_denied_calls() {
        let mut command = Command::new("/bin/cat");
        command.arg("/dev/null").stderr(std::process::Stdio::null());
        assert!(command.status().expect("it starts").success());
        Denied { calls: &[libc::SYS_read], errno: libc::EIO }.apply(&mut command);
        // The linker cannot read the libraries.
        assert!(!command.status().expect("it starts").success());
    }

    #[test]
    fn calls_are_watched_with_their_files_and_in_their_order() {
        let path = std::env::current_exe().expect("this program");
        let watched = Watched { calls: &[libc::SYS_fsync, libc::SYS_fdatasync] };
        let ((), made) = watched.run(|| {
            let file = fs::File::open(&path).expect("this program");
            file.sync_data().expect("it is there");
            file.sync_all().expect("it is there");
            file.set_len(0).expect_err("it is open for reading");
        });
        let calls = [libc::SYS_fdatasync, libc::SYS_fsync];
        let file = Some(path.canonicalize().expect("it is there"));
        assert_eq!(made, calls.map(|call| Made { call, file: file.clone() }));
    }

    #[test]
    fn each_call_fails_in_turn() {
        let make = || [error_of(fs::create_dir("/")), error_of(fs::read_link("/"))];
        let (exists, is_none) = (Some(libc::EEXIST), Some(libc::EINVAL));
        for (nth, expected) in
            [[Some(libc::EIO), is_none], [exists, Some(libc::EIO)], [exists, is_none]]
                .into_iter()
                .enumerate()
        {
            let (outcome, failed) = Fault { nth, errno: libc::EIO, spared: &[] }.run(make);
            assert_eq!(outcome, expected, "{nth}");
            assert_eq!(failed.is_some(), nth < 2);
            let spared = &[libc::SYS_mkdir, libc::SYS_mkdirat];
            let (outcome, failed) = Fault { nth, errno: libc::EIO, spared }.run(make);
            assert_eq!((outcome[0], failed.is_some()), (exists, nth < 1));
        }
    }
}
