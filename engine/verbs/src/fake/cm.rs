//! A fake librdmacm without a network: no peer answers, unless the device is wired to itself.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use libc::sockaddr;

use super::pointers::seen;
use super::state::{Fake, current, event_fd, set_errno};
use super::wire::FakeEvent;
use crate::sys::cm::*;
use crate::sys::verbs::{ibv_context, ibv_qp_attr};

/// A channel, which begins as the library's does.
#[repr(C)]
struct FakeChannel {
    raw: rdma_event_channel,
    fake: *const Fake,
}

extern "C" fn get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let list = current().make("rdma_get_devices", "devices", [current().raw(), ptr::null_mut()]);
    *seen(count) = 1;
    list.cast()
}

extern "C" fn free_devices(list: *mut *mut ibv_context) {
    current().destroy("rdma_free_devices", "devices", list.cast::<[*mut ibv_context; 2]>());
}

extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    let raw = rdma_event_channel { fd: event_fd() };
    current().state().channel = raw.fd;
    let channel = FakeChannel { raw, fake: current() };
    current().make("rdma_create_event_channel", "cm channel", channel).cast()
}

fn of_channel<'a>(channel: *mut rdma_event_channel) -> &'a Fake {
    // SAFETY: the channel is one of these, and fake devices live until the process ends.
    unsafe { &*seen(channel.cast::<FakeChannel>()).fake }
}

extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    let fake = of_channel(channel);
    fake.destroy("rdma_destroy_event_channel", "cm channel", channel.cast::<FakeChannel>());
}

impl Fake {
    /// Has so many peers request a connection from any listener.
    pub fn ask(&self, peers: usize) {
        self.state().asking += peers;
    }

    /// Has the descriptor of the last channel be readable, for good.
    pub fn ring_channel(&self) {
        let fd = self.state().channel;
        // SAFETY: the descriptor is an eventfd, or none.
        assert_eq!(unsafe { libc::eventfd_write(fd, 1) }, 0, "the channel is there");
    }
}

extern "C" fn get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let fake = of_channel(channel);
    if let Err(code) = fake.called("rdma_get_cm_event") {
        return set_errno(code);
    }
    let next = fake.state().wire.next_event(channel);
    let Some(next) = next.or_else(|| asked(fake)) else { return set_errno(libc::EAGAIN) };
    *seen(event) = Box::into_raw(next).cast();
    0
}

/// A request of one of the peers that ask.
fn asked(fake: &Fake) -> Option<Box<FakeEvent>> {
    let listener = fake.state().listener?;
    let left = fake.state().asking.checked_sub(1)?;
    fake.state().asking = left;
    Some(FakeEvent::new(request(listener), listener, RDMA_CM_EVENT_CONNECT_REQUEST, None))
}

/// The id of a request to connect.
fn request(listener: *mut rdma_cm_id) -> *mut rdma_cm_id {
    let mut id = ptr::null_mut();
    create_id(seen(listener).channel, &raw mut id, ptr::null_mut(), RDMA_PS_TCP);
    seen(id).route.addr.dst_addr.ss_family = libc::AF_INET as libc::sa_family_t;
    id
}

/// Reports an event of an id to its owner, if peers answer.
fn notify_owner(id: *mut rdma_cm_id, event: c_uint, conn: Option<&rdma_conn_param>) {
    of(id).state().wire.push(FakeEvent::new(id, ptr::null_mut(), event, conn));
}

extern "C" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: it was made above, and is acknowledged once.
    drop(unsafe { Box::from_raw(event.cast::<FakeEvent>()) });
    0
}

extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_uint,
) -> c_int {
    let fake = of_channel(channel);
    // SAFETY: all members are integers and pointers, for which zeros are values.
    let mut new: rdma_cm_id = unsafe { std::mem::zeroed() };
    (new.verbs, new.channel, new.context, new.ps) = (fake.raw(), channel, context, ps);
    *seen(id) = fake.make("rdma_create_id", "id", new);
    if seen(id).is_null() { -1 } else { 0 }
}

fn of<'a>(id: *mut rdma_cm_id) -> &'a Fake {
    of_channel(seen(id).channel)
}

extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    let fake = of(id);
    match fake.destroy("rdma_destroy_id", "id", id) {
        0 => {
            fake.state().listener.take_if(|listener| *listener == id);
            fake.state().wire.forget_id(id);
            0
        }
        code => set_errno(code),
    }
}

extern "C" fn set_option(
    id: *mut rdma_cm_id,
    _: c_int,
    _: c_int,
    _: *mut c_void,
    _: usize,
) -> c_int {
    of(id).checked("rdma_set_option")
}

extern "C" fn bind_addr(id: *mut rdma_cm_id, _: *mut sockaddr) -> c_int {
    of(id).checked("rdma_bind_addr")
}

extern "C" fn listen(id: *mut rdma_cm_id, _: c_int) -> c_int {
    of(id).state().listener = Some(id);
    of(id).checked("rdma_listen")
}

