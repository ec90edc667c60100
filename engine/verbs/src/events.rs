//! What a device reports beside completions: to whom it goes, and how often it has happened.
//!
//! Events come from the context, which librdmacm shares among all who open the device in this process:
//! whoever reads one hands it to all of them.
//!
//! An event is acknowledged as soon as it is read: whoever destroys what it names waits for that, and
//! may have what handing on waits for. Until it is handed on, what it names may be gone, and its number
//! and its place may be those of something new. It is named by the key that was in its context.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rpcrdma_provider::QueueEvent;
use rpcrdma_provider::SetupError;

use crate::cm::Errand;
use crate::device::Device;
use crate::error;
use crate::fd::set_nonblocking;
use crate::port::{End, Key, Name, Told};
use crate::sys::verbs as sys;

/// What a device has reported since it was opened, and what has failed on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeviceEvents {
    /// Times that the port went down.
    pub ports_down: u64,
    /// Times that the port came up.
    pub ports_up: u64,
    /// Queue pairs that the device has given up.
    pub pairs_failed: u64,
    /// Queue pairs whose Receives have all come back.
    pub last_receives: u64,
    /// Completion queues and shared receive queues that are lost.
    pub queues_failed: u64,
    /// Times that the device was removed or broke.
    pub devices_lost: u64,
    /// Everything else that it has reported.
    pub others: u64,
    /// Ends of connections that could not be made, and what could not be ended as it should.
    pub failures: u64,
    /// Why the last of them could not.
    pub last_failure: Option<String>,
}

/// The counters, and what else is remembered.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    ports_down: AtomicU64,
    ports_up: AtomicU64,
    pairs_failed: AtomicU64,
    last_receives: AtomicU64,
    queues_failed: AtomicU64,
    devices_lost: AtomicU64,
    others: AtomicU64,
    failures: AtomicU64,
    last_failure: Mutex<Option<String>>,
    is_lost: AtomicBool,
}

/// An event, after it was acknowledged: what it names may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happened {
    Port {
        num: u8,
        is_up: bool,
    },
    PairFailed(Name),
    LastReceive(Name),
    /// The peer has sent something before its last word on the connection came.
    Established(Name),
    /// A completion queue or a shared receive queue.
    QueueFailed(Name),
    DeviceLost,
    Other,
}

impl Counters {
    /// Whether the device has ever said that it has no Receives of a queue pair any more.
    pub fn has_told_last_receive(&self) -> bool {
        self.last_receives.load(Relaxed) > 0
    }

    /// The device is gone or broken: nothing can be made on it.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// Remembers why something could not be made or ended, for whoever asks.
    #[cold]
    pub fn note_failure(&self, error: &SetupError) {
        self.failures.fetch_add(1, Relaxed);
        *lock(&self.last_failure) = Some(error.to_string());
    }

    pub fn snapshot(&self) -> DeviceEvents {
        DeviceEvents {
            ports_down: self.ports_down.load(Relaxed),
            ports_up: self.ports_up.load(Relaxed),
            pairs_failed: self.pairs_failed.load(Relaxed),
            last_receives: self.last_receives.load(Relaxed),
            queues_failed: self.queues_failed.load(Relaxed),
            devices_lost: self.devices_lost.load(Relaxed),
            others: self.others.load(Relaxed),
            failures: self.failures.load(Relaxed),
            last_failure: lock(&self.last_failure).clone(),
        }
    }
}

/// Begins to hand events to a device.
pub(crate) fn watch(device: &Arc<Device>) -> Result<(), SetupError> {
    set_nonblocking(fd(device)).map_err(|source| error::of("fcntl", source))?;
    let mut watching = lock(&WATCHING);
    watching.retain(|it| it.strong_count() > 0);
    if !watching.iter().any(|it| ptr::eq(it.as_ptr(), Arc::as_ptr(device))) {
        watching.push(Arc::downgrade(device));
    }
    Ok(())
}

/// Readable while there are events.
pub(crate) fn fd(device: &Device) -> i32 {
    // SAFETY: the context is open.
    unsafe { (*device.context).async_fd }
}

