//! The rights of callers are those of the kernel: random cases, each also tried by the same user.
//!
//! ```text
//!   export/N/  the case, changed by the procedures ── with the identity of the caller
//!   twin/N/    the same, changed by system calls ──── on a thread of the caller
//! ```
//! A case is a directory with a file: owners, groups, modes, POSIX ACLs, capabilities that root
//! lacks, and whether the file system is read-only. Statuses, granted rights and the attributes of
//! the two directories are compared.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use arrayvec::ArrayVec;
use nfs3_types::nfs3::{
    ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ, ACCESS3args,
    CREATE3args, LINK3args, LOOKUP3args, MKDIR3args, MKNOD3args, Nfs3Option, READ3args,
    READDIR3args, READDIRPLUS3args, REMOVE3args, RENAME3args, SETATTR3args, SYMLINK3args,
    cookieverf3, createhow3, mknoddata3, nfs_fh3, nfspath3, nfstime3, sattr3, set_atime, set_mtime,
    stable_how, symlinkdata3,
};
use nfs3_types::xdr_codec::{Opaque, Pack};
use rpcrdma::ulb::nfs3;
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::nfs::at;
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags, accessat,
    chmodat, chownat, ftruncate, linkat, mkdirat, mknodat, open, openat, renameat, setxattr,
    statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::at_once;
use crate::call::{CallOutcome, CallTask, WriteData};
use crate::changes::timespec;
use crate::credentials::{Credentials, Identity};
use crate::data::{self, WriteHead};
use crate::export::{DataLimits, Export};
use crate::status::{Status, status};
use crate::{Options, Squash, directory, files, names};

#[test]
fn five_thousand_random_cases_get_what_the_kernel_gives_the_same_user() {
    const TEST: &str = "tests::kernel_rights::\
        five_thousand_random_cases_get_what_the_kernel_gives_the_same_user";
    if let Ok(base) = std::env::var(BASE) {
        return cases(Path::new(&base));
    }
    if !rustix::process::geteuid().is_root() {
        return skip("kernel_rights (needs root): no rights are compared with the kernel's");
    }
    let folder = Folder::new();
    // In a mount namespace of its own, for a file system that becomes read-only.
    let program = std::env::current_exe().expect("this program has a path");
    let mut child = Command::new("unshare");
    child.args(["--mount", "--propagation", "private"]).arg(program);
    child.args([TEST, "--exact", "--nocapture"]).env(BASE, folder.join("files"));
    let output = child.output().expect("util-linux is installed");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    if said.contains("SKIPPED") {
        skip("acls (the file system has none): no ACL is compared with the kernel's");
    }
}

/// The folder for the child.
const BASE: &str = "RPCRDMA_TEST_KERNEL_RIGHTS";
const SEED: u64 = 0x6e66_7333;
/// Blocks of cases with one state of the file system, and the cases of each.
const BLOCKS: u64 = 100;
const CASES: u64 = 50;

fn skip(what: &str) {
    // Not eprintln!: the harness would keep it to itself.
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}");
}

fn cases(base: &Path) {
    fs::create_dir(base).expect("ours");
    // The keys of the servers are beside it.
    let beside = base.parent().expect("it is in a folder");
    fs::set_permissions(beside, PermissionsExt::from_mode(0o777)).expect("ours");
    mount(&["-t", "tmpfs", "none"], base);
    let has_acls = {
        fs::write(base.join("probe"), "").expect("written");
        setxattr(base.join("probe"), ACCESS_ACL, &acl(&mut Draw(1)), XattrFlags::empty()).is_ok()
    };
    if !has_acls {
        skip("acls");
    }
    let mut draw = Draw(SEED);
    for block in 0..BLOCKS {
        let is_own = block % 5 == 4;
        let is_read_only = draw.one_in(4);
        for side in SIDES {
            fs::create_dir(base.join(side)).expect("ours");
        }
        let cases: Vec<Case> = (0..CASES).map(|_| Case::draw(&mut draw, has_acls)).collect();
        for (number, case) in cases.iter().enumerate() {
            SIDES.iter().for_each(|side| case.make(&base.join(side).join(number.to_string())));
        }
        if is_read_only {
            mount(&["-o", "remount,ro"], base);
        }
        let world = World { base, is_own, is_read_only };
        for (number, case) in cases.iter().enumerate() {
            let says = || format!("block {block}, case {number}: {world:?}\n{case:?}\n");
            world.try_case(number, case, &says);
        }
        if is_read_only {
            mount(&["-o", "remount,rw"], base);
        }
        for side in SIDES {
            fs::remove_dir_all(base.join(side)).expect("ours");
        }
    }
}

