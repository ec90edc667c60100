//! A peer that sends raw transmissions, as a test defines them, valid or not.
//!
//! ```text
//!   engine ◀── queue pair ──▶ RawPeer     send(bytes), recv() -> bytes, lost()
//! ```
#![expect(unsafe_code, reason = "posting is unsafe")]

use std::collections::VecDeque;
use std::time::Duration;

use rpcrdma::Address;
use rpcrdma::provider::{
    CmEvent, ConnParam, ConnectError, ConnectionManager, PostError, PrivateBytes, Provider,
    QueueAttr, Queues, RecvWr, Remote, SendFlags, SendOp, SendWr, Waker, WcBatch, WcOpcode,
    WcStatus, WrId,
};
use rpcrdma_mempool::{
    Access, Pool, PoolSpec, Region, RegionSpec, Registered, Rights, Sge, Token, kind,
};
use rpcrdma_xdr::numbers::{VERSION_TWO, opttype};
use rpcrdma_xdr::{
    Array, Body, ChunkLists, ConnProp, Header, Optional, PropSet, PropSubset, Property,
    RdmaSegment, RecvStructure, RtrSupport, SegmentGroup, Writer, XmtCont, XmtReq,
};

use crate::script::POISON;

/// One end of a connection, without a protocol.
pub struct RawPeer<P: Provider> {
    // Dropped before the memory that they reach.
    queues: P::Queues,
    cm: P::Cm,
    qp: Option<<P::Queues as Queues>::Qp>,
    waker: Waker,
    recv: Pool<kind::Recv>,
    send: Pool<kind::Send>,
    /// Buffers of Receives, by the name of their work request. Read only after it has completed.
    buffers: Vec<Token<kind::Recv>>,
    free: Vec<Token<kind::Send>>,
    sent: VecDeque<Sent>,
    /// Whether memory that a Read fills has to be exposed.
    reads_expose: bool,
    /// The memory exposed to the other side; the peer does not access it.
    exposed: Vec<(u32, Token<kind::Send>)>,
    arrived: VecDeque<Vec<u8>>,
    fetched: VecDeque<Vec<u8>>,
    is_lost: bool,
    /// What it says while connecting (RFC 8797).
    pub says: Vec<u8>,
    /// What its peer said, each time that they were connected.
    pub received: Vec<PrivateBytes>,
    /// Dropped behind the pools.
    _memory: Registered,
}

/// A request under way.
struct Sent {
    token: Token<kind::Send>,
    fetch: Option<Fetch>,
}

/// A Read: the bytes that it brings, and the key of their memory, if it has one.
#[derive(Clone, Copy)]
struct Fetch {
    len: usize,
    key: Option<u32>,
}

/// The structure of the peer's receive buffers: a leading segment, then placement segments.
pub fn structure() -> RecvStructure {
    let group = |count, length, placement| SegmentGroup { count, length, align: 1, placement };
    RecvStructure::new(&[group(1, 4096, false), group(4, SEGMENT, true)])
        .expect("a structure within the limits")
}

/// Bytes of the peer's placement segments.
pub const SEGMENT: u32 = 16 << 10;

impl<P: Provider> RawPeer<P> {
    /// Queues with Receives, and memory to send from.
    ///
    /// # Panics
    /// If they cannot be opened.
    pub fn new(provider: &P) -> RawPeer<P> {
        RawPeer::sized(provider, RECEIVES, SENDS)
    }

