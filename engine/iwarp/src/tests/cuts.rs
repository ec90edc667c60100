//! A stream that is cut anywhere means the same: TCP keeps no boundaries.

use rpcrdma_conformance::host::*;
use rpcrdma_mempool::Access;
use rpcrdma_provider::{QueueEvent, Remote, SendOp, WcOpcode, WorkCompletion};

use super::raw::{self, *};
use super::rules::Host;
use crate::{Tcp, TcpOptions};

/// What a host has seen of a conversation.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    completions: Vec<WorkCompletion>,
    /// Its memory.
    bytes: Vec<u8>,
    /// What the peer has received of it.
    received: Vec<Vec<u8>>,
    events: usize,
}

/// The conversation, with the peer's part cut at these places. Returns its length, too.
fn converse(crc: bool, cuts: impl Iterator<Item = usize>) -> (Seen, usize) {
    let options = TcpOptions { key_seed: Some(1), ..TcpOptions::default() };
    let device = Tcp::with_options(options).unwrap();
    let mut host = Host::new(&device, &SMALL);
    let (mut raw, qp) = Raw::connect(&device, &mut host, Start { crc, ..PLAIN });
    (0..5).for_each(|id| host.recv(id, 1024 * (1 + id as usize), 1024));
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let rkey = host.bind(qp.qp, (0, 512), access);
    let returned = host.bind(qp.qp, (0, 512), access);
    let first = host.at(0);
    // The host may send when the peer has begun.
    raw.send(&[&[]; 1]);
    assert_eq!(host.poll_dry(), []);
    let sgl = [host.sge(8192, 100), host.sge(9000, 250)];
    host.post(qp.qp, 77, SendOp::Read(Remote { addr: 5, rkey: 6 }), &sgl);
    let request = raw.receive().expect("a Read Request");
    let sink = u32::from_be_bytes(request[18..22].try_into().unwrap());

    let bytes: Vec<u8> = (0..=255).collect();
    let part = |offset: usize, len: usize, is_last: bool| {
        let control = if is_last { SEND | LAST } else { SEND };
        untagged(control, [0, 0, 3, offset as u32], &bytes[offset..offset + len])
    };
    let ulpdus = [
        send(1, b"hello"),
        send(2, &[]),
        tagged(WRITE, rkey, first + 16, &bytes[..33]),
        tagged(WRITE | LAST, rkey, first + 200, &bytes[33..37]),
        part(0, 100, false),
        tagged(RESPONSE, sink, 0, &bytes[..99]),
        part(100, 1, false),
        part(101, 0, false),
        part(101, 155, true),
        vec![],
        tagged(WRITE | LAST, 0, 0, &[]),
        tagged(RESPONSE | LAST, sink, 99, &[9; 251]),
        raw::read(1, (0xabcd, 3), 40, (rkey, first + 10)),
        raw::read(2, (0xabcd, 77), 0, (0, 0)),
        untagged(SEND_INVALIDATE | LAST, [returned, 0, 4, 0], b"take it back"),
        untagged(0x4145, [0xffff, 0, 5, 0], &[1; 225]),
    ];
    let stream: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| raw.fpdu(ulpdu)).collect();
    let (mut completions, mut from) = (Vec::new(), 0);
    for until in cuts.chain([stream.len()]) {
        raw.send_bytes(&stream[from..until]);
        from = until;
        completions.extend(host.poll());
    }
    completions.extend(host.poll_dry());
    let received = (0..2).map(|_| raw.receive().expect("a Response")).collect();
    raw.stream.shutdown(std::net::Shutdown::Write).unwrap();
    completions.extend(host.poll_dry());
    let events = host.events();
    assert_eq!(events, [QueueEvent::Disconnected { qp_num: qp.qp_num }]);
    // A Read completes when its Responses have come, whatever Receives complete meanwhile.
    completions.sort_by_key(|wc| wc.opcode != WcOpcode::Recv);
    let seen = Seen { completions, bytes: host.read(0, 16_384), received, events: events.len() };
    (seen, stream.len())
}

#[test]
fn a_stream_cut_at_any_byte_means_the_same() {
    for crc in [false, true] {
        let (whole, len) = converse(crc, std::iter::empty());
        let ids: Vec<u64> = whole.completions.iter().map(|wc| wc.wr_id.0).collect();
        assert_eq!(ids.len(), 6);
        assert_eq!(whole.received[0], tagged(RESPONSE | LAST, 0xabcd, 3, &whole.bytes[10..50]));
        assert_eq!(whole.received[1], tagged(RESPONSE | LAST, 0xabcd, 77, &[]));
        assert_eq!(whole.bytes[16..49], (0..33).collect::<Vec<u8>>());
        assert_eq!(whole.bytes[3072..3328], (0..=255).collect::<Vec<u8>>());
        for cut in 0..len {
            let (seen, _) = converse(crc, [cut].into_iter());
            assert_eq!(seen, whole, "cut at {cut}");
        }
        let (seen, _) = converse(crc, 0..len);
        assert_eq!(seen, whole, "cut everywhere");
        for step in [2, 3, 5, 17, 64, 255] {
            let (seen, _) = converse(crc, (0..len).step_by(step));
            assert_eq!(seen, whole, "cut every {step} bytes");
        }
    }
}
