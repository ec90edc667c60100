//! Descriptors and shared memory that a forked child does not keep.
//!
//! ```text
//!   fork: before ── lock ──▶ child: /dev/null and zeroed memory in their places ── unlock
//!                      └───▶ parent: unlock
//! ```
//!
//! A socket lives as long as any process has it. A child that is forked and executes no other
//! program would keep the connections of its parent: when the parent dies, the peers would wait for
//! the end of the child, and the parent's address would stay in use. `O_CLOEXEC` closes descriptors
//! with `execve`; Linux has nothing that does so with `fork`.
//!
//! The numbers and the addresses stay taken in the child. If it drops what its parent has made, it
//! closes nothing else, and its parent's peers notice nothing.
#![expect(unsafe_code, reason = "handlers of fork are functions of C")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The owner of a descriptor that is not kept by a child that is made by `fork`. One that is made
/// by `clone` or `vfork` alone keeps it.
#[derive(Debug)]
pub struct CloseOnFork<T: AsFd = OwnedFd>(ManuallyDrop<T>);

impl<T: AsFd> CloseOnFork<T> {
    /// Owns what `open` opens. No fork comes between both.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<E>(open: impl FnOnce() -> Result<T, E>) -> Result<CloseOnFork<T>, E> {
        install();
        let mut owned = lock();
        let file = open()?;
        owned.files.insert(file.as_fd().as_raw_fd());
        Ok(CloseOnFork(ManuallyDrop::new(file)))
    }

    /// Whether this process has it. A child that was forked since has nothing in its place.
    pub fn is_kept(&self) -> bool {
        lock().files.contains(&self.as_fd().as_raw_fd())
    }

    /// Gives up what it owns: children keep it from now on.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        lock().files.remove(&this.as_fd().as_raw_fd());
        // SAFETY: `this` is not used afterwards, and its destructor does not run.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T: AsFd> Deref for CloseOnFork<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsFd> AsFd for CloseOnFork<T> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: AsFd> Drop for CloseOnFork<T> {
    fn drop(&mut self) {
        // No fork comes between both.
        let mut owned = lock();
        owned.files.remove(&self.as_fd().as_raw_fd());
        // SAFETY: it is dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

/// Shared memory in whose place a child that is made by `fork` has zeroed memory of its own, as long
/// as this exists.
#[derive(Debug)]
pub struct UnshareOnFork(usize);

impl UnshareOnFork {
    /// Has `len` bytes from `start` replaced, which is the beginning of a page.
    ///
    /// # Safety
    /// They are a mapping of their own, which exists for longer than this.
    pub unsafe fn new(start: *mut u8, len: usize) -> UnshareOnFork {
        install();
        let start = start.expose_provenance();
        lock().memory.insert(start, len);
        UnshareOnFork(start)
    }
}

impl Drop for UnshareOnFork {
    fn drop(&mut self) {
        lock().memory.remove(&self.0);
    }
}

/// What of this process a child does not keep.
struct Owned {
    files: BTreeSet<RawFd>,
    /// The lengths of memory, by its beginning.
    memory: BTreeMap<usize, usize>,
}

static OWNED: Mutex<Owned> = Mutex::new(Owned { files: BTreeSet::new(), memory: BTreeMap::new() });

thread_local! {
    /// The lock, while this thread forks.
    static HELD: RefCell<Option<MutexGuard<'static, Owned>>> = const { RefCell::new(None) };
}

fn lock() -> MutexGuard<'static, Owned> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn install() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // Without memory for the handlers children keep all.
        // SAFETY: functions that live as long as the code that calls this.
        let _ = unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    });
}

extern "C" fn before_fork() {
    // A thread that ends may fork in a destructor, when its values are gone: then without the lock.
    let _ = HELD.try_with(|held| *held.borrow_mut() = Some(lock()));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(|held| drop(held.borrow_mut().take()));
}