extern "C" fn src_port(_: *mut rdma_cm_id) -> u16 {
    1_u16.to_be()
}

extern "C" fn resolve_addr(
    id: *mut rdma_cm_id,
    _: *mut sockaddr,
    _: *mut sockaddr,
    _: c_int,
) -> c_int {
    let code = of(id).checked("rdma_resolve_addr");
    if code == 0 {
        notify_owner(id, RDMA_CM_EVENT_ADDR_RESOLVED, None);
    }
    code
}

extern "C" fn resolve_route(id: *mut rdma_cm_id, _: c_int) -> c_int {
    let code = of(id).checked("rdma_resolve_route");
    if code == 0 {
        notify_owner(id, RDMA_CM_EVENT_ROUTE_RESOLVED, None);
    }
    code
}

extern "C" fn connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let fake = of(id);
    if fake.checked("rdma_connect") != 0 {
        return -1;
    }
    let listener = Some(fake.state()).and_then(|it| it.listener.filter(|_| it.wire.is_there));
    if let Some(listener) = listener {
        let (request, param) = (request(listener), seen(param));
        let event = RDMA_CM_EVENT_CONNECT_REQUEST;
        fake.state().wire.ask(id, param.qp_num, request);
        fake.state().wire.push(FakeEvent::new(request, listener, event, Some(param)));
    }
    0
}

extern "C" fn accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    if of(id).checked("rdma_accept") != 0 {
        return -1;
    }
    let asker = of(id).state().wire.accept(id, seen(param).qp_num);
    let Some(asker) = asker else { return 0 };
    if of(id).is_iwarp() {
        notify_owner(id, RDMA_CM_EVENT_ESTABLISHED, None);
        notify_owner(asker, RDMA_CM_EVENT_ESTABLISHED, Some(seen(param)));
    } else {
        notify_owner(asker, RDMA_CM_EVENT_CONNECT_RESPONSE, Some(seen(param)));
    }
    0
}

extern "C" fn establish(id: *mut rdma_cm_id) -> c_int {
    if of(id).checked("rdma_establish") != 0 {
        return -1;
    }
    let accepter = of(id).state().wire.accepter(id);
    if let Some(accepter) = accepter {
        notify_owner(accepter, RDMA_CM_EVENT_ESTABLISHED, None);
    }
    0
}

extern "C" fn reject(id: *mut rdma_cm_id, private: *const c_void, len: u8) -> c_int {
    if of(id).checked("rdma_reject") != 0 {
        return -1;
    }
    let asker = of(id).state().wire.asker(id);
    if let Some(asker) = asker {
        let mut padded = [0_u8; REJECT_LEN];
        let private = private.cast::<u8>();
        // SAFETY: the caller's private data are that long, and it is checked here that they fit.
        unsafe { ptr::copy_nonoverlapping(private, padded[..len.into()].as_mut_ptr(), len.into()) };
        // SAFETY: all members are integers and pointers, for which zeros are values.
        let mut conn: rdma_conn_param = unsafe { std::mem::zeroed() };
        (conn.private_data, conn.private_data_len) = (padded.as_ptr().cast(), REJECT_LEN as u8);
        let none = ptr::null_mut();
        let event = FakeEvent::new(asker, none, RDMA_CM_EVENT_REJECTED, Some(&conn));
        let status = if of(id).is_iwarp() { -libc::ECONNRESET } else { CONSUMER };
        of(id).state().wire.push(event.because(status));
    }
    0
}

extern "C" fn notify(id: *mut rdma_cm_id, _: c_uint) -> c_int {
    of(id).checked("rdma_notify")
}

extern "C" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    of(id).checked("rdma_disconnect")
}

extern "C" fn init_qp_attr(id: *mut rdma_cm_id, _: *mut ibv_qp_attr, _: *mut c_int) -> c_int {
    of(id).checked("rdma_init_qp_attr")
}

/// Bytes of private data that come with every rejection.
const REJECT_LEN: usize = 148;
/// The peer's program has rejected the request.
const CONSUMER: c_int = 28;

pub(super) static CM: Cm = Cm {
    rdma_get_devices: get_devices,
    rdma_free_devices: free_devices,
    rdma_create_event_channel: create_event_channel,
    rdma_destroy_event_channel: destroy_event_channel,
    rdma_get_cm_event: get_cm_event,
    rdma_ack_cm_event: ack_cm_event,
    rdma_create_id: create_id,
    rdma_destroy_id: destroy_id,
    rdma_set_option: set_option,
    rdma_bind_addr: bind_addr,
    rdma_listen: listen,
    rdma_get_src_port: src_port,
    rdma_resolve_addr: resolve_addr,
    rdma_resolve_route: resolve_route,
    rdma_connect: connect,
    rdma_establish: establish,
    rdma_accept: accept,
    rdma_reject: reject,
    rdma_notify: notify,
    rdma_disconnect: disconnect,
    rdma_init_qp_attr: init_qp_attr,
};