fn mount(arguments: &[&str], at: &Path) {
    let status = Command::new("mount").args(arguments).arg(at).status();
    assert!(status.expect("util-linux is installed").success(), "{arguments:?}");
}

const SIDES: [&str; 2] = ["export", "twin"];
const ACCESS_ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// Marsaglia's generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// Often with a special bit, and with rights that are missing.
    fn mode(&mut self) -> u32 {
        let special = if self.one_in(3) { self.below(8) as u32 } else { 0 };
        let mode = match self.below(3) {
            0 => self.below(0o1000) as u32,
            1 => self.of(&[0o755, 0o644, 0o777, 0o700, 0o711, 0o111]),
            _ => 0o777 & !(1 << self.below(9)),
        };
        special << 9 | mode
    }
}

const UIDS: [u32; 4] = [0, 1001, 1002, 1003];
const GIDS: [u32; 4] = [0, 2001, 2002, 2003];

/// An ACL as the extended attribute has it: for the owner, a user, the group, a group, the mask and
/// others.
fn acl(draw: &mut Draw) -> Vec<u8> {
    let none = u32::MAX;
    let [user, group] = [draw.of(&UIDS), draw.of(&GIDS)];
    let entries = [(1_u16, none), (2, user), (4, none), (8, group), (16, none), (32, none)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, id) in entries {
        let rights = draw.below(8) as u16;
        bytes.extend([tag, rights].map(u16::to_le_bytes).concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The rights to a file.
#[derive(Debug)]
struct Guards {
    uid: u32,
    gid: u32,
    mode: u32,
    acls: Vec<(&'static str, Vec<u8>)>,
}

impl Guards {
    fn draw(draw: &mut Draw, has_acls: bool, is_directory: bool) -> Guards {
        let mut acls = Vec::new();
        if has_acls && draw.one_in(2) {
            acls.push((ACCESS_ACL, acl(draw)));
        }
        if has_acls && is_directory && draw.one_in(4) {
            acls.push((DEFAULT_ACL, acl(draw)));
        }
        Guards { uid: draw.of(&UIDS), gid: draw.of(&GIDS), mode: draw.mode(), acls }
    }

    fn set(&self, path: &Path, is_link: bool) {
        std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid)).expect("root may");
        if is_link {
            return;
        }
        // An ACL replaces a part of the mode.
        fs::set_permissions(path, PermissionsExt::from_mode(self.mode)).expect("root may");
        for (name, value) in &self.acls {
            setxattr(path, *name, value, XattrFlags::empty()).expect("there are ACLs");
        }
    }
}

/// What is in the directory of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
    Fifo,
}

/// What the caller changes.
#[derive(Debug, Clone, Copy)]
enum Change {
    Mode(u32),
    Owner(u32),
    Group(u32),
    Length(u64),
    LengthAndMode(u64, u32),
    Time,
    Create(u32),
    MakeDirectory(u32),
    MakeLink,
    MakeFifo(u32),
    Remove,
    RemoveDirectory,
    Rename,
    Link,
}

#[derive(Debug)]
struct Case {
    directory: Guards,
    file: Guards,
    kind: Kind,
    caller: Credentials,
    /// What root of the server lacks.
    lacks: CapabilitySet,
    change: Change,
}

impl Case {
    fn draw(draw: &mut Draw, has_acls: bool) -> Case {
        let kind =
            draw.of(&[Kind::File, Kind::File, Kind::File, Kind::Directory, Kind::Link, Kind::Fifo]);
        let mut groups = ArrayVec::new();
        groups.extend((0..draw.below(3)).map(|_| draw.of(&GIDS)));
        let mode = draw.mode();
        let length = draw.below(8) as u64;
        let change = match draw.below(14) {
            0 => Change::Mode(mode),
            1 => Change::Owner(draw.of(&UIDS)),
            2 => Change::Group(draw.of(&GIDS)),
            3 => Change::Length(length),
            4 => Change::LengthAndMode(length, mode),
            5 => Change::Time,
            6 => Change::Create(mode),
            7 => Change::MakeDirectory(mode),
            8 => Change::MakeLink,
            9 => Change::MakeFifo(mode),
            10 => Change::Remove,
            11 => Change::RemoveDirectory,
            12 => Change::Rename,
            _ => Change::Link,
        };
        Case {
            directory: Guards::draw(draw, has_acls, true),
            file: Guards::draw(draw, has_acls && kind != Kind::Link, kind == Kind::Directory),
            kind,
            caller: Credentials { uid: draw.of(&UIDS), gid: draw.of(&GIDS), groups },
            lacks: LACKED.into_iter().filter(|_| draw.one_in(3)).collect(),
            change,
        }
    }

    fn make(&self, path: &Path) {
        fs::create_dir(path).expect("root may");
        let file = path.join("file");
        match self.kind {
            Kind::File => fs::write(&file, "data").expect("root may"),
            Kind::Directory => fs::create_dir(&file).expect("root may"),
            Kind::Link => std::os::unix::fs::symlink("target", &file).expect("root may"),
            Kind::Fifo => {
                mknodat(CWD, &file, FileType::Fifo, Mode::RUSR, 0).expect("root may");
            }
        }
        self.file.set(&file, self.kind == Kind::Link);
        self.directory.set(path, false);
    }
}

/// A block of cases.
#[derive(Debug)]
struct World<'a> {
    base: &'a Path,
    /// Whether the server runs as another user than root.
    is_own: bool,
    is_read_only: bool,
}

