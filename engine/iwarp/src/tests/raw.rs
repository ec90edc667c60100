//! A peer that a test plays by hand: a plain TCP stream, whose bytes the test makes itself.
//!
//! The numbers of the wire are written out here and not taken from the code under test.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rpcrdma_conformance::host::*;
use rpcrdma_provider::{
    Attached, CmEvent, ConnParam, ConnectionManager, Provider, Queues, WcStatus,
};

use super::rules::{Host, Qp};
use crate::{Tcp, TcpCm, TcpOptions};

/// The peer's end of a connection whose other end a [`Host`] has.
pub(super) struct Raw {
    pub stream: TcpStream,
    has_crc: bool,
    /// Bytes that were received and not looked at.
    received: Vec<u8>,
}

/// A host with a connection that a test disturbs, and one that goes on.
pub(super) struct Scene {
    pub device: Tcp,
    pub host: Host,
    pub raw: Raw,
    pub qp: Attached<Qp>,
    pub other: Raw,
    pub other_qp: Attached<Qp>,
}

impl Scene {
    /// The peers have connected, and said nothing yet.
    pub(super) fn with(options: TcpOptions, start: Start) -> Scene {
        let device = Tcp::with_options(options).unwrap();
        let mut host = Host::new(&device, &SMALL);
        let (raw, qp) = Raw::connect(&device, &mut host, start);
        let (other, other_qp) = Raw::connect(&device, &mut host, PLAIN);
        Scene { device, host, raw, qp, other, other_qp }
    }

    /// The peers have begun.
    pub(super) fn new(crc: bool) -> Scene {
        let mut scene = Scene::with(TcpOptions::default(), Start { crc, ..PLAIN });
        scene.raw.send(&[&[]; 1]);
        scene.other.send(&[&[]; 1]);
        assert_eq!(scene.host.poll_dry(), []);
        scene
    }

    /// The other connection is as it was. `number` is that of its next Send.
    pub(super) fn other_goes_on(&mut self, number: u32) {
        self.host.recv(900, 200_000, 64);
        self.other.send(&[send(number, b"fine")]);
        assert_eq!(self.host.poll_dry(), [received(900, self.other_qp, 4)]);
        self.host.send(self.other_qp.qp, 901, b"answer").unwrap();
        assert_eq!(self.other.receive(), Some(send(number, b"answer")));
        assert_eq!(brief(&self.host.poll_dry()), [(901, WcStatus::Success)]);
    }
}

/// How a peer connects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub crc: bool,
    /// IRD and ORD of an enhanced start. Without them it is one of revision 1.
    pub depths: Option<(u16, u16)>,
}

/// The start of most tests.
pub(super) const PLAIN: Start = Start { crc: false, depths: None };

