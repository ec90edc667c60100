//! The Sends of a capture of RoCE, one a line as the codec reads them: an independent reader of what
//! the dissector for Wireshark shows.

use std::collections::HashMap;
use std::process::ExitCode;

use rpcrdma_xdr::Header;

const USAGE: &str = "transmissions FILE

Prints of every Send of version two the number of its last packet, and its header. FILE is a capture
in pcap format of Ethernet frames, as qemu writes them.";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let lines = std::fs::read(&file).map_err(|why| why.to_string()).and_then(|bytes| lines(&bytes));
    match lines {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{file}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn lines(capture: &[u8]) -> Result<Vec<String>, String> {
    let mut rest = match capture.split_first_chunk::<24>() {
        Some((header, rest)) if header[..4] == MAGIC => rest,
        _ => return Err("not a capture in pcap format of this byte order".into()),
    };
    let (mut flows, mut lines) = (HashMap::<FlowKey, Flow>::new(), Vec::new());
    let mut number = 0;
    while let Some((header, tail)) = rest.split_first_chunk::<16>() {
        number += 1;
        let len = u32::from_le_bytes(*header[8..].first_chunk().expect("eight bytes")) as usize;
        let (frame, tail) = tail.split_at_checked(len).ok_or("the last packet is cut short")?;
        rest = tail;
        let Some(packet) = Packet::parse(frame) else { continue };
        let flow = flows.entry(packet.flow.clone()).or_default();
        let Some(message) = flow.add(&packet) else { continue };
        if message.get(4..8) != Some(&[0, 0, 0, 2]) {
            continue;
        }
        let text = match Header::decode(&message) {
            Ok((header, _)) => header.to_string(),
            Err(why) => format!("not a header: {why}"),
        };
        lines.push(format!("{number}\t{text}"));
    }
    Ok(lines)
}

/// The start of a pcap file with times in microseconds.
const MAGIC: [u8; 4] = 0xa1b2_c3d4_u32.to_le_bytes();

/// Addresses of the hosts, and the queue pair of the receiver.
type FlowKey = (Vec<u8>, [u8; 3]);

/// A packet of a Send: the header of InfiniBand's transport, and what follows it.
struct Packet<'a> {
    flow: FlowKey,
    place: Place,
    number: u32,
    payload: &'a [u8],
}

/// The part of a Send that a packet is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    First,
    Middle,
    Last,
    Only,
}

impl<'a> Packet<'a> {
    /// `None` for everything but Sends of a reliable connection over RoCE version two.
    fn parse(frame: &'a [u8]) -> Option<Self> {
        let (ethernet, ip) = frame.split_at_checked(14)?;
        let (addresses, udp) = match [ethernet[12], ethernet[13]] {
            [0x08, 0x00] if *ip.get(9)? == UDP => {
                let (header, udp) = ip.split_at_checked(4 * usize::from(ip[0] & 15))?;
                (header.get(12..20)?, udp)
            }
            [0x86, 0xdd] if *ip.get(6)? == UDP => (ip.get(8..40)?, ip.get(40..)?),
            _ => return None,
        };
        let (ports, transport) = udp.split_at_checked(8)?;
        let len = usize::from(u16::from_be_bytes([ports[4], ports[5]])).checked_sub(8)?;
        let (bth, rest) = transport.get(..len)?.split_first_chunk::<12>()?;
        // The opcodes of a reliable connection; before the payload of some is another header.
        let (place, extended) = match bth[0] {
            0 => (Place::First, 0),
            1 => (Place::Middle, 0),
            2 => (Place::Last, 0),
            3 | 22 => (Place::Last, 4),
            4 => (Place::Only, 0),
            5 | 23 => (Place::Only, 4),
            _ => return None,
        };
        if [ports[2], ports[3]] != ROCE {
            return None;
        }
        let pad = usize::from(bth[1] >> 4 & 3);
        let payload = rest.get(extended..rest.len().checked_sub(pad + CHECKSUM)?)?;
        let flow = (addresses.to_vec(), [bth[5], bth[6], bth[7]]);
        let number = u32::from_be_bytes([0, bth[9], bth[10], bth[11]]);
        Some(Self { flow, place, number, payload })
    }
}

const UDP: u8 = 17;
/// UDP port 4791.
const ROCE: [u8; 2] = [0x12, 0xb7];
/// Bytes behind a payload.
const CHECKSUM: usize = 4;
/// The numbers of packets have 24 bits.
const NUMBERS: u32 = 1 << 24;

/// The Sends to one queue pair.
#[derive(Default)]
struct Flow {
    next: Option<u32>,
    message: Vec<u8>,
}

impl Flow {
    /// The message that the packet completes. A device sends packets again, with the same numbers.
    fn add(&mut self, packet: &Packet<'_>) -> Option<Vec<u8>> {
        let ahead = self.next.map_or(0, |next| packet.number.wrapping_sub(next) % NUMBERS);
        if ahead >= NUMBERS / 2 {
            return None;
        }
        self.next = Some((packet.number + 1) % NUMBERS);
        if matches!(packet.place, Place::First | Place::Only) {
            self.message.clear();
        }
        self.message.extend(packet.payload);
        let is_whole = matches!(packet.place, Place::Last | Place::Only);
        is_whole.then(|| std::mem::take(&mut self.message))
    }
}