/// The user of a server that does not run as root.
fn own_user() -> Credentials {
    Credentials { uid: UIDS[1], gid: GIDS[1], groups: ArrayVec::new() }
}

/// Gives the calling thread an identity. Root keeps that of the test, as the server does.
fn become_user(who: &Credentials) {
    if who.uid == 0 {
        return;
    }
    let groups: Vec<Gid> = who.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups).expect("root may");
    set_thread_res_gid(None, Some(Gid::from_raw(who.gid)), None).expect("root may");
    set_thread_res_uid(None, Some(Uid::from_raw(who.uid)), None).expect("root may");
}

fn give_up(lacks: CapabilitySet) {
    let mut sets = capabilities(None).expect("those of this thread");
    sets.effective -= lacks;
    sets.permitted -= lacks;
    set_capabilities(None, sets).expect("less is allowed");
}

/// Capabilities that the server needs for root of a client alone.
const LACKED: [CapabilitySet; 4] =
    [CapabilitySet::CHOWN, CapabilitySet::FOWNER, CapabilitySet::FSETID, CapabilitySet::MKNOD];

type Done = Result<(), Status>;

/// What a caller gets.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    lookups: [Done; 3],
    accesses: [u32; 2],
    list: Done,
    /// Whether READDIRPLUS has attributes.
    attributes: bool,
    read: Done,
    write: Done,
    change: Done,
}

impl World<'_> {
    fn try_case(&self, number: usize, case: &Case, says: &dyn Fn() -> String) {
        let [served, twin] = SIDES.map(|side| self.base.join(side).join(number.to_string()));
        let caller = if self.is_own { own_user() } else { case.caller.clone() };
        let by_kernel = on_thread(|| {
            give_up(case.lacks);
            let local = Local::open(&twin, case, self, &caller);
            become_user(&caller);
            local.got()
        });
        let Some(by_kernel) = by_kernel else { return };
        let by_server = on_thread(|| {
            give_up(case.lacks);
            if self.is_own {
                become_user(&own_user());
            }
            let served = Served::open(self, &served, case, caller);
            served.got()
        });
        assert_eq!(by_server, by_kernel, "left: the server; right: the kernel\n{}", says());
        assert_eq!(state(&served), state(&twin), "left: the server; right: the kernel\n{}", says());
    }
}