    /// The same with this number of Receives and of outstanding transmissions.
    ///
    /// # Panics
    /// If they cannot be opened.
    pub fn sized(provider: &P, receives: u32, sends: u32) -> RawPeer<P> {
        let recv_len = structure().total_len() as usize;
        let spec = |slots, slot_len| PoolSpec { slots, slot_len, align: 64 };
        let (recv, send) = (spec(receives, recv_len), spec(sends, SEND_LEN));
        let len = recv.region_len().and_then(|recv| Ok(recv + send.region_len()?));
        let mut spec = RegionSpec::new(len.expect("a length"));
        spec.prefault = false;
        spec.lock = false;
        let region = Region::map(&spec).expect("memory");
        let mut memory =
            Registered::new(region, provider.registrar(), Rights::own(Access::LOCAL_WRITE))
                .expect("a registration");
        let mut recv = Pool::new(&mut memory, &recv).expect("room for Receives");
        let mut send = Pool::new(&mut memory, &send).expect("room for sends");
        recv.poison(POISON);
        let attr = QueueAttr {
            srq_depth: receives,
            cq_depth: receives + sends,
            // A lost queue pair, and its successor.
            qp_max: 2,
            send_depth: sends,
            send_sge: 1,
            recv_sge: 1,
        };
        let buffers = std::iter::from_fn(|| recv.pop()).collect();
        let free = std::iter::from_fn(|| send.pop()).collect();
        let mut peer: RawPeer<P> = RawPeer {
            queues: provider.open_queues(&attr).expect("queues"),
            cm: provider.open_cm().expect("a connection manager"),
            qp: None,
            waker: Waker::new().expect("a file descriptor"),
            recv,
            send,
            buffers,
            free,
            sent: VecDeque::new(),
            reads_expose: provider.caps().reads_expose,
            exposed: Vec::new(),
            arrived: VecDeque::new(),
            fetched: VecDeque::new(),
            is_lost: false,
            says: Vec::new(),
            received: Vec::new(),
            _memory: memory,
        };
        for index in 0..receives {
            let list = [peer.recv.sge(&peer.buffers[index as usize], 0..recv_len)];
            // SAFETY: the buffer was never posted.
            unsafe { peer.queues.describe_recv(index, &list) };
            peer.post(index);
        }
        peer
    }

    /// Requests a connection. [`RawPeer::turn`] completes it.
    ///
    /// # Panics
    /// If the device cannot start another.
    pub fn connect(&mut self, to: Address) {
        let param = ConnParam { private: &self.says, rnr_retry: 7, send_timeout: None };
        self.cm.connect(to, &self.queues.handle(), &param).expect("an attempt");
    }

    /// Listens for one connection. [`RawPeer::turn`] accepts it.
    ///
    /// # Panics
    /// If there is no free address.
    pub fn listen(&mut self) -> Address {
        self.listen_at("127.0.0.1:0".parse().expect("an address"))
    }

    /// Listens at an address.
    ///
    /// # Panics
    /// If it is in use.
    pub fn listen_at(&mut self, at: Address) -> Address {
        self.cm.listen(at).expect("a port")
    }

    /// Handles events and completions.
    ///
    /// # Errors
    /// Why a requested connection failed.
    ///
    /// # Panics
    /// If the device fails.
    pub fn turn(&mut self) -> Result<(), ConnectError> {
        let says = self.says.clone();
        let param = ConnParam { private: &says, rnr_retry: 7, send_timeout: None };
        while let Some(event) = self.cm.next(&self.waker, Duration::ZERO) {
            let (endpoint, private) = match event {
                CmEvent::Request { request, private, .. } if self.qp.is_none() || self.is_lost => {
                    let handle = self.queues.handle();
                    let endpoint = self.cm.accept(request, &handle, &param).expect("an endpoint");
                    (endpoint, private)
                }
                CmEvent::Request { request, .. } => {
                    self.cm.reject(request, &[]);
                    continue;
                }
                CmEvent::Connected { endpoint, private, .. } => (endpoint, private),
                CmEvent::Refused { reason, .. } => return Err(reason),
            };
            self.received.push(private);
            // One connection at a time: a lost one is forgotten, with its sends.
            if let Some(old) = self.qp.take() {
                self.queues.disconnect(old);
                self.queues.destroy(old);
                while let Some(sent) = self.sent.pop_front() {
                    self.release(sent);
                }
                self.is_lost = false;
            }
            self.qp = Some(self.queues.attach(endpoint).expect("a queue pair").qp);
        }
        let mut batch = WcBatch::new();
        self.queues.poll_cq(&mut batch).expect("the completion queue is large enough");
        for wc in batch {
            if wc.wr_id.0 & SEND != 0 {
                self.is_lost |= wc.status != WcStatus::Success;
                if let Some(sent) = self.sent.pop_front() {
                    if let (Some(fetch), WcStatus::Success) = (sent.fetch, wc.status) {
                        let bytes = self.send.bytes(&sent.token);
                        self.fetched.push_back(bytes[..fetch.len].to_vec());
                    }
                    self.release(sent);
                }
            } else if wc.status == WcStatus::Success {
                debug_assert_eq!(wc.opcode, WcOpcode::Recv);
                let index = wc.wr_id.0 as u32;
                let bytes = self.recv.bytes(&self.buffers[index as usize]);
                self.arrived.push_back(bytes[..wc.byte_len as usize].to_vec());
                self.post(index);
            }
        }
        while self.queues.next_event().is_some() {
            self.is_lost = true;
        }
        Ok(())
    }

