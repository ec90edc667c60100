//! What the server needs of the system, tried at its start: system calls, capabilities, and the
//! identities of its callers.
//!
//! A need that is found out during a call may have been met halfway: a file is made and cannot be
//! opened, an identity is assumed and cannot be left. So all needs are one list, and a server that
//! lacks one does not start. A system call is tried with arguments that do nothing: an empty name,
//! or a descriptor without data.

use std::fmt;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Timespec,
    Timestamps, UTIME_NOW, Uid, accessat, chmodat, chownat, fdatasync, fstatvfs, fsync, ftruncate,
    linkat, mkdirat, mknodat, open, openat2, readlinkat_raw, renameat, seek, symlinkat, syncfs,
    unlinkat, utimensat,
};
use rustix::io::{Errno, pread, pwritev};
use rustix::thread::{
    CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use rpcrdma::shm::own_user;

use crate::attributes::Attributes;
use crate::credentials::{Credentials, ROOT};

/// Tries what the server needs to export a directory.
///
/// # Errors
/// If the directory cannot be opened, or what the system refuses.
pub fn check(directory: &Path) -> Result<(), NeedError> {
    let hold = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = open(directory, hold, Mode::empty());
    let directory =
        opened.map_err(|error| NeedError::Directory(directory.display().to_string(), error))?;
    all_met(|| unmet(&directory))
}

/// Tries all needs on a thread that ends: identities are tried, too.
fn all_met(unmet: impl FnOnce() -> Vec<Unmet> + Send) -> Result<(), NeedError> {
    match std::thread::scope(|scope| scope.spawn(unmet).join()) {
        Ok(unmet) if unmet.is_empty() => Ok(()),
        Ok(unmet) => Err(NeedError::Unmet(unmet)),
        // The panic was reported.
        Err(_) => Err(NeedError::Panicked),
    }
}

/// Why the server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum NeedError {
    /// The directory cannot be opened.
    Directory(String, Errno),
    /// The system refuses what the server needs.
    Unmet(Vec<Unmet>),
    /// Trying has panicked: what the system refuses is not known.
    Panicked,
}

/// A need that is not met.
#[derive(Debug)]
pub struct Unmet {
    need: &'static Need,
    error: Errno,
}

#[derive(Debug)]
struct Need {
    name: &'static str,
    remedy: &'static str,
    /// Whether only a server that runs as root needs it.
    is_roots: bool,
    attempt: fn(&OwnedFd) -> rustix::io::Result<()>,
}

impl fmt::Display for NeedError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NeedError::Directory(path, error) => write!(out, "{path}: {error}"),
            NeedError::Unmet(unmet) => {
                write!(out, "the system refuses what the server needs:")?;
                unmet.iter().try_for_each(|Unmet { need, error }| {
                    write!(out, "\n  {}: {error}; {}", need.name, need.remedy)
                })
            }
            NeedError::Panicked => write!(
                out,
                "the check of what the server needs of the system has panicked, which is a defect \
                 of this program"
            ),
        }
    }
}

impl std::error::Error for NeedError {}

fn unmet(directory: &OwnedFd) -> Vec<Unmet> {
    let is_root = own_user() == ROOT;
    let tried = NEEDS.iter().filter(|need| is_root || !need.is_roots);
    let unmet = tried.filter_map(|need| {
        let error = (need.attempt)(directory).err()?;
        Some(Unmet { need, error })
    });
    unmet.collect()
}

/// A system call that any server makes.
const fn call(name: &'static str, attempt: fn(&OwnedFd) -> rustix::io::Result<()>) -> Need {
    Need { name, remedy: ALLOW, is_roots: false, attempt }
}

const ALLOW: &str = "allow this system call (seccomp; SystemCallFilter= of systemd; the profile of \
                     a container)";
const IDENTITY: &str = "a server that runs as root assumes the users and groups of its callers: \
                        start it with CAP_SETUID and CAP_SETGID, and in a user namespace that maps \
                        them and 65534 (unshare -r maps root alone); or start it as another user, \
                        who then executes all calls";