/// Makes system calls and stores only: another thread of the parent may have held any other lock.
extern "C" fn in_child() {
    let _ = HELD.try_with(|held| {
        let Some(mut owned) = held.borrow_mut().take() else { return };
        replace_files(&owned.files);
        for (start, len) in &owned.memory {
            replace_memory(*start, *len);
        }
        // What the child has itself under these numbers and addresses is for its own children.
        // Memory is not freed here.
        std::mem::forget(std::mem::take(&mut owned.files));
        std::mem::forget(std::mem::take(&mut owned.memory));
    });
}

/// Puts a file that names nothing of the parent in the place of each.
fn replace_files(files: &BTreeSet<RawFd>) {
    let Some(first) = files.first() else { return };
    // At the limit of open files another one can be opened only then.
    // SAFETY: the number belongs to an object of this module, which the child does not use.
    unsafe { libc::close(*first) };
    let null = open_null();
    for fd in files.iter().filter(|fd| **fd != null) {
        // SAFETY: as above.
        let is_replaced = unsafe { libc::dup3(null, *fd, libc::O_CLOEXEC) } >= 0;
        if !is_replaced {
            // SAFETY: as above.
            unsafe { libc::close(*fd) };
        }
    }
    if !files.contains(&null) {
        // SAFETY: the number is this function's own.
        unsafe { libc::close(null) };
    }
}

/// Opens /dev/null, or where it is not there what needs no path.
fn open_null() -> RawFd {
    // SAFETY: the path is a string of C.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if null >= 0 {
        return null;
    }
    // SAFETY: integers alone.
    unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }
}

