//! The state of a fake device: the calls of the libraries' functions, the objects, and what is to fail.
#![expect(unsafe_code, reason = "pointers of the libraries' callers are followed")]

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pointers::seen;
use super::wire::Wire;
use crate::error;
use crate::sys::cm::rdma_cm_id;
use crate::sys::verbs::*;

/// A fake device: what the libraries' functions have done on it, and what they are to do.
pub struct Fake {
    context: Mutex<Box<ibv_context>>,
    state: Mutex<State>,
}

// SAFETY: what the pointers name is reached under the locks, or changes no more.
unsafe impl Send for Fake {}
// SAFETY: as above.
unsafe impl Sync for Fake {}

/// The device's structure, which begins as the library's does.
#[repr(C)]
struct RawDevice {
    raw: ibv_device,
    fake: *const Fake,
}

type Hook = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(super) struct State {
    pub(super) calls: Vec<(&'static str, std::thread::ThreadId)>,
    /// The number of the call that fails, counted from 0.
    pub(super) fails_at: Option<usize>,
    /// Functions that fail each time, and with what.
    pub(super) refused: BTreeMap<&'static str, i32>,
    pub(super) hooks: BTreeMap<&'static str, Hook>,
    pub(super) alive: BTreeMap<&'static str, i64>,
    pub(super) completions: VecDeque<ibv_wc>,
    pub(super) events: VecDeque<ibv_async_event>,
    /// How often events were read.
    pub(super) looks: usize,
    pub(super) unacknowledged: usize,
    pub(super) numbers: u32,
    /// The mmap keys of the queues of an iWARP device: first, length, and the queue.
    mapped: Vec<(usize, usize, usize)>,
    /// Who has listened last, and how many ask for a connection.
    pub(super) listener: Option<*mut rdma_cm_id>,
    pub(super) asking: usize,
    /// The descriptor of the channel that was made last.
    pub(super) channel: RawFd,
    /// Numbers of queue pairs that are given out again, the next one first.
    pub(super) free_numbers: Vec<u32>,
    pub(super) wire: Wire,
}

impl State {
    /// The lowest free mmap key for so many bytes.
    fn lowest_key(&mut self, len: usize) -> usize {
        self.mapped.sort_unstable();
        let mut key = 0;
        for (first, taken, _) in &self.mapped {
            if first - key >= len {
                break;
            }
            key = first + taken;
        }
        key
    }
}

thread_local! {
    /// The device that the libraries find.
    static CURRENT: Cell<*const Fake> = const { Cell::new(ptr::null()) };
}

impl Fake {
    /// A device, which is that of this thread from now on. It lives until the process ends, as do
    /// the libraries.
    pub(super) fn leaked(context: Box<ibv_context>, transport_type: c_int) -> &'static Fake {
        let fake = Fake { context: Mutex::new(context), state: Mutex::default() };
        let fake: &'static Fake = Box::leak(Box::new(fake));
        // SAFETY: all members are integers, for which zeros are values.
        let mut raw: ibv_device = unsafe { std::mem::zeroed() };
        raw.transport_type = transport_type;
        fake.context().device = Box::into_raw(Box::new(RawDevice { raw, fake })).cast();
        CURRENT.set(fake);
        fake
    }

    /// What was called, in order.
    pub fn calls(&self) -> Vec<&'static str> {
        self.state().calls.iter().map(|it| it.0).collect()
    }

    /// Forgets what was called.
    pub fn forget_calls(&self) {
        self.state().calls.clear();
    }

    /// The calls of this thread that are among these.
    pub fn own_calls(&self, of: &[&str]) -> Vec<&'static str> {
        let own = std::thread::current().id();
        let state = self.state();
        let calls = state.calls.iter().filter(|it| it.1 == own && of.contains(&it.0));
        calls.map(|it| it.0).collect()
    }

    /// Has the n-th call from now on fail, once.
    pub fn fail_at(&self, call: Option<usize>) {
        let mut state = self.state();
        state.fails_at = call.map(|call| state.calls.len() + call);
    }

    /// Has all calls of a function fail, or none any more.
    pub fn refuse(&self, function: &'static str, errno: Option<i32>) {
        match errno {
            Some(errno) => drop(self.state().refused.insert(function, errno)),
            None => drop(self.state().refused.remove(function)),
        }
    }

    /// Has something happen in each call of a function.
    pub fn on(&self, function: &'static str, hook: impl Fn() + Send + Sync + 'static) {
        self.state().hooks.insert(function, Arc::new(hook));
    }

    /// What was made and is not destroyed.
    pub fn alive(&self) -> BTreeMap<&'static str, i64> {
        let state = self.state();
        state.alive.iter().filter(|it| *it.1 != 0).map(|(what, count)| (*what, *count)).collect()
    }

    pub fn complete(&self, wc: ibv_wc) {
        self.state().completions.push_back(wc);
    }

    /// Has the device report something.
    pub fn report(&self, element: *mut c_void, event_type: c_uint) {
        self.state().events.push_back(ibv_async_event { element, event_type });
    }

    /// The next queue pair gets this number, if the device has it.
    pub fn give_number(&self, num: u32) {
        self.state().free_numbers.push(num);
    }

    /// How often the device's events were read.
    pub fn looks(&self) -> usize {
        self.state().looks
    }

    /// Events that were read and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.state().unacknowledged
    }

    pub fn context(&self) -> MutexGuard<'_, Box<ibv_context>> {
        self.context.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its connections are moved by the kernel.
    pub(super) fn is_iwarp(&self) -> bool {
        seen(self.context().device).transport_type == IBV_TRANSPORT_IWARP
    }

    /// Its context, as the library hands it out.
    pub fn raw(&self) -> *mut ibv_context {
        &raw mut **self.context()
    }

    /// A protection domain that no library call has made.
    pub fn domain(&self) -> *mut ibv_pd {
        Box::into_raw(Box::new(ibv_pd { context: self.raw(), handle: 0 }))
    }

    /// A number that nothing else has.
    pub(super) fn number(&self) -> u32 {
        let mut state = self.state();
        state.numbers += 1;
        state.numbers
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call; the error number with which it is to fail.
    pub(super) fn called(&self, function: &'static str) -> Result<(), i32> {
        let hook = self.state().hooks.get(function).cloned();
        if let Some(hook) = hook {
            hook();
        }
        let mut state = self.state();
        let number = state.calls.len();
        state.calls.push((function, std::thread::current().id()));
        if state.fails_at == Some(number) {
            return Err(libc::EIO);
        }
        state.refused.get(function).map_or(Ok(()), |errno| Err(*errno))
    }

    /// Notes a call that makes something.
    pub(super) fn make<T>(&self, function: &'static str, kind: &'static str, it: T) -> *mut T {
        match self.called(function) {
            Ok(()) => {
                *self.state().alive.entry(kind).or_default() += 1;
                Box::into_raw(Box::new(it))
            }
            Err(code) => {
                set_errno(code);
                ptr::null_mut()
            }
        }
    }

    /// As [`Fake::make`], of a queue that a program maps. As siw, an iWARP device gives it the next
    /// mmap key, and as libsiw, the library takes one key for an invalid one and sets no error number.
    pub(super) fn make_mapped<T>(
        &self,
        function: &'static str,
        kind: &'static str,
        len: usize,
        it: T,
    ) -> *mut T {
        // So far apart are the keys of queue pairs of siw that were seen.
        let len = len.next_multiple_of(0x4000);
        let key = self.state().lowest_key(len);
        if self.is_iwarp() && key == 0x9_0000 {
            return ptr::null_mut();
        }
        let made = self.make(function, kind, it);
        if !made.is_null() {
            self.state().mapped.push((key, len, made.addr()));
        }
        made
    }

    /// Notes a call that destroys something: its error number.
    pub(super) fn destroy<T>(
        &self,
        function: &'static str,
        kind: &'static str,
        it: *mut T,
    ) -> c_int {
        if let Err(code) = self.called(function) {
            return code;
        }
        *self.state().alive.entry(kind).or_default() -= 1;
        self.state().mapped.retain(|(.., mapped)| *mapped != it.addr());
        // SAFETY: it was made by `make`, and each caller frees it once.
        drop(unsafe { Box::from_raw(it) });
        0
    }

    /// Notes a call that returns its error number.
    pub(super) fn code(&self, function: &'static str) -> c_int {
        self.called(function).err().unwrap_or(0)
    }

    /// Notes a call that leaves its error number in `errno`.
    pub(super) fn checked(&self, function: &'static str) -> c_int {
        self.called(function).map_or_else(set_errno, |()| 0)
    }
}

pub(super) fn fake_of<'a>(context: *mut ibv_context) -> &'a Fake {
    let fake = seen(seen(context).device.cast::<RawDevice>()).fake;
    // SAFETY: fake devices live until the process ends and are never borrowed mutably.
    unsafe { &*fake }
}

/// The fake device of the thread.
pub(super) fn current<'a>() -> &'a Fake {
    // SAFETY: as above; a test has made a fake device before it opens a device.
    unsafe { &*CURRENT.get() }
}

pub(super) fn set_errno(code: c_int) -> c_int {
    error::set_errno(code);
    -1
}

/// A descriptor that is never readable: what there is to read is looked for.
pub(super) fn event_fd() -> RawFd {
    // SAFETY: the call takes integers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    fd
}