impl Raw {
    /// Connects to a host, which accepts it.
    pub(super) fn connect(device: &Tcp, host: &mut Host, start: Start) -> (Raw, Attached<Qp>) {
        let mut cm = device.open_cm().unwrap();
        let at = cm.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut stream = TcpStream::connect(at.as_ip().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&request(start)).unwrap();
        let request = loop {
            if let Some(CmEvent::<TcpCm>::Request { request, .. }) = next(&mut cm) {
                break request;
            }
        };
        let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
        let endpoint = cm.accept(request, &host.queues.handle(), &param).unwrap();
        let qp = host.queues.attach(endpoint).unwrap();
        let mut head = [0; 20];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head[..16], b"MPA ID Rep Frame");
        let has_crc = head[16] & 0x40 != 0;
        let mut private = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
        stream.read_exact(&mut private).unwrap();
        (Raw { stream, has_crc, received: Vec::new() }, qp)
    }

    /// Sends bytes as they are.
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends FPDUs with these ULPDUs.
    pub(super) fn send<U: AsRef<[u8]>>(&mut self, ulpdus: &[U]) {
        let bytes: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| self.fpdu(ulpdu.as_ref())).collect();
        self.send_bytes(&bytes);
    }

    /// An FPDU with this ULPDU.
    pub(super) fn fpdu(&self, ulpdu: &[u8]) -> Vec<u8> {
        fpdu(ulpdu, self.has_crc)
    }

    /// The next ULPDU. None at the end of the stream, or if it was reset.
    pub(super) fn receive(&mut self) -> Option<Vec<u8>> {
        self.receive_while(|| panic!("nothing comes"))
    }

    /// As [`Raw::receive`]. Something else is done whenever nothing has come for a while.
    pub(super) fn receive_while(&mut self, mut wait: impl FnMut()) -> Option<Vec<u8>> {
        loop {
            if let Some(len) = self.received.first_chunk().map(|len| u16::from_be_bytes(*len)) {
                let len = usize::from(len);
                let whole = (2 + len).next_multiple_of(4) + 4;
                if self.received.len() >= whole {
                    let ulpdu = self.received[2..2 + len].to_vec();
                    assert_eq!(self.received[..whole], self.fpdu(&ulpdu), "padding and CRC");
                    self.received.drain(..whole);
                    return Some(ulpdu);
                }
            }
            let mut bytes = [0; 65_536];
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    assert!(self.received.is_empty(), "the stream ends within an FPDU");
                    return None;
                }
                Ok(len) => self.received.extend(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The reason of the Terminate message that comes next and ends the stream: layer, type, code.
    /// None if the stream ends without one.
    pub(super) fn receive_end(&mut self) -> Option<(u8, u8, u8)> {
        let ulpdu = self.receive()?;
        assert_eq!(ulpdu[..2], [0x41, 0x47], "a Terminate message, {ulpdu:?}");
        assert_eq!(ulpdu[2..18], [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(self.receive(), None, "nothing follows it");
        Some((ulpdu[18] >> 4, ulpdu[18] & 0xf, ulpdu[19]))
    }
}

/// A request of an initiator.
fn request(Start { crc, depths }: Start) -> Vec<u8> {
    let mut bytes = b"MPA ID Req Frame".to_vec();
    let crc = if crc { 0x40 } else { 0 };
    match depths {
        None => bytes.extend([crc, 1, 0, 0]),
        Some((ird, ord)) => {
            bytes.extend([crc | 0x10, 2, 0, 4]);
            bytes.extend(ird.to_be_bytes());
            bytes.extend(ord.to_be_bytes());
        }
    }
    bytes
}

/// An FPDU with this ULPDU. Without a CRC its place has anything.
pub(super) fn fpdu(ulpdu: &[u8], has_crc: bool) -> Vec<u8> {
    let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
    bytes.extend(ulpdu);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let crc = if has_crc { crc32c::crc32c(&bytes) } else { 0 };
    bytes.extend(crc.to_le_bytes());
    bytes
}

/// A segment of a queue: control word, key to invalidate, queue, number, offset, payload.
pub(super) fn untagged(
    control: u16,
    [key, queue, number, offset]: [u32; 4],
    rest: &[u8],
) -> Vec<u8> {
    let mut bytes = control.to_be_bytes().to_vec();
    bytes.extend([key, queue, number, offset].into_iter().flat_map(u32::to_be_bytes));
    bytes.extend(rest);
    bytes
}

/// A segment for memory: control word, key, offset, payload.
pub(super) fn tagged(control: u16, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = control.to_be_bytes().to_vec();
    bytes.extend(stag.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A Send in one segment.
pub(super) fn send(number: u32, payload: &[u8]) -> Vec<u8> {
    untagged(SEND | LAST, [0, 0, number, 0], payload)
}

/// A Read Request: the key and offset of the sink, the length, the key and offset of the source.
pub(super) fn read(number: u32, sink: (u32, u64), len: u32, source: (u32, u64)) -> Vec<u8> {
    untagged(READ | LAST, [0, 1, number, 0], &read_payload(sink, len, source))
}

pub(super) fn read_payload(sink: (u32, u64), len: u32, source: (u32, u64)) -> Vec<u8> {
    let mut bytes = sink.0.to_be_bytes().to_vec();
    bytes.extend(sink.1.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(source.0.to_be_bytes());
    bytes.extend(source.1.to_be_bytes());
    bytes
}

/// A Terminate message.
pub(super) fn terminate(number: u32, payload: &[u8]) -> Vec<u8> {
    untagged(TERMINATE | LAST, [0, 2, number, 0], payload)
}

/// Control words: the versions, and the operation.
pub(super) const WRITE: u16 = 0x8140;
pub(super) const RESPONSE: u16 = 0x8142;
pub(super) const READ: u16 = 0x0141;
pub(super) const SEND: u16 = 0x0143;
pub(super) const SEND_INVALIDATE: u16 = 0x0144;
pub(super) const TERMINATE: u16 = 0x0147;
/// The last segment of a message.
pub(super) const LAST: u16 = 0x4000;
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(20);
