//! The FPDUs of a capture of iWARP, counted: an independent reader of what tshark dissects.

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;

const USAGE: &str = "fpdus FILE

Prints of every operation (RFC 5040 4.2) its number, how many FPDUs have it, and how many of these end
a message; then how many FPDUs have a checksum that was agreed on. FILE is a capture in pcap format of
Ethernet frames, as qemu writes them. Fails if a stream is not what RFC 5044 and 5041 say.";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let counted = std::fs::read(&file).map_err(|why| why.to_string());
    match counted.and_then(|bytes| count(&bytes)) {
        Ok(counts) => {
            for (operation, [all, last]) in &counts.operations {
                println!("{operation} {all} {last}");
            }
            println!("{} checksums", counts.checksums);
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{file}: {why}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Counts {
    /// FPDUs of each operation, and those that are the last of their message.
    operations: BTreeMap<u8, [u64; 2]>,
    checksums: u64,
}

fn count(capture: &[u8]) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for sides in connections(capture)? {
        let [Some(request), Some(reply)] = [start(&sides[0], b"Req"), start(&sides[1], b"Rep")]
        else {
            continue;
        };
        let has_checksums = (request.flags | reply.flags) & CRC != 0;
        for side in [request, reply] {
            fpdus(side.rest, has_checksums, &mut counts)?;
        }
    }
    Ok(counts)
}

/// The streams of every connection: that of the initiator, then that of the other side.
fn connections(capture: &[u8]) -> Result<Vec<[Stream; 2]>, String> {
    let mut rest = match capture.split_first_chunk::<24>() {
        Some((header, rest)) if header[..4] == MAGIC => rest,
        _ => return Err("not a capture in pcap format of this byte order".into()),
    };
    let (mut open, mut all) = (HashMap::<Vec<u8>, usize>::new(), Vec::<[Stream; 2]>::new());
    while let Some((header, tail)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(*header[8..].first_chunk().expect("eight bytes")) as usize;
        let (frame, tail) = tail.split_at_checked(len).ok_or("the last packet is cut short")?;
        rest = tail;
        let Some(packet) = Packet::parse(frame) else { continue };
        // Ports that are used again begin another connection; a SYN that is repeated does not.
        if packet.flags & (SYN | ACK) == SYN {
            let known = open.get(&packet.from_to).map(|at| all[*at][0].first);
            if known != Some(Some(packet.number)) {
                open.insert(packet.from_to.clone(), all.len());
                all.push(Default::default());
            }
        }
        if let Some(at) = open.get(&packet.from_to) {
            all[*at][0].add(&packet);
        } else if let Some(at) = open.get(&packet.to_from) {
            all[*at][1].add(&packet);
        }
    }
    Ok(all)
}

/// The start of a pcap file with times in microseconds.
const MAGIC: [u8; 4] = 0xa1b2_c3d4_u32.to_le_bytes();

/// A segment of TCP: addresses and ports, as they are and the other way round, and its bytes.
struct Packet<'a> {
    from_to: Vec<u8>,
    to_from: Vec<u8>,
    flags: u8,
    number: u32,
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// `None` for everything but TCP over Ethernet.
    fn parse(frame: &'a [u8]) -> Option<Packet<'a>> {
        let (ethernet, ip) = frame.split_at_checked(14)?;
        // The Ethernet frame of a short packet is padded.
        let (addresses, tcp) = match [ethernet[12], ethernet[13]] {
            [0x08, 0x00] if *ip.get(9)? == TCP => {
                let len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
                (ip.get(12..20)?, ip.get(4 * usize::from(ip[0] & 15)..len)?)
            }
            [0x86, 0xdd] if *ip.get(6)? == TCP => {
                let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
                (ip.get(8..40)?, ip.get(40..40 + len)?)
            }
            _ => return None,
        };
        let header = tcp.first_chunk::<20>()?;
        let (from, to) = addresses.split_at(addresses.len() / 2);
        let (from_port, to_port) = header[..4].split_at(2);
        Some(Packet {
            from_to: [from, from_port, to, to_port].concat(),
            to_from: [to, to_port, from, from_port].concat(),
            flags: header[13],
            number: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            payload: tcp.get(4 * usize::from(header[12] >> 4)..)?,
        })
    }
}

const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// What one side has sent.
#[derive(Default)]
struct Stream {
    /// The number of its SYN.
    first: Option<u32>,
    bytes: Vec<u8>,
    /// What came before something that precedes it, by its place.
    early: BTreeMap<usize, Vec<u8>>,
}

impl Stream {
    /// Takes what is new of a packet. TCP sends packets again, and the network may swap them.
    fn add(&mut self, packet: &Packet<'_>) {
        if packet.flags & SYN != 0 {
            self.first = Some(packet.number);
        }
        let Some(first) = self.first else { return };
        let at = packet.number.wrapping_sub(first).wrapping_sub(1) as usize;
        if !packet.payload.is_empty() && at < LEN_MAX {
            let known = self.early.entry(at).or_default();
            if known.len() < packet.payload.len() {
                *known = packet.payload.to_vec();
            }
        }
        while let Some(entry) = self.early.first_entry()
            && *entry.key() <= self.bytes.len()
        {
            let (at, bytes) = entry.remove_entry();
            self.bytes.extend(bytes.iter().skip(self.bytes.len() - at));
        }
    }
}

/// Sequence numbers have 32 bits, and no stream of a test is as long.
const LEN_MAX: usize = 1 << 31;

/// A start frame, and what follows it.
struct Start<'a> {
    flags: u8,
    rest: &'a [u8],
}