/// All needs. The identities come last.
static NEEDS: [Need; 28] = [
    Need {
        remedy: "the server opens files by it, so that no path leaves the exported directory: \
                 it needs Linux 5.8, and a filter of system calls that allows it \
                 (RestrictSUIDSGID= of systemd does not)",
        ..call("openat2(2)", |it| {
            let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            openat2(it, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside).map(drop)
        })
    },
    Need {
        name: "/proc",
        remedy: "the server opens files again by their descriptors: mount the file system proc \
                 there, also in a container or chroot",
        is_roots: false,
        attempt: |it| {
            let path = format!("/proc/self/fd/{}", it.as_raw_fd());
            open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map(drop)
        },
    },
    call("geteuid(2)", |_| match own_user().wrapping_neg() {
        // What a forbidden call returns is a negative error.
        error @ 1..=ERRORS_MAX => Err(Errno::from_raw_os_error(error as i32)),
        _ => Ok(()),
    }),
    call("statx(2)", |it| Attributes::of(it).map(drop)),
    call("fstatfs(2)", |it| fstatvfs(it).map(drop)),
    call("mkdirat(2)", |it| no_name(mkdirat(it, c"", Mode::empty()))),
    call("mknodat(2)", |it| no_name(mknodat(it, c"", FileType::Fifo, Mode::empty(), 0))),
    call("symlinkat(2)", |it| no_name(symlinkat(c"target", it, c""))),
    call("linkat(2)", |it| no_name(linkat(it, c"", it, c"", AtFlags::empty()))),
    call("renameat(2)", |it| no_name(renameat(it, c"", it, c""))),
    call("unlinkat(2)", |it| no_name(unlinkat(it, c"", AtFlags::empty()))),
    call("fchmodat(2)", |it| no_name(chmodat(it, c"", Mode::empty(), AtFlags::empty()))),
    call("fchownat(2)", |it| no_name(chownat(it, c"", None, None, AtFlags::empty()))),
    call("utimensat(2)", |it| no_name(utimensat(it, c"", &NOW, AtFlags::empty()))),
    call("readlinkat(2)", |it| match readlinkat_raw(it, c"", &mut [0_u8; 1][..]) {
        Err(Errno::INVAL) => Ok(()),
        read => no_name(read),
    }),
    call("getdents64(2)", |it| {
        let mut buffer = Vec::with_capacity(1024);
        let mut entries = RawDir::new(it, buffer.spare_capacity_mut());
        entries.next().map_or(Ok(()), |entry| no_data(entry.map(drop)))
    }),
    call("lseek(2)", |it| no_data(seek(it, SeekFrom::Start(0)))),
    call("pread64(2)", |it| no_data(pread(it, &mut [0_u8; 1][..], 0))),
    call("pwritev(2)", |it| no_data(pwritev(it, &[IoSlice::new(&[0])], 0))),
    call("ftruncate(2)", |it| no_data(ftruncate(it, 0))),
    call("fsync(2)", |it| no_data(fsync(it))),
    call("fdatasync(2)", |it| no_data(fdatasync(it))),
    call("syncfs(2)", |it| no_data(syncfs(it))),
    Need {
        name: "CAP_DAC_OVERRIDE",
        remedy: "a server that runs as root opens files for callers that own them: start it with \
                 this capability, or as another user, who then executes all calls",
        is_roots: true,
        attempt: |_| {
            let has = capabilities(None)?.effective.contains(CapabilitySet::DAC_OVERRIDE);
            if has { Ok(()) } else { Err(Errno::PERM) }
        },
    },
    Need {
        name: "setgroups(2), CAP_SETGID",
        remedy: IDENTITY,
        is_roots: true,
        attempt: |_| set_thread_groups(&[]),
    },
    Need {
        name: "setresgid(2), CAP_SETGID",
        remedy: IDENTITY,
        is_roots: true,
        attempt: |_| {
            set_thread_res_gid(None, Some(Gid::from_raw(ANONYMOUS.gid)), None)?;
            set_thread_res_gid(None, Some(Gid::ROOT), None)
        },
    },
    Need {
        name: "setresuid(2), CAP_SETUID",
        remedy: IDENTITY,
        is_roots: true,
        attempt: |_| {
            set_thread_res_uid(None, Some(Uid::from_raw(ANONYMOUS.uid)), None)?;
            set_thread_res_uid(None, Some(Uid::ROOT), None)
        },
    },
    Need {
        remedy: "the server asks the kernel for the rights of its callers: it needs Linux 5.8, and \
                 a filter of system calls that allows it",
        ..call("faccessat2(2)", |_| {
            // Without it, and for the user that the process runs as, faccessat(2) does as well.
            let is_other = own_user() == ROOT
                && set_thread_res_uid(None, Some(Uid::from_raw(ANONYMOUS.uid)), None).is_ok();
            let asked = accessat(CWD, c"/", Access::EXISTS, AtFlags::EACCESS);
            if is_other {
                set_thread_res_uid(None, Some(Uid::ROOT), None)?;
            }
            asked
        })
    },
];

const ANONYMOUS: Credentials = Credentials::ANONYMOUS;
/// The largest number of an error.
const ERRORS_MAX: u32 = 4095;
const NOW: Timestamps = {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Timestamps { last_access: now, last_modification: now }
};

/// The outcome of a call with an empty name: the kernel has it if there is no such file.
fn no_name<T>(outcome: rustix::io::Result<T>) -> rustix::io::Result<()> {
    unless(Errno::NOENT, outcome)
}

/// The outcome of a call with a descriptor that only identifies a file.
fn no_data<T>(outcome: rustix::io::Result<T>) -> rustix::io::Result<()> {
    unless(Errno::BADF, outcome)
}