fn on_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let outcome = std::thread::scope(|scope| scope.spawn(act).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The names below a directory with their attributes, and those of the directory.
fn state(directory: &Path) -> Vec<(PathBuf, [u64; 5])> {
    let mut found = vec![directory.to_path_buf()];
    found.extend(fs::read_dir(directory).expect("root may").map(|it| it.expect("root may").path()));
    found.sort();
    let entries = found.into_iter().map(|path| {
        let it = fs::symlink_metadata(&path).expect("root may");
        let numbers = [it.mode().into(), it.uid().into(), it.gid().into(), it.len(), it.nlink()];
        (path.strip_prefix(directory).expect("below it").to_path_buf(), numbers)
    });
    entries.collect()
}

/// The twin of a case, for system calls.
struct Local<'a> {
    path: &'a Path,
    case: &'a Case,
    world: &'a World<'a>,
    caller: &'a Credentials,
    /// Opened by root, as handles are used without a right to the directories above.
    directory: OwnedFd,
    file: OwnedFd,
    /// The file, opened by root to read and to write.
    data: [Option<OwnedFd>; 2],
}

impl Local<'_> {
    fn open<'a>(
        path: &'a Path,
        case: &'a Case,
        world: &'a World<'_>,
        caller: &'a Credentials,
    ) -> Local<'a> {
        let hold = OFlags::PATH | OFlags::NOFOLLOW;
        let held = |path: &Path| open(path, hold, Mode::empty()).expect("root may");
        let data = [OFlags::RDONLY, OFlags::WRONLY].map(|how| {
            let is_file = case.kind == Kind::File;
            is_file.then(|| open(path.join("file"), how, Mode::empty()).ok()).flatten()
        });
        let (directory, file) = (held(path), held(&path.join("file")));
        Local { path, case, world, caller, directory, file, data }
    }

    fn proc(fd: &OwnedFd) -> PathBuf {
        format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
    }

    /// The rights that the calling thread has, as bits of ACCESS.
    fn access(fd: &OwnedFd, kind: Kind) -> u32 {
        let path = Local::proc(fd);
        let has = |how| match open(&path, how | OFlags::NONBLOCK, Mode::empty()) {
            // No process reads the FIFO.
            Ok(_) | Err(Errno::NXIO) => true,
            Err(_) => false,
        };
        let asks = |how| accessat(CWD, &path, how, AtFlags::EACCESS).is_ok();
        let change = ACCESS3_MODIFY | ACCESS3_EXTEND;
        let (read, write, search) = match kind {
            Kind::File | Kind::Fifo => {
                let executes = asks(Access::EXEC_OK);
                (has(OFlags::RDONLY), has(OFlags::WRONLY), executes)
            }
            Kind::Directory => {
                let probe = path.join("probe");
                let makes = mkdirat(CWD, &probe, Mode::empty()).is_ok();
                if makes {
                    unlinkat(CWD, &probe, AtFlags::REMOVEDIR).expect("it was made");
                }
                (has(OFlags::RDONLY), makes, statat(CWD, path.join("."), AtFlags::empty()).is_ok())
            }
            // Its mode is that of every link.
            Kind::Link => return 0,
        };
        let searching = if kind == Kind::Directory { ACCESS3_LOOKUP } else { ACCESS3_EXECUTE };
        [(read, ACCESS3_READ), (write, change), (search, searching)]
            .iter()
            .filter_map(|(has, bits)| has.then_some(*bits))
            .fold(0, |all, bits| all | bits)
    }

    /// `None` if the server cannot have the handle of the file.
    fn got(&self) -> Option<Got> {
        let stats = |name: &str| {
            let found = statat(CWD, self.path.join(name), AtFlags::SYMLINK_NOFOLLOW);
            found.map(drop).map_err(status)
        };
        let lookups = ["file", ".", ".."].map(stats);
        if self.world.is_own && lookups[0].is_err() {
            return None;
        }
        let list = OFlags::RDONLY | OFlags::DIRECTORY;
        let list = open(self.path, list, Mode::empty()).map(drop).map_err(status);
        Some(Got {
            lookups,
            accesses: [
                Local::access(&self.directory, Kind::Directory),
                Local::access(&self.file, self.case.kind),
            ],
            list,
            attributes: list.is_ok() && lookups[0].is_ok(),
            read: self.read(),
            write: self.write(),
            change: self.change(),
        })
    }

    fn owns(&self) -> bool {
        self.caller.uid == self.case.file.uid
    }

    /// The owner may, and with `executes` so may a caller that may execute the file; a server that
    /// does not run as root then changes the mode for a moment.
    fn unless_own(&self, outcome: Result<(), Errno>, executes: bool) -> Done {
        let may = match self.world.is_own {
            false => self.owns() || executes,
            true => self.owns() && !self.world.is_read_only,
        };
        match outcome {
            Err(Errno::ACCESS) if may => Ok(()),
            outcome => outcome.map_err(status),
        }
    }

    fn has_data(&self) -> Done {
        match self.case.kind {
            Kind::File => Ok(()),
            Kind::Directory => Err(Status::NFS3ERR_ISDIR),
            Kind::Link | Kind::Fifo => Err(Status::NFS3ERR_INVAL),
        }
    }

    fn read(&self) -> Done {
        self.has_data()?;
        let path = Local::proc(&self.file);
        let executes = accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS);
        let opened = open(&path, OFlags::RDONLY, Mode::empty()).map(drop);
        self.unless_own(opened, executes.is_ok())
    }

    fn write(&self) -> Done {
        self.has_data()?;
        let opened = open(Local::proc(&self.file), OFlags::WRONLY, Mode::empty()).map(drop);
        self.unless_own(opened, false)?;
        let file = self.data[1].as_ref().ok_or(Status::NFS3ERR_ROFS)?;
        rustix::io::pwrite(file, b"x", 0).map(drop).map_err(status)
    }

    fn cut(&self, length: u64) -> Done {
        let path = Local::proc(&self.file);
        let opened = open(&path, OFlags::WRONLY, Mode::empty()).map(drop);
        self.unless_own(opened, false)?;
        let file = self.data[1].as_ref().ok_or(Status::NFS3ERR_ROFS)?;
        ftruncate(file, length).map_err(status)
    }

    fn set_mode(&self, mode: u32) -> Done {
        if self.case.kind == Kind::Link {
            return Ok(());
        }
        chmodat(CWD, Local::proc(&self.file), Mode::from_raw_mode(mode), AtFlags::empty())
            .map_err(status)
    }

    fn change(&self) -> Done {
        let (file, at) = (Local::proc(&self.file), |name: &str| self.path.join(name));
        let made = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let outcome = match self.case.change {
            Change::Mode(mode) => return self.set_mode(mode),
            Change::Owner(uid) => {
                chownat(CWD, file, Some(Uid::from_raw(uid)), None, AtFlags::empty())
            }
            Change::Group(gid) => {
                chownat(CWD, file, None, Some(Gid::from_raw(gid)), AtFlags::empty())
            }
            Change::Length(_) | Change::LengthAndMode(..) if self.case.kind != Kind::File => {
                return Ok(());
            }
            Change::Length(length) => return self.cut(length),
            Change::LengthAndMode(length, mode) => {
                // A caller that may not do one does not get the other.
                let opened = open(&file, OFlags::WRONLY, Mode::empty()).map(drop);
                self.unless_own(opened, false)?;
                self.set_mode(mode)?;
                let file = self.data[1].as_ref().ok_or(Status::NFS3ERR_ROFS)?;
                ftruncate(file, length).map_err(status)?;
                return self.set_mode(mode);
            }
            Change::Time => utimensat(CWD, file, &times(), AtFlags::empty()),
            Change::Create(mode) => {
                openat(CWD, at("new"), made, Mode::from_raw_mode(mode)).map(drop)
            }
            Change::MakeDirectory(mode) => mkdirat(CWD, at("new"), Mode::from_raw_mode(mode)),
            Change::MakeLink => symlinkat("target", CWD, at("new")),
            Change::MakeFifo(mode) => {
                mknodat(CWD, at("new"), FileType::Fifo, Mode::from_raw_mode(mode), 0)
            }
            Change::Remove => unlinkat(CWD, at("file"), AtFlags::empty()),
            Change::RemoveDirectory => unlinkat(CWD, at("file"), AtFlags::REMOVEDIR),
            Change::Rename => renameat(CWD, at("file"), CWD, at("new")),
            Change::Link => linkat(CWD, file, CWD, at("new"), AtFlags::SYMLINK_FOLLOW),
        };
        outcome.map_err(status)
    }
}