    /// Sends a transmission. False if the connection is lost, or no buffer is free.
    ///
    /// # Panics
    /// If it is longer than a buffer, or the peer is not connected.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.post_send(SendOp::Send, bytes)
    }

    /// As [`RawPeer::send`], with an invalidation of a key of the other side.
    ///
    /// # Panics
    /// As [`RawPeer::send`].
    pub fn send_invalidate(&mut self, bytes: &[u8], rkey: u32) -> bool {
        self.post_send(SendOp::SendInvalidate { rkey }, bytes)
    }

    /// Writes to memory of the other side.
    ///
    /// # Panics
    /// As [`RawPeer::send`].
    pub fn write(&mut self, to: &RdmaSegment, bytes: &[u8]) -> bool {
        let RdmaSegment { handle: rkey, offset: addr, .. } = *to;
        self.post_send(SendOp::Write(Remote { addr, rkey }), bytes)
    }

    /// Reads memory of the other side. What was read comes from [`RawPeer::fetched`]. False as for
    /// [`RawPeer::send`].
    ///
    /// # Panics
    /// If it is longer than a buffer, or the peer is not connected.
    pub fn read(&mut self, from: &RdmaSegment) -> bool {
        let RdmaSegment { handle: rkey, offset: addr, length } = *from;
        let Some(token) = self.free.pop() else { return false };
        let len = length as usize;
        let mut sge = self.send.sge(&token, 0..len);
        let key = self.reads_expose.then(|| {
            // SAFETY: the slot's token goes into `sent`, and comes back after the key was concealed.
            unsafe { self.queues.expose(&sge, Access::REMOTE_WRITE) }.expect("a registration")
        });
        sge.lkey = key.unwrap_or(sge.lkey);
        let fetch = Some(Fetch { len, key });
        self.post_request(SendOp::Read(Remote { addr, rkey }), sge, Sent { token, fetch })
    }

    /// The oldest bytes that were read.
    pub fn fetched(&mut self) -> Option<Vec<u8>> {
        self.fetched.pop_front()
    }

    /// Exposes a copy of these bytes to the other side, until [`RawPeer::hide`].
    ///
    /// # Panics
    /// If no buffer is free.
    pub fn show(&mut self, bytes: &[u8], access: Access) -> RdmaSegment {
        let mut token = self.free.pop().expect("a buffer");
        self.send.bytes_mut(&mut token)[..bytes.len()].copy_from_slice(bytes);
        let sge = self.send.sge(&token, 0..bytes.len());
        // SAFETY: the slot is not accessed while its token is in `exposed`, which it leaves after the
        // key was concealed, or never.
        let handle = unsafe { self.queues.expose(&sge, access) }.expect("a registration");
        self.exposed.push((handle, token));
        RdmaSegment { handle, length: sge.length, offset: sge.addr }
    }

    /// Exposes these bytes no longer.
    ///
    /// # Panics
    /// If they are not exposed, or the device does not end that.
    pub fn hide(&mut self, exposed: &RdmaSegment) {
        let index = self.exposed.iter().position(|(key, _)| *key == exposed.handle);
        let (key, token) = self.exposed.swap_remove(index.expect("it is exposed"));
        self.queues.conceal(key).expect("a key of this side");
        self.free.push(token);
    }

    /// The content of exposed memory, after the peer's last write.
    ///
    /// # Panics
    /// If it is not exposed.
    pub fn seen(&self, exposed: &RdmaSegment) -> Vec<u8> {
        let (_, token) =
            self.exposed.iter().find(|(key, _)| *key == exposed.handle).expect("it is exposed");
        self.send.bytes(token)[..exposed.length as usize].to_vec()
    }

    fn post_send(&mut self, op: SendOp, bytes: &[u8]) -> bool {
        let Some(mut token) = self.free.pop() else { return false };
        self.send.bytes_mut(&mut token)[..bytes.len()].copy_from_slice(bytes);
        let sge = self.send.sge(&token, 0..bytes.len());
        self.post_request(op, sge, Sent { token, fetch: None })
    }

    fn post_request(&mut self, op: SendOp, sge: Sge, sent: Sent) -> bool {
        let qp = self.qp.expect("a connection");
        let sgl = [sge];
        let wr = SendWr { wr_id: WrId(SEND), op, sgl: &sgl, flags: SendFlags::SIGNALED };
        // SAFETY: the slot's token goes into `sent` and comes back with the completion; requests of
        // one queue pair complete in order.
        let (taken, why) = unsafe { self.queues.post_send(qp, [wr].into_iter()) }.of(1);
        self.is_lost |= why == Some(PostError::QpGone);
        match taken {
            1 => self.sent.push_back(sent),
            _ => self.release(sent),
        }
        taken == 1
    }

    /// Takes back the memory of a request that is over. What the device keeps open is leaked.
    fn release(&mut self, sent: Sent) {
        let key = sent.fetch.and_then(|fetch| fetch.key);
        if key.is_none_or(|key| self.queues.conceal(key).is_ok()) {
            self.free.push(sent.token);
        }
    }

    /// The oldest transmission that has arrived.
    pub fn recv(&mut self) -> Option<Vec<u8>> {
        self.arrived.pop_front()
    }

    /// Whether it is connected.
    pub fn is_connected(&self) -> bool {
        self.qp.is_some() && !self.is_lost
    }

    /// Whether the connection was established and is lost.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether the other side has received every transmission, or the connection is lost.
    pub fn is_quiet(&self) -> bool {
        self.sent.is_empty()
    }

    /// Ends the connection.
    pub fn disconnect(&mut self) {
        if let Some(qp) = self.qp {
            self.queues.disconnect(qp);
            self.is_lost = true;
        }
    }

    fn post(&mut self, index: u32) {
        let wr = RecvWr { wr_id: WrId(index.into()), buffer: index };
        // SAFETY: the buffer is accessed only between its completion and the next post.
        let (taken, why) = unsafe { self.queues.post_srq_recv([wr].into_iter()) }.of(1);
        assert_eq!((taken, why), (1, None), "as many Receives as buffers");
    }
}