/// The start frame of this name, `Req` or `Rep`, at the start of a stream (RFC 5044 7.1.1).
fn start<'a>(stream: &'a Stream, name: &[u8; 3]) -> Option<Start<'a>> {
    let (header, rest) = stream.bytes.split_first_chunk::<20>()?;
    let is_start = header[..7] == *b"MPA ID " && header[7..10] == *name;
    let private = usize::from(u16::from_be_bytes([header[18], header[19]]));
    let rest = rest.get(private..)?;
    is_start.then_some(Start { flags: header[16], rest })
}

/// Checksums are wanted.
const CRC: u8 = 0x40;

/// Counts the FPDUs of a stream (RFC 5044 4.1). A connection may end in the middle of one.
fn fpdus(mut rest: &[u8], has_checksums: bool, counts: &mut Counts) -> Result<(), String> {
    while let Some((len, _)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len));
        let covered = (2 + len).next_multiple_of(4);
        let Some((fpdu, tail)) = rest.split_at_checked(covered + 4) else { return Ok(()) };
        let (segment, sum) = (&fpdu[2..2 + len], &fpdu[covered..]);
        rest = tail;
        // A zero-length FPDU is a kind of peer-to-peer start (RFC 6581 9.2).
        let [ddp, rdmap, ..] = *segment else { continue };
        if ddp & 3 != 1 || rdmap >> 6 != 1 {
            return Err(format!("the versions in {ddp:02x} {rdmap:02x} are not one and one"));
        }
        let tagged = ddp & 0x80 != 0;
        if segment.len() < if tagged { 14 } else { 18 } {
            return Err(format!("a segment of {len} bytes is shorter than its header"));
        }
        let counted = counts.operations.entry(rdmap & 15).or_default();
        counted[0] += 1;
        counted[1] += u64::from(ddp & 0x40 != 0);
        if has_checksums {
            // As iSCSI has it: the first byte is the least of the reflected register.
            let expected = crc32c::crc32c(&fpdu[..covered]).to_le_bytes();
            if sum != expected {
                return Err(format!("the checksum {sum:02x?} is not {expected:02x?}"));
            }
            counts.checksums += 1;
        }
    }
    Ok(())
}