/// Hands on all events that there are.
pub(crate) fn take_all(device: &Device) {
    for _ in 0..EVENTS_MAX {
        let Some(happened) = take(device) else { return };
        let watching: Vec<Arc<Device>> = lock(&WATCHING).iter().filter_map(Weak::upgrade).collect();
        for device in watching.iter().filter(|it| ptr::eq(it.context, device.context)) {
            hand_on(device, happened);
        }
    }
}

/// Reads an event and acknowledges it. Whatever it names is there until then, and maybe not after.
fn take(device: &Device) -> Option<Happened> {
    let mut event = sys::ibv_async_event { element: ptr::null_mut(), event_type: 0 };
    // SAFETY: the context is open, its descriptor does not block, and `event` is to be written.
    let code = unsafe { (device.lib.ibv_get_async_event)(device.context, &raw mut event) };
    if code != 0 {
        // A context that was taken away has no events and never will.
        let why = io::Error::last_os_error();
        if !matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
            lose(device);
        }
        return None;
    }
    // SAFETY: the event was just read and is not acknowledged.
    let happened = unsafe { understand(&event) };
    // SAFETY: the event was returned by this library, and is acknowledged once.
    unsafe { (device.lib.ibv_ack_async_event)(&raw mut event) };
    Some(happened)
}

/// What an event says.
///
/// # Safety
/// The event was read and not acknowledged, or names neither a queue pair nor a queue.
unsafe fn understand(event: &sys::ibv_async_event) -> Happened {
    let of = |context: *mut c_void| Name {
        at: event.element.cast_const(),
        key: Key(context.addr() as u64),
    };
    // SAFETY: asked for only where the event is of a queue pair, which is there until acknowledged.
    let pair = || of(unsafe { (*event.element.cast::<sys::ibv_qp>()).qp_context });
    // SAFETY: as above, of a completion queue.
    let cq = || of(unsafe { (*event.element.cast::<sys::ibv_cq>()).cq_context });
    // SAFETY: as above, of a shared receive queue.
    let srq = || of(unsafe { (*event.element.cast::<sys::ibv_srq>()).srq_context });
    match event.event_type {
        sys::IBV_EVENT_QP_FATAL | sys::IBV_EVENT_QP_REQ_ERR | sys::IBV_EVENT_QP_ACCESS_ERR => {
            Happened::PairFailed(pair())
        }
        sys::IBV_EVENT_COMM_EST => Happened::Established(pair()),
        sys::IBV_EVENT_QP_LAST_WQE_REACHED => Happened::LastReceive(pair()),
        sys::IBV_EVENT_CQ_ERR => Happened::QueueFailed(cq()),
        sys::IBV_EVENT_SRQ_ERR => Happened::QueueFailed(srq()),
        sys::IBV_EVENT_DEVICE_FATAL => Happened::DeviceLost,
        sys::IBV_EVENT_PORT_ACTIVE | sys::IBV_EVENT_PORT_ERR => Happened::Port {
            // The number is in the low four bytes of the union.
            num: event.element.addr() as u8,
            is_up: event.event_type == sys::IBV_EVENT_PORT_ACTIVE,
        },
        _ => Happened::Other,
    }
}

fn hand_on(device: &Device, happened: Happened) {
    let ports = device.ports();
    let count = |counter: &AtomicU64| {
        counter.fetch_add(1, Relaxed);
    };
    let events = &device.events;
    match happened {
        Happened::Port { num, is_up } if num == device.port_num => {
            let (counter, event) = match is_up {
                true => (&events.ports_up, QueueEvent::PortUp),
                false => (&events.ports_down, QueueEvent::PortDown),
            };
            count(counter);
            ports.iter().for_each(|port| port.tell(Told::Device(event)));
        }
        Happened::Port { .. } | Happened::Other => count(&events.others),
        Happened::PairFailed(name) => {
            count(&events.pairs_failed);
            for port in ports.iter().filter(|port| port.named(name).is_some()) {
                port.on_end(name.key, End::Failed);
            }
        }
        Happened::LastReceive(name) => {
            count(&events.last_receives);
            for port in &ports {
                if let Some(pair) = port.named(name) {
                    pair.on_last_receive();
                    port.bell.ring();
                }
            }
        }
        Happened::Established(name) => {
            count(&events.others);
            let pair = ports.iter().find_map(|port| port.named(name));
            if let Some(id) = pair.as_ref().and_then(|pair| pair.id.as_ref()) {
                id.ask(Errand::Establish(Arc::clone(id)));
            }
        }
        Happened::QueueFailed(name) => {
            for port in ports.iter().filter(|port| port.has_queue(name)) {
                count(&events.queues_failed);
                port.tell(Told::Device(QueueEvent::DeviceLost));
            }
        }
        Happened::DeviceLost => lose(device),
    }
}