fn times() -> Timestamps {
    let time = timespec(TIME);
    Timestamps { last_access: time, last_modification: time }
}

const TIME: nfstime3 = nfstime3 { seconds: 1_000_000_000, nseconds: 5 };

/// The case, for the procedures.
struct Served<'a> {
    export: Export,
    who: Identity,
    case: &'a Case,
    directory: nfs_fh3,
    file: nfs_fh3,
}

impl Served<'_> {
    fn open<'a>(world: &World<'_>, path: &Path, case: &'a Case, caller: Credentials) -> Served<'a> {
        let limits = DataLimits { read_max: 1 << 20, write_max: 1 << 20, list_max: 1 << 16 };
        let options = Options {
            directory: world.base.join("export"),
            key: world.base.with_file_name(if world.is_own { "own-key" } else { "key" }),
            squash: Squash::None,
            is_async: true,
            workers: 0,
        };
        let export = Export::open(&options, limits).expect("a directory");
        let who = export.policy().identity(&crate::credentials::Caller::Sys(caller));
        let nodes = export.nodes();
        let name = path.file_name().expect("a number").as_encoded_bytes();
        let directory = nodes.look_up(nodes.root(), name).expect("it was made");
        let file = nodes.look_up(&directory, b"file").expect("it was made");
        let (directory, file) = (export.handle(&directory), export.handle(&file));
        Served { export, who, case, directory, file }
    }

    fn got(&self) -> Got {
        let Served { export, who, .. } = self;
        let lookups = ["file", ".", ".."].map(|name| {
            let what = at(&self.directory, name.as_bytes());
            names::lookup(export, who, &LOOKUP3args { what }).map(drop).map_err(|it| it.0)
        });
        let accesses = [
            self.access(&self.directory, Kind::Directory),
            self.access(&self.file, self.case.kind),
        ];
        let arguments = READDIR3args {
            dir: self.directory.clone(),
            cookie: 0,
            cookieverf: cookieverf3::default(),
            count: 8192,
        };
        let list = directory::readdir(export, who, &arguments).map(drop).map_err(|it| it.0);
        let arguments = READDIRPLUS3args {
            dir: self.directory.clone(),
            cookie: 0,
            cookieverf: cookieverf3::default(),
            dircount: 8192,
            maxcount: 8192,
        };
        let plus = directory::readdirplus(export, who, &arguments);
        assert_eq!(plus.is_ok(), list.is_ok());
        let entries = plus.map(|it| it.reply.entries.into_inner()).unwrap_or_default();
        let with = entries.iter().filter(|it| matches!(it.name_attributes, Nfs3Option::Some(_)));
        let attributes = with.count() > 0;
        let handles = entries.iter().filter(|it| matches!(it.name_handle, Nfs3Option::Some(_)));
        assert_eq!(handles.count(), if attributes { entries.len() } else { 0 });
        Got {
            lookups,
            accesses,
            list,
            attributes,
            read: self.read(),
            write: self.write(),
            change: self.change(),
        }
    }

    /// What ACCESS grants, from a thread and, if it knows, from a shard.
    fn access(&self, object: &nfs_fh3, kind: Kind) -> u32 {
        let arguments = ACCESS3args { object: object.clone(), access: 0x3f };
        let granted = files::access(&self.export, &self.who, &arguments).expect("there").access;
        let mut head = Vec::new();
        arguments.pack(&mut head).expect("it is short");
        let (procedure, who) = (nfs3::ACCESS, self.who.clone());
        let mut task = CallTask { procedure, who, head, data: Vec::new(), into: None };
        let outcome = at_once::execute(&self.export, &mut task).expect("just asked for");
        let CallOutcome::Results { head, .. } = outcome else { panic!("{outcome:?}") };
        let last = head.last_chunk().map(|word| u32::from_be_bytes(*word));
        assert_eq!(last, Some(granted), "at once");
        // Names of a directory are removed by who may make them.
        let others = ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_EXECUTE;
        match kind {
            Kind::Directory => granted & (others & !ACCESS3_EXECUTE | ACCESS3_LOOKUP),
            Kind::Link => 0,
            Kind::File | Kind::Fifo => granted & others,
        }
    }

    fn read(&self) -> Done {
        let arguments = READ3args { file: self.file.clone(), offset: 0, count: 4 };
        let read = data::read(&self.export, &self.who, &arguments, &mut [0; 4]);
        read.map(drop).map_err(|it| it.0)
    }

    fn write(&self) -> Done {
        let stable = stable_how::UNSTABLE;
        let head = WriteHead { file: self.file.clone(), offset: 0, count: 1, stable };
        // Twice: when the file is opened, and when it is open.
        let [first, second] = [0; 2].map(|_| {
            let data = [WriteData::Copy(b"x".to_vec())];
            data::write(&self.export, &self.who, &head, &data).map(drop).map_err(|it| it.0)
        });
        assert_eq!(first, second);
        first
    }

    fn set(&self, new_attributes: sattr3) -> Done {
        let arguments =
            SETATTR3args { object: self.file.clone(), new_attributes, guard: Nfs3Option::None };
        files::setattr(&self.export, &self.who, &arguments).map(drop).map_err(|it| it.0)
    }

    fn change(&self) -> Done {
        let Served { export, who, .. } = self;
        let (new, file) = (at(&self.directory, b"new"), at(&self.directory, b"file"));
        let of_mode = |mode| sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() };
        match self.case.change {
            Change::Mode(mode) => self.set(of_mode(mode)),
            Change::Owner(uid) => {
                self.set(sattr3 { uid: Nfs3Option::Some(uid), ..sattr3::default() })
            }
            Change::Group(gid) => {
                self.set(sattr3 { gid: Nfs3Option::Some(gid), ..sattr3::default() })
            }
            Change::Length(_) | Change::LengthAndMode(..) if self.case.kind != Kind::File => Ok(()),
            Change::Length(size) => {
                self.set(sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() })
            }
            Change::LengthAndMode(size, mode) => {
                self.set(sattr3 { size: Nfs3Option::Some(size), ..of_mode(mode) })
            }
            Change::Time => {
                let atime = set_atime::SET_TO_CLIENT_TIME(TIME);
                let mtime = set_mtime::SET_TO_CLIENT_TIME(TIME);
                self.set(sattr3 { atime, mtime, ..sattr3::default() })
            }
            Change::Create(mode) => {
                let how = createhow3::GUARDED(of_mode(mode));
                let made = names::create(export, who, &CREATE3args { where_: new, how });
                made.map(drop).map_err(|it| it.0)
            }
            Change::MakeDirectory(mode) => {
                let arguments = MKDIR3args { where_: new, attributes: of_mode(mode) };
                names::mkdir(export, who, &arguments).map(drop).map_err(|it| it.0)
            }
            Change::MakeLink => {
                let symlink = symlinkdata3 {
                    symlink_attributes: sattr3::default(),
                    symlink_data: nfspath3(Opaque::borrowed(b"target")),
                };
                let arguments = SYMLINK3args { where_: new, symlink };
                names::symlink(export, who, &arguments).map(drop).map_err(|it| it.0)
            }
            Change::MakeFifo(mode) => {
                let what = mknoddata3::NF3FIFO(of_mode(mode));
                let made = names::mknod(export, who, &MKNOD3args { where_: new, what });
                made.map(drop).map_err(|it| it.0)
            }
            Change::Remove | Change::RemoveDirectory => {
                let flags = match self.case.change {
                    Change::Remove => AtFlags::empty(),
                    _ => AtFlags::REMOVEDIR,
                };
                let done = names::remove(export, who, &REMOVE3args { object: file }, flags);
                done.map(drop).map_err(|it| it.0)
            }
            Change::Rename => {
                let done = names::rename(export, who, &RENAME3args { from: file, to: new });
                done.map(drop).map_err(|it| it.0)
            }
            Change::Link => {
                let arguments = LINK3args { file: self.file.clone(), link: new };
                names::link(export, who, &arguments).map(drop).map_err(|it| it.0)
            }
        }
    }
}