fn unless<T>(expected: Errno, outcome: rustix::io::Result<T>) -> rustix::io::Result<()> {
    match outcome {
        Err(error) if error != expected => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use libc::c_long;
    use rpcrdma_testing::denied::Denied;
    use rpcrdma_tests::folder::Folder;

    use super::*;
    use crate::export::{DataLimits, Export};
    use crate::tests::not_as_root;
    use crate::{Options, Squash};

    const CALLS: [(&str, c_long); 23] = [
        ("openat2", libc::SYS_openat2),
        ("geteuid", libc::SYS_geteuid),
        ("statx", libc::SYS_statx),
        ("fstatfs", libc::SYS_fstatfs),
        ("mkdirat", libc::SYS_mkdirat),
        ("mknodat", libc::SYS_mknodat),
        ("symlinkat", libc::SYS_symlinkat),
        ("linkat", libc::SYS_linkat),
        ("renameat", libc::SYS_renameat),
        ("unlinkat", libc::SYS_unlinkat),
        ("fchmodat", libc::SYS_fchmodat),
        ("fchownat", libc::SYS_fchownat),
        ("utimensat", libc::SYS_utimensat),
        ("readlinkat", libc::SYS_readlinkat),
        ("getdents64", libc::SYS_getdents64),
        ("lseek", libc::SYS_lseek),
        ("pread64", libc::SYS_pread64),
        ("pwritev", libc::SYS_pwritev),
        ("ftruncate", libc::SYS_ftruncate),
        ("fsync", libc::SYS_fsync),
        ("fdatasync", libc::SYS_fdatasync),
        ("syncfs", libc::SYS_syncfs),
        ("faccessat2", libc::SYS_faccessat2),
    ];
    const ROOTS: [(&str, c_long); 3] = [
        ("setgroups", libc::SYS_setgroups),
        ("setresgid", libc::SYS_setresgid),
        ("setresuid", libc::SYS_setresuid),
    ];

    #[test]
    fn each_call_that_is_refused_is_named_with_the_error_and_a_remedy() {
        let folder = Folder::new();
        check(&folder.join("")).expect("the system has all");
        let is_root = rustix::process::geteuid().is_root();
        let calls = CALLS.iter().chain(ROOTS.iter().filter(|_| is_root));
        for (name, call) in calls {
            for errno in [libc::ENOSYS, libc::EPERM] {
                // For the user that the process runs as there is faccessat.
                if *name == "faccessat2" && !is_root && errno == libc::ENOSYS {
                    continue;
                }
                let denied = Denied { calls: &[*call], errno };
                let unmet = denied.run(|| check(&folder.join(""))).expect_err(name).to_string();
                let error = Errno::from_raw_os_error(errno);
                assert!(unmet.contains(&format!("\n  {name}(2)")), "{unmet}");
                assert!(unmet.contains(&format!(": {error}; ")), "{unmet}");
                assert_eq!(unmet.lines().count(), 2, "nothing else is refused: {unmet}");
            }
        }
    }

    #[test]
    fn every_need_is_tried() {
        // The others are a capability and /proc: the tests of the program refuse these.
        assert_eq!(NEEDS.len(), CALLS.len() + ROOTS.len() + 2);
    }

    #[test]
    fn trying_changes_nothing() {
        let folder = Folder::new();
        let state = || {
            let it = std::fs::metadata(folder.join("")).expect("ours");
            (std::fs::read_dir(folder.join("")).expect("ours").count(), it.modified().ok())
        };
        let before = state();
        check(&folder.join("")).expect("the system has all");
        assert_eq!(state(), before);
    }

    #[test]
    fn a_check_that_panics_is_not_passed() {
        let error = all_met(|| panic!("as if an attempt did")).expect_err("nothing is known");
        assert!(error.to_string().contains("has panicked"), "{error}");
        assert!(all_met(Vec::new).is_ok());
    }

    #[test]
    fn a_directory_that_may_not_be_listed_says_nothing_of_proc() {
        not_as_root(|| {
            let folder = Folder::new();
            let export = folder.join("export");
            std::fs::create_dir(&export).expect("ours");
            std::fs::set_permissions(&export, PermissionsExt::from_mode(0o300)).expect("ours");
            check(&export).expect("the system has all");
            let options = Options {
                directory: export,
                key: folder.join("key"),
                squash: Squash::Root,
                is_async: true,
                workers: 1,
            };
            let limits = DataLimits { read_max: 4096, write_max: 4096, list_max: 4096 };
            let refused = Export::open(&options, limits).expect_err("a search lists it");
            assert!(refused.contains("export: the server must be able to list it"), "{refused}");
        });
    }

    #[test]
    fn a_directory_that_does_not_exist_is_named() {
        let folder = Folder::new();
        let error = check(&folder.join("missing")).expect_err("it is missing").to_string();
        assert!(error.contains("missing: No such file"), "{error}");
    }
}