impl<P: Provider> Drop for RawPeer<P> {
    /// Returns the buffers to their pools. The queues are dropped before the pools and their
    /// memory, so the device no longer accesses it; memory that a device keeps is leaked.
    fn drop(&mut self) {
        self.buffers.drain(..).for_each(|token| self.recv.push(token));
        for (key, token) in self.exposed.drain(..) {
            if self.queues.conceal(key).is_ok() {
                self.send.push(token);
            }
        }
        while let Some(sent) = self.sent.pop_front() {
            self.release(sent);
        }
        self.free.drain(..).for_each(|token| self.send.push(token));
    }
}

/// A header and the bytes that follow it, as one transmission.
///
/// # Panics
/// If the header has more than 4096 bytes.
pub fn transmission(header: &Header<'_>, behind: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 4096];
    let mut writer = Writer::new(&mut bytes);
    header.encode(&mut writer).expect("a header of at most 4096 bytes");
    let mut bytes = writer.written().to_vec();
    bytes.extend_from_slice(behind);
    bytes
}

/// An RPC message in one transmission, without chunks or items.
pub fn message(xid: u32, kind: u32, credit: u32, behind: &[u8]) -> Vec<u8> {
    let body = Body::Msg(ChunkLists::EMPTY);
    let mut payload = Vec::new();
    payload.extend_from_slice(&xid.to_be_bytes());
    payload.extend_from_slice(&kind.to_be_bytes());
    payload.extend_from_slice(behind);
    transmission(&Header { xid, vers: VERSION_TWO, credit, body }, &payload)
}