fn replace_memory(start: usize, len: usize) {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let (start, access) =
        (std::ptr::with_exposed_provenance_mut(start), libc::PROT_READ | libc::PROT_WRITE);
    // If the system has no memory for it, it stays shared.
    // SAFETY: a mapping is replaced which exists in the parent, as `UnshareOnFork::new` was promised,
    // by one that is as accessible.
    unsafe { libc::mmap(start, len, access, flags, -1, 0) };
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, PipeReader, Read};
    use std::os::fd::FromRawFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use rpcrdma_testing::denied::Denied;

    /// Forks a child that waits until `wait` ends.
    fn fork_one_that_waits_for(wait: &PipeReader) -> libc::pid_t {
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut byte = 0_u8;
            // SAFETY: there is room for a byte.
            unsafe { libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) };
            // SAFETY: no memory of this process is used afterwards.
            unsafe { libc::_exit(0) };
        }
        assert!(child > 0, "{}", io::Error::last_os_error());
        child
    }

    fn collect(child: libc::pid_t) {
        // SAFETY: the status is not wanted.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }

    #[test]
    fn a_descriptor_ends_with_the_parent_though_a_child_lives() {
        let ((wait, go_on), (mut reader, writer)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let go_on = CloseOnFork::open(|| Ok::<_, io::Error>(go_on)).unwrap();
        let writer = CloseOnFork::open(|| Ok::<_, io::Error>(writer)).unwrap();
        let child = fork_one_that_waits_for(&wait);
        drop(writer);
        // This would wait for the child, which waits for what follows.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        drop(go_on);
        collect(child);
    }

    /// What `act` returns in a child that is forked for it.
    fn in_a_child(act: impl FnOnce() -> u32) -> u32 {
        let (mut said, say) = io::pipe().unwrap();
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let found = act();
            // SAFETY: as many bytes are there.
            unsafe { libc::write(say.as_raw_fd(), (&raw const found).cast(), size_of::<u32>()) };
            // SAFETY: no memory of this process is used afterwards.
            unsafe { libc::_exit(0) };
        }
        assert!(child > 0, "{}", io::Error::last_os_error());
        let mut found = [0; size_of::<u32>()];
        said.read_exact(&mut found).unwrap();
        collect(child);
        u32::from_ne_bytes(found)
    }

    /// What kind of file has this number, or 1 if there is none.
    fn kind_of(fd: RawFd) -> u32 {
        let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: there is room for the answer.
        let code = unsafe { libc::fstat(fd, found.as_mut_ptr()) };
        // SAFETY: it is filled if the call has succeeded.
        if code == 0 { unsafe { found.assume_init() }.st_mode & libc::S_IFMT } else { 1 }
    }

    #[test]
    fn the_number_stays_taken_in_the_child_and_names_nothing_of_the_parent() {
        let file = CloseOnFork::open(|| File::open("/proc/self/exe")).unwrap();
        assert_eq!(in_a_child(|| kind_of(file.as_raw_fd())), libc::S_IFCHR);
        assert_eq!(in_a_child(|| u32::from(file.is_kept())), 0);
        assert!(file.is_kept() && file.metadata().is_ok(), "the parent has it");
    }

    /// In a root folder without devices, say.
    #[test]
    fn the_number_stays_taken_though_nothing_can_be_opened() {
        let file = CloseOnFork::open(|| File::open("/proc/self/exe")).unwrap();
        let fd = file.as_raw_fd();
        let denied = Denied { calls: &[libc::SYS_open, libc::SYS_openat], errno: libc::ENOENT };
        // A file without a name has no type.
        assert_eq!(denied.run(|| in_a_child(|| kind_of(fd))), 0);
    }

    #[test]
    fn the_number_stays_taken_at_the_limit_of_open_files() {
        let file = File::open("/proc/self/exe").unwrap();
        let (fd, files) = (file.as_raw_fd(), BTreeSet::from([file.as_raw_fd()]));
        let found = in_a_child(|| {
            let limit = libc::rlimit { rlim_cur: fd as u64 + 1, rlim_max: fd as u64 + 1 };
            // SAFETY: the limit is readable.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
            // SAFETY: integers alone.
            while unsafe { libc::dup(fd) } >= 0 {}
            replace_files(&files);
            kind_of(fd)
        });
        assert_eq!(found, libc::S_IFCHR);
    }

    const PAGE: usize = 4096;

    /// A word that is shared with children, at the start of a page of its own.
    fn shared_word() -> (&'static AtomicU32, *mut u8) {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, wherever the system has room.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping exists until the end of the process.
        (unsafe { &*start.cast::<AtomicU32>() }, start.cast())
    }

    #[test]
    fn what_a_child_writes_to_shared_memory_stays_in_the_child() {
        let (word, start) = shared_word();
        word.store(5, Ordering::Relaxed);
        // SAFETY: as above.
        let unshared = unsafe { UnshareOnFork::new(start, PAGE) };
        assert_eq!(in_a_child(|| word.swap(6, Ordering::Relaxed)), 0);
        assert_eq!(word.load(Ordering::Relaxed), 5);
        drop(unshared);
        assert_eq!(in_a_child(|| word.swap(7, Ordering::Relaxed)), 5);
        assert_eq!(word.load(Ordering::Relaxed), 7);
    }

    /// What a child has written there is its own, and its own children begin with that.
    #[test]
    fn a_child_of_a_child_has_what_the_child_has_in_the_place_of_shared_memory() {
        let (word, start) = shared_word();
        // SAFETY: as above.
        let _unshared = unsafe { UnshareOnFork::new(start, PAGE) };
        let found = in_a_child(|| {
            word.store(6, Ordering::Relaxed);
            in_a_child(|| word.load(Ordering::Relaxed))
        });
        assert_eq!(found, 6);
    }

    #[test]
    fn what_is_given_up_is_kept_by_a_child() {
        let file = CloseOnFork::open(|| File::open("/dev/null")).unwrap();
        let fd = file.as_raw_fd();
        assert!(lock().files.contains(&fd));
        let _file = file.into_inner();
        assert!(!lock().files.contains(&fd));
    }

    /// The program may have another file under this number by now.
    #[test]
    fn the_number_of_a_descriptor_that_is_closed_is_the_program_s_again() {
        let null = File::open("/dev/null").unwrap();
        // A number that no other test gets.
        // SAFETY: integers alone.
        let fd = unsafe { libc::fcntl(null.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 200) };
        assert!(fd >= 200, "{}", io::Error::last_os_error());
        // SAFETY: it was opened just now, and has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let file = CloseOnFork::open(|| Ok::<_, io::Error>(file)).unwrap();
        assert!(lock().files.contains(&fd));
        drop(file);
        assert!(!lock().files.contains(&fd));
    }
}
