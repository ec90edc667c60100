//! A fake librdmacm without a network: ids are created and destroyed, and no peer answers.

use libc::sockaddr;

use super::*;
use crate::sys::cm::*;

/// A channel, which begins as the library's does.
#[repr(C)]
struct FakeChannel {
    raw: rdma_event_channel,
    board: *const Board,
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
    let channel = FakeChannel { raw, board: current() };
    current().make("rdma_create_event_channel", "cm channel", channel).cast()
}

fn of_channel<'a>(channel: *mut rdma_event_channel) -> &'a Board {
    // SAFETY: the channel is one of these, and boards live until the process ends.
    unsafe { &*seen(channel.cast::<FakeChannel>()).board }
}

extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    let board = of_channel(channel);
    board.destroy("rdma_destroy_event_channel", "cm channel", channel.cast::<FakeChannel>());
}

impl Board {
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
    let board = of_channel(channel);
    if let Err(code) = board.called("rdma_get_cm_event") {
        return set_errno(code);
    }
    let asked = board.state().asking.checked_sub(1);
    let (Some(left), Some(listen_id)) = (asked, board.state().listener) else {
        return set_errno(libc::EAGAIN);
    };
    board.state().asking = left;
    let mut id = ptr::null_mut();
    create_id(channel, &raw mut id, ptr::null_mut(), RDMA_PS_TCP);
    seen(id).route.addr.dst_addr.ss_family = libc::AF_INET as libc::sa_family_t;
    // SAFETY: all members are integers and pointers, for which zeros are values.
    let nothing: rdma_cm_event = unsafe { std::mem::zeroed() };
    let asks = rdma_cm_event { id, listen_id, event: RDMA_CM_EVENT_CONNECT_REQUEST, ..nothing };
    *seen(event) = Box::into_raw(Box::new(asks));
    0
}

extern "C" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: it was made above, and is acknowledged once.
    drop(unsafe { Box::from_raw(event) });
    0
}

extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_uint,
) -> c_int {
    let board = of_channel(channel);
    // SAFETY: all members are integers and pointers, for which zeros are values.
    let mut new: rdma_cm_id = unsafe { std::mem::zeroed() };
    (new.verbs, new.channel, new.context, new.ps) = (board.raw(), channel, context, ps);
    *seen(id) = board.make("rdma_create_id", "id", new);
    if seen(id).is_null() { -1 } else { 0 }
}

fn of<'a>(id: *mut rdma_cm_id) -> &'a Board {
    of_channel(seen(id).channel)
}

extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    match of(id).destroy("rdma_destroy_id", "id", id) {
        0 => 0,
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
    of(id).checked("rdma_resolve_addr")
}

extern "C" fn resolve_route(id: *mut rdma_cm_id, _: c_int) -> c_int {
    of(id).checked("rdma_resolve_route")
}

extern "C" fn connect(id: *mut rdma_cm_id, _: *mut rdma_conn_param) -> c_int {
    of(id).checked("rdma_connect")
}

extern "C" fn establish(id: *mut rdma_cm_id) -> c_int {
    of(id).checked("rdma_establish")
}

extern "C" fn accept(id: *mut rdma_cm_id, _: *mut rdma_conn_param) -> c_int {
    of(id).checked("rdma_accept")
}

extern "C" fn reject(id: *mut rdma_cm_id, _: *const c_void, _: u8) -> c_int {
    of(id).checked("rdma_reject")
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