/// A message of an extension, which requests 16 credits.
pub fn optional(xid: u32, optional: Optional<'_>, behind: &[u8]) -> Vec<u8> {
    let body = Body::Optional(optional);
    transmission(&Header { xid, vers: VERSION_TWO, credit: 16, body }, behind)
}

/// The first of `count` transmissions of a call, without items.
pub fn initial(xid: u32, count: u32, payload: &[u8]) -> Vec<u8> {
    let (dp, rsd, pslen) = (Array::EMPTY, Array::EMPTY, payload.len() as u32);
    optional(xid, Optional::XmtReq(XmtReq { dp, rsd, count, rsbuf: 1, pslen }), payload)
}

/// A later transmission of a call.
pub fn continuation(xid: u32, xnum: u32, payload: &[u8]) -> Vec<u8> {
    let cont = XmtCont { xnum, itype: opttype::XMTREQ, pslen: payload.len() as u32 };
    optional(xid, Optional::XmtCont(cont), payload)
}

/// The properties of a raw peer that receives 4096 bytes, supports chunks, and does not support the
/// extension.
///
/// # Panics
/// Never.
pub fn base_properties(xid: u32, credit: u32) -> Vec<u8> {
    let mut buffer = [0; Property::LEN_MAX];
    let start = [Property::RecvBufferSize(4096).encode(&mut buffer).expect("four bytes")];
    let start = PropSet::from_slice(&start);
    let optional = Optional::ConnProp(ConnProp { start, nochg: PropSubset::EMPTY });
    transmission(&Header { xid, vers: VERSION_TWO, credit, body: Body::Optional(optional) }, &[])
}

/// The default properties of a raw peer: buffers with placement segments, groups of 16, all
/// operations.
pub fn properties(xid: u32, credit: u32) -> Vec<u8> {
    properties_with(xid, credit, RtrSupport::XREQ | RtrSupport::XRESP | RtrSupport::XCONT)
}

/// The same, with these operations.
pub fn properties_with(xid: u32, credit: u32, support: RtrSupport) -> Vec<u8> {
    let structure = structure();
    let values = [
        Property::RecvBufferSize(structure.total_len()),
        Property::RecvStructure(structure),
        Property::RequestRxLimit(16),
        Property::ResponseSxLimit(16),
        Property::RtrSupport(support),
    ];
    let mut buffers = [[0; Property::LEN_MAX]; 5];
    let mut set = Vec::new();
    for (value, buffer) in values.iter().zip(&mut buffers) {
        set.push(value.encode(buffer).expect("LEN_MAX bytes are enough"));
    }
    let start = PropSet::from_slice(&set);
    let optional = Optional::ConnProp(ConnProp { start, nochg: PropSubset::EMPTY });
    transmission(&Header { xid, vers: VERSION_TWO, credit, body: Body::Optional(optional) }, &[])
}

/// The number of Receives of a raw peer.
const RECEIVES: u32 = 64;
/// The maximum number of outstanding transmissions of a raw peer.
const SENDS: u32 = 256;
/// Bytes of the longest transmission of a raw peer: longer than any Receive.
const SEND_LEN: usize = 72 << 10;
/// Marks the work requests of sends.
const SEND: u64 = 1 << 63;
