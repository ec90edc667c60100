//! Asynchronous events of a device: passes them to their queues, and counts them.
//!
//! Events come from the context, which librdmacm shares among all openings of the device in this
//! process: the thread that reads one passes it to all of them.
//!
//! An event is acknowledged as soon as it is read: a thread that destroys its object waits for
//! that, and may hold a lock that passing on needs. Until it is passed on, its object may be
//! destroyed, and its number and address may be those of a new one. So its object is identified by
//! the key in its context.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rpcrdma_provider::SetupError;

use crate::device::Device;
use crate::device_event::DeviceEvent;
use crate::error;
use crate::fd::set_nonblocking;
use crate::names::{Key, Name};
use crate::sys::verbs as sys;

/// Starts delivering events to a device.
pub(crate) fn watch(device: &Arc<Device>) -> Result<(), SetupError> {
    set_nonblocking(fd(device)).map_err(|source| error::of("fcntl", source))?;
    let mut watching = lock(&WATCHING);
    watching.retain(|it| it.device.strong_count() > 0);
    if !watching.iter().any(|it| ptr::eq(it.device.as_ptr(), Arc::as_ptr(device))) {
        watching.push(Watch { context: device.context.addr(), device: Arc::downgrade(device) });
    }
    Ok(())
}

/// Readable while there are events.
pub(crate) fn fd(device: &Device) -> i32 {
    // SAFETY: the context is open.
    unsafe { (*device.context).async_fd }
}

/// Delivers all pending events.
pub(crate) fn take_all(device: &Device) {
    for _ in 0..EVENTS_MAX {
        let Some(happened) = take(device) else { return };
        for device in openings(device) {
            hand_on(&device, happened);
        }
    }
}

/// The openings of this device. Others are not touched: the last reference to a device closes it,
/// which is for the threads that use it.
fn openings(device: &Device) -> Vec<Arc<Device>> {
    let context = device.context.addr();
    let watching = lock(&WATCHING);
    let same = watching.iter().filter(|it| it.context == context);
    same.filter_map(|it| it.device.upgrade()).collect()
}

/// Reads an event and acknowledges it. Its object exists until then, and may not exist after.
fn take(device: &Device) -> Option<DeviceEvent> {
    let mut event = sys::ibv_async_event { element: ptr::null_mut(), event_type: 0 };
    // SAFETY: the context is open, its descriptor does not block, and `event` is to be written.
    let code = unsafe { (device.lib.ibv_get_async_event)(device.context, &raw mut event) };
    if code != 0 {
        // The context of a removed device has no more events.
        let why = io::Error::last_os_error();
        if !matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
            if !device.events.is_lost() {
                device.events.note_failure(&error::of("ibv_get_async_event", why));
            }
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

/// Decodes an event.
///
/// # Safety
/// The event was read and not acknowledged, or names neither a queue pair nor a queue.
unsafe fn understand(event: &sys::ibv_async_event) -> DeviceEvent {
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
            DeviceEvent::PairFailed(pair())
        }
        sys::IBV_EVENT_COMM_EST => DeviceEvent::Established(pair()),
        sys::IBV_EVENT_QP_LAST_WQE_REACHED => DeviceEvent::LastReceive(pair()),
        sys::IBV_EVENT_CQ_ERR => DeviceEvent::QueueFailed(cq()),
        sys::IBV_EVENT_SRQ_ERR => DeviceEvent::QueueFailed(srq()),
        sys::IBV_EVENT_DEVICE_FATAL => DeviceEvent::DeviceLost,
        sys::IBV_EVENT_PORT_ACTIVE | sys::IBV_EVENT_PORT_ERR => DeviceEvent::Port {
            // The number is in the low four bytes of the union.
            num: event.element.addr() as u8,
            is_up: event.event_type == sys::IBV_EVENT_PORT_ACTIVE,
        },
        _ => DeviceEvent::Other,
    }
}

