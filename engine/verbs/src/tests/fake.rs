//! Fake libraries without a device: their functions record the calls, and fail on request.
//!
//! Everything that they make leads back to its [`Board`], so tests do not see each other's calls.
#![expect(unsafe_code, reason = "the functions are those of foreign libraries")]

mod cm;
mod data;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sys::verbs as sys;
use crate::sys::verbs::*;
use crate::{Verbs, VerbsOptions};

/// What stands behind the functions: one device, and what tests know and say of it.
pub(crate) struct Board {
    context: Mutex<Box<ibv_context>>,
    state: Mutex<State>,
}

// SAFETY: what the pointers name is reached under the locks, or changes no more.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

type Hook = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct State {
    calls: Vec<(&'static str, std::thread::ThreadId)>,
    /// The number of the call that fails, counted from 0.
    fails_at: Option<usize>,
    /// Functions that fail each time, and with what.
    refused: BTreeMap<&'static str, i32>,
    hooks: BTreeMap<&'static str, Hook>,
    alive: BTreeMap<&'static str, i64>,
    completions: VecDeque<ibv_wc>,
    events: VecDeque<ibv_async_event>,
    /// How often events were read.
    looks: usize,
    unacknowledged: usize,
    numbers: u32,
    /// Who has listened last, and how many ask for a connection.
    listener: Option<*mut crate::sys::cm::rdma_cm_id>,
    asking: usize,
    /// The descriptor of the channel that was made last.
    channel: RawFd,
    /// Numbers of queue pairs that are given out again, the next one first.
    free_numbers: Vec<u32>,
}

thread_local! {
    /// What the libraries know without being given anything.
    static CURRENT: Cell<*const Board> = const { Cell::new(ptr::null()) };
}

impl Board {
    /// A device, which is that of this thread from now on. It lives until the process ends, as do
    /// the libraries.
    pub fn new() -> &'static Board {
        // SAFETY: all members are integers, pointers and functions that may be absent, for which
        // zeros are values.
        let mut context: Box<ibv_context> = Box::new(unsafe { std::mem::zeroed() });
        context.num_comp_vectors = 1;
        context.async_fd = event_fd();
        data::fill(&mut context.ops);
        let board = Board { context: Mutex::new(context), state: Mutex::default() };
        let board: &'static Board = Box::leak(Box::new(board));
        board.context().device = ptr::from_ref(board).cast_mut().cast();
        CURRENT.set(board);
        board
    }

    /// The device, opened.
    pub fn open(&self) -> Result<Verbs, rpcrdma_provider::SetupError> {
        let options = VerbsOptions { device: Some("fake0".to_owned()), ..VerbsOptions::default() };
        Verbs::with_libraries((&VERBS, &cm::CM), &options)
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

    /// Its context, as the library hands it out.
    pub fn raw(&self) -> *mut ibv_context {
        &raw mut **self.context()
    }

    /// A protection domain that no library call has made.
    pub fn domain(&self) -> *mut ibv_pd {
        Box::into_raw(Box::new(ibv_pd { context: self.raw(), handle: 0 }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call; the error number with which it is to fail.
    fn called(&self, function: &'static str) -> Result<(), i32> {
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
    fn make<T>(&self, function: &'static str, kind: &'static str, it: T) -> *mut T {
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

    /// Notes a call that destroys something: its error number.
    fn destroy<T>(&self, function: &'static str, kind: &'static str, it: *mut T) -> c_int {
        if let Err(code) = self.called(function) {
            return code;
        }
        *self.state().alive.entry(kind).or_default() -= 1;
        // SAFETY: it was made by `make`, and each caller frees it once.
        drop(unsafe { Box::from_raw(it) });
        0
    }

    /// Notes a call that returns its error number.
    fn code(&self, function: &'static str) -> c_int {
        self.called(function).err().unwrap_or(0)
    }

    /// Notes a call that leaves its error number in `errno`.
    fn checked(&self, function: &'static str) -> c_int {
        self.called(function).map_or_else(set_errno, |()| 0)
    }
}

/// What a pointer of a library's caller names.
fn seen<'a, T>(it: *mut T) -> &'a mut T {
    // SAFETY: these functions are called by this crate, with what they have made or what it has, by
    // one thread at a time for each thing.
    unsafe { &mut *it }
}

fn board_of<'a>(context: *mut ibv_context) -> &'a Board {
    let device = seen(context).device.cast::<Board>().cast_const();
    // SAFETY: it is the board, which lives until the process ends and is never borrowed mutably.
    unsafe { &*device }
}

/// The board of the thread.
fn current<'a>() -> &'a Board {
    // SAFETY: as above; a test has made a board before it opens a device.
    unsafe { &*CURRENT.get() }
}

fn set_errno(code: c_int) -> c_int {
    // SAFETY: the call takes nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place is this thread's own.
    unsafe { *place = code };
    -1
}

/// A descriptor that is never readable: what there is to read is looked for.
fn event_fd() -> RawFd {
    // SAFETY: the call takes integers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    fd
}

extern "C" fn fork_init() -> c_int {
    current().code("ibv_fork_init")
}

extern "C" fn device_name(_: *mut ibv_device) -> *const c_char {
    c"fake0".as_ptr()
}

extern "C" fn query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    let attr = seen(attr);
    (attr.max_sge, attr.max_sge_rd, attr.max_srq_sge) = (32, 32, 32);
    (attr.max_srq_wr, attr.max_cqe, attr.max_qp_wr) = (1 << 16, 1 << 16, 1 << 16);
    (attr.max_mw, attr.max_qp_rd_atom, attr.max_qp_init_rd_atom) = (1 << 10, 16, 16);
    attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    board_of(context).code("ibv_query_device")
}

extern "C" fn query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    (seen(attr).state, seen(attr).max_msg_sz) = (IBV_PORT_ACTIVE, 1 << 31);
    board_of(context).code("ibv_query_port")
}

extern "C" fn query_gid(_: *mut ibv_context, _: u8, _: c_int, _: *mut ibv_gid) -> c_int {
    -1
}

extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    board_of(context).make("ibv_alloc_pd", "pd", ibv_pd { context, handle: 0 })
}

extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    board_of(seen(pd).context).destroy("ibv_dealloc_pd", "pd", pd)
}

extern "C" fn reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, _: c_int) -> *mut ibv_mr {
    let context = seen(pd).context;
    let board = board_of(context);
    let key = board.number();
    let mr = ibv_mr { context, pd, addr, length, handle: 0, lkey: key, rkey: key };
    board.make("ibv_reg_mr", "mr", mr)
}

extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    board_of(seen(mr).context).destroy("ibv_dereg_mr", "mr", mr)
}

extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let channel = ibv_comp_channel { context, fd: event_fd(), refcnt: 0 };
    board_of(context).make("ibv_create_comp_channel", "channel", channel)
}

extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    board_of(seen(channel).context).destroy("ibv_destroy_comp_channel", "channel", channel)
}

extern "C" fn create_cq(
    context: *mut ibv_context,
    _: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    board_of(context).make("ibv_create_cq", "cq", ibv_cq { context, channel, cq_context })
}

extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    board_of(seen(cq).context).destroy("ibv_destroy_cq", "cq", cq)
}

extern "C" fn cq_event(
    channel: *mut ibv_comp_channel,
    _: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    let board = board_of(seen(channel).context);
    board.called("ibv_get_cq_event").map_or_else(set_errno, |()| set_errno(libc::EAGAIN))
}

extern "C" fn ack_cq_events(_: *mut ibv_cq, _: c_uint) {}

extern "C" fn create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    let context = seen(pd).context;
    let srq = ibv_srq { context, srq_context: seen(attr).srq_context, pd };
    board_of(context).make("ibv_create_srq", "srq", srq)
}

extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    board_of(seen(srq).context).destroy("ibv_destroy_srq", "srq", srq)
}

extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let (context, attr) = (seen(pd).context, seen(attr));
    let board = board_of(context);
    let again = board.state().free_numbers.pop();
    let qp = ibv_qp {
        context,
        qp_context: attr.qp_context,
        pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        handle: 0,
        qp_num: again.unwrap_or_else(|| board.number()),
        state: 0,
        qp_type: attr.qp_type,
    };
    board.make("ibv_create_qp", "qp", qp)
}

extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, _: c_int) -> c_int {
    let function = match seen(attr).qp_state {
        IBV_QPS_ERR => "ibv_modify_qp to ERR",
        _ => "ibv_modify_qp",
    };
    board_of(seen(qp).context).code(function)
}

extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    board_of(seen(qp).context).destroy("ibv_destroy_qp", "qp", qp)
}

extern "C" fn async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    let board = board_of(context);
    board.state().looks += 1;
    let next = board.state().events.pop_front();
    let Some(next) = next else { return set_errno(libc::EAGAIN) };
    *seen(event) = next;
    board.state().unacknowledged += 1;
    0
}

extern "C" fn ack_async_event(_: *mut ibv_async_event) {
    current().state().unacknowledged -= 1;
    let _ = current().called("ibv_ack_async_event");
}

impl Board {
    /// A number that nothing else has.
    fn number(&self) -> u32 {
        let mut state = self.state();
        state.numbers += 1;
        state.numbers
    }
}

pub(crate) static VERBS: sys::Verbs = sys::Verbs {
    ibv_fork_init: fork_init,
    ibv_get_device_name: device_name,
    ibv_query_device: query_device,
    ibv_query_port: query_port,
    ibv_query_gid: query_gid,
    ibv_alloc_pd: alloc_pd,
    ibv_dealloc_pd: dealloc_pd,
    ibv_reg_mr: reg_mr,
    ibv_dereg_mr: dereg_mr,
    ibv_create_comp_channel: create_comp_channel,
    ibv_destroy_comp_channel: destroy_comp_channel,
    ibv_create_cq: create_cq,
    ibv_destroy_cq: destroy_cq,
    ibv_get_cq_event: cq_event,
    ibv_ack_cq_events: ack_cq_events,
    ibv_create_srq: create_srq,
    ibv_destroy_srq: destroy_srq,
    ibv_create_qp: create_qp,
    ibv_modify_qp: modify_qp,
    ibv_destroy_qp: destroy_qp,
    ibv_get_async_event: async_event,
    ibv_ack_async_event: ack_async_event,
};
