//! Descriptors that a forked child does not keep.
//!
//! ```text
//!   fork: before ── lock ──▶ child: /dev/null in the place of each ── unlock
//!                      └───▶ parent: unlock
//! ```
//!
//! A socket lives as long as any process has it. A child that is forked and executes no other
//! program would keep the connections of its parent: when the parent dies, the peers would wait for
//! the end of the child, and the parent's address would stay in use. `O_CLOEXEC` closes descriptors
//! with `execve`; Linux has nothing that does so with `fork`.
//!
//! The numbers stay taken in the child: if it closes them nevertheless, it closes nothing else.
#![expect(unsafe_code, reason = "handlers of fork are functions of C")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The owner of a descriptor that is not kept by a child that is made by `fork`. One that is made
/// by
/// `clone` or `vfork` alone keeps it.
#[derive(Debug)]
pub struct CloseOnFork<T: AsFd = OwnedFd>(ManuallyDrop<T>);

impl<T: AsFd> CloseOnFork<T> {
    /// Owns what `open` opens. No fork comes between both.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<E>(open: impl FnOnce() -> Result<T, E>) -> Result<CloseOnFork<T>, E> {
        static HANDLERS: Once = Once::new();
        HANDLERS.call_once(|| {
            // Without memory for them children keep the descriptors. SAFETY: functions that live as
            // long as the code that calls this.
            let _ =
                unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
        });
        let mut owned = lock();
        let file = open()?;
        owned.insert(file.as_fd().as_raw_fd());
        Ok(CloseOnFork(ManuallyDrop::new(file)))
    }

    /// Gives up what it owns: children keep it from now on.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        lock().remove(&this.as_fd().as_raw_fd());
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
        owned.remove(&self.0.as_fd().as_raw_fd());
        // SAFETY: it is dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

/// The descriptors of this process that a child does not keep.
static OWNED: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The lock, while this thread forks.
    static HELD: RefCell<Option<MutexGuard<'static, BTreeSet<RawFd>>>> =
        const { RefCell::new(None) };
}

fn lock() -> MutexGuard<'static, BTreeSet<RawFd>> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
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
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: the path is a string of C.
        let null = unsafe { libc::open(c"/dev/null".as_ptr(), flags) };
        for fd in owned.iter() {
            // SAFETY: the number belongs to an object of this module, which the child does not use.
            let is_replaced = unsafe { libc::dup3(null, *fd, libc::O_CLOEXEC) } >= 0;
            if !is_replaced {
                // SAFETY: as above.
                unsafe { libc::close(*fd) };
            }
        }
        // SAFETY: the number is this function's own.
        unsafe { libc::close(null) };
        // What the child opens itself under these numbers is for its own children. Memory is not
        // freed here.
        std::mem::forget(std::mem::take(&mut *owned));
    });
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, PipeReader, Read};
    use std::os::fd::FromRawFd;

    use super::*;

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

    #[test]
    fn the_number_stays_taken_in_the_child_and_names_nothing_of_the_parent() {
        let ((mut said, say), file) = (io::pipe().unwrap(), File::open("/proc/self/exe").unwrap());
        let file = CloseOnFork::open(|| Ok::<_, io::Error>(file)).unwrap();
        let fd = file.as_raw_fd();
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
            // SAFETY: there is room for the answer.
            let code = unsafe { libc::fstat(fd, found.as_mut_ptr()) };
            // SAFETY: it is filled if the call has succeeded.
            let mode = if code == 0 { unsafe { found.assume_init() }.st_mode } else { 0 };
            let is_null = u8::from(mode & libc::S_IFMT == libc::S_IFCHR);
            // SAFETY: a byte is there.
            unsafe { libc::write(say.as_raw_fd(), (&raw const is_null).cast(), 1) };
            // SAFETY: no memory of this process is used afterwards.
            unsafe { libc::_exit(0) };
        }
        let mut is_null = [0];
        said.read_exact(&mut is_null).unwrap();
        assert_eq!(is_null, [1]);
        collect(child);
        assert!(file.metadata().is_ok(), "the parent has it");
    }

    #[test]
    fn what_is_given_up_is_kept_by_a_child() {
        let file = CloseOnFork::open(|| File::open("/dev/null")).unwrap();
        let fd = file.as_raw_fd();
        assert!(lock().contains(&fd));
        let _file = file.into_inner();
        assert!(!lock().contains(&fd));
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
        assert!(lock().contains(&fd));
        drop(file);
        assert!(!lock().contains(&fd));
    }
}