fn hand_on(device: &Device, happened: DeviceEvent) {
    let ports = device.ports();
    let count = |counter: &AtomicU64| {
        counter.fetch_add(1, Relaxed);
    };
    let notify = || ports.iter().filter(|port| port.on_event(happened)).count();
    let events = &device.events;
    match happened {
        DeviceEvent::Port { num, is_up } if num == device.port_num => {
            count(if is_up { &events.ports_up } else { &events.ports_down });
            notify();
        }
        DeviceEvent::Port { .. } | DeviceEvent::Other => count(&events.others),
        DeviceEvent::PairFailed(_) => {
            count(&events.pairs_failed);
            notify();
        }
        DeviceEvent::LastReceive(_) => {
            count(&events.last_receives);
            notify();
        }
        DeviceEvent::Established(_) => {
            count(&events.others);
            notify();
        }
        DeviceEvent::QueueFailed(_) => (0..notify()).for_each(|_| count(&events.queues_failed)),
        DeviceEvent::DeviceLost => lose(device),
    }
}

/// The device is gone: reports it to all its queues, once.
pub(crate) fn lose(device: &Device) {
    if device.events.is_lost.swap(true, Relaxed) {
        return;
    }
    device.events.devices_lost.fetch_add(1, Relaxed);
    for port in device.ports() {
        port.on_event(DeviceEvent::DeviceLost);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic cannot leave the guarded data inconsistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An opening of a device.
struct Watch {
    /// The address of the context, which all openings of a device share.
    context: usize,
    device: Weak<Device>,
}

/// The open devices of this process.
static WATCHING: Mutex<Vec<Watch>> = Mutex::new(Vec::new());
/// Events that are read in one batch.
const EVENTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn event(event_type: u32, element: usize) -> DeviceEvent {
        let element = ptr::without_provenance_mut(element);
        // SAFETY: none of the types below is of a queue pair.
        unsafe { understand(&sys::ibv_async_event { element, event_type }) }
    }

    #[test]
    fn an_event_is_passed_to_the_openings_of_its_device_only() {
        let other = Fake::new().open().expect("a device");
        let fake = Fake::new();
        let openings_of_one = [(); 2].map(|()| fake.open().expect("the device, again"));
        for one in &openings_of_one {
            let found = openings(one.device());
            assert_eq!(found.len(), 2);
            assert!(found.iter().all(|it| it.context == fake.raw()));
        }
        assert_eq!(openings(other.device()).len(), 1);
    }

    #[test]
    fn ports_are_named_by_number() {
        let down = event(sys::IBV_EVENT_PORT_ERR, 2);
        assert_eq!(down, DeviceEvent::Port { num: 2, is_up: false });
        let up = event(sys::IBV_EVENT_PORT_ACTIVE, 1);
        assert_eq!(up, DeviceEvent::Port { num: 1, is_up: true });
        assert_eq!(event(sys::IBV_EVENT_DEVICE_FATAL, 0), DeviceEvent::DeviceLost);
    }

    #[test]
    fn events_of_queue_pairs_and_queues_carry_place_and_key() {
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
            (sys::IBV_EVENT_QP_FATAL, qp.cast(), DeviceEvent::PairFailed(pair)),
            (sys::IBV_EVENT_QP_ACCESS_ERR, qp.cast(), DeviceEvent::PairFailed(pair)),
            (sys::IBV_EVENT_QP_REQ_ERR, qp.cast(), DeviceEvent::PairFailed(pair)),
            (sys::IBV_EVENT_QP_LAST_WQE_REACHED, qp.cast(), DeviceEvent::LastReceive(pair)),
            (sys::IBV_EVENT_COMM_EST, qp.cast(), DeviceEvent::Established(pair)),
            (sys::IBV_EVENT_CQ_ERR, cq.cast(), DeviceEvent::QueueFailed(name(cq.cast()))),
            (sys::IBV_EVENT_SRQ_ERR, srq.cast(), DeviceEvent::QueueFailed(name(srq.cast()))),
        ] {
            let event = sys::ibv_async_event { element, event_type };
            // SAFETY: what it names is there.
            assert_eq!(unsafe { understand(&event) }, expected);
        }
    }

    #[test]
    fn an_unknown_event_is_only_counted() {
        for event_type in [11, 12, 13, 15, 17, 18, 19, 20, 1_000, u32::MAX] {
            assert_eq!(event(event_type, 0), DeviceEvent::Other, "{event_type}");
        }
    }
}