/// The device is gone: all its queues are told, once.
pub(crate) fn lose(device: &Device) {
    if device.events.is_lost.swap(true, Relaxed) {
        return;
    }
    device.events.devices_lost.fetch_add(1, Relaxed);
    device.ports().iter().for_each(|port| port.tell(Told::Device(QueueEvent::DeviceLost)));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is never left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The devices of this process that have a connection manager.
static WATCHING: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());
/// Events that are read at one time.
const EVENTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event_type: u32, element: usize) -> Happened {
        let element = ptr::without_provenance_mut(element);
        // SAFETY: none of the types below is of a queue pair.
        unsafe { understand(&sys::ibv_async_event { element, event_type }) }
    }

    #[test]
    fn ports_are_named_by_number() {
        let down = event(sys::IBV_EVENT_PORT_ERR, 2);
        assert_eq!(down, Happened::Port { num: 2, is_up: false });
        let up = event(sys::IBV_EVENT_PORT_ACTIVE, 1);
        assert_eq!(up, Happened::Port { num: 1, is_up: true });
        assert_eq!(event(sys::IBV_EVENT_DEVICE_FATAL, 0), Happened::DeviceLost);
    }

    #[test]
    fn what_is_of_a_queue_pair_or_a_queue_is_named_by_its_place_and_its_key() {
        let key = Key::new();
        // SAFETY: all members are integers and pointers, for which zeros are values.
        let mut qp: sys::ibv_qp = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut cq: sys::ibv_cq = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut srq: sys::ibv_srq = unsafe { std::mem::zeroed() };
        qp.qp_context = key.as_context();
        cq.cq_context = key.as_context();
        srq.srq_context = key.as_context();
        let name = |at: *mut c_void| Name { at, key };
        let (qp, cq, srq) = (&raw mut qp, &raw mut cq, &raw mut srq);
        let pair = name(qp.cast());
        for (event_type, element, expected) in [
            (sys::IBV_EVENT_QP_FATAL, qp.cast(), Happened::PairFailed(pair)),
            (sys::IBV_EVENT_QP_ACCESS_ERR, qp.cast(), Happened::PairFailed(pair)),
            (sys::IBV_EVENT_QP_REQ_ERR, qp.cast(), Happened::PairFailed(pair)),
            (sys::IBV_EVENT_QP_LAST_WQE_REACHED, qp.cast(), Happened::LastReceive(pair)),
            (sys::IBV_EVENT_COMM_EST, qp.cast(), Happened::Established(pair)),
            (sys::IBV_EVENT_CQ_ERR, cq.cast(), Happened::QueueFailed(name(cq.cast()))),
            (sys::IBV_EVENT_SRQ_ERR, srq.cast(), Happened::QueueFailed(name(srq.cast()))),
        ] {
            let event = sys::ibv_async_event { element, event_type };
            // SAFETY: what it names is there.
            assert_eq!(unsafe { understand(&event) }, expected);
        }
    }

    #[test]
    fn an_event_that_nobody_knows_is_counted_and_nothing_else() {
        for event_type in [11, 12, 13, 15, 17, 18, 19, 20, 1_000, u32::MAX] {
            assert_eq!(event(event_type, 0), Happened::Other, "{event_type}");
        }
    }

    #[test]
    fn the_last_failure_is_kept_with_its_reason() {
        let counters = Counters::default();
        assert_eq!(counters.snapshot(), DeviceEvents::default());
        counters.note_failure(&error::code("ibv_create_qp", libc::ENOMEM));
        counters.note_failure(&error::code("rdma_accept", libc::EINVAL));
        let events = counters.snapshot();
        assert_eq!(events.failures, 2);
        assert!(events.last_failure.expect("there was one").contains("rdma_accept"));
    }
}
