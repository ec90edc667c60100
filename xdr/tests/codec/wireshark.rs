//! The dissector of `docs/wireshark`, run by tshark on captures made here: each field that it shows
//! is the one that this codec reads.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{fields, golden};
use rpcrdma_xdr::{
    Array, Body, ConnProp, Header, Loc, MsgItem, Optional, PropSubset, PropVal, Property,
    RecvStructure, SegmentGroup, Tbsns, Writer, XmtCont, XmtReq,
};

const MISSING: &str = "tshark is missing (apt-get install tshark), or RPCRDMA_SKIP_TSHARK=1 to go \
    without";

/// Fields that stand for what `fields` does not give, by the beginning of their names: a structure
/// that cannot be used is shown, but not decoded, and flags are a bool there.
const NOT_COMPARED: &str = "xmr";

/// A capture under construction: a Send in each packet, as RoCE version two has them.
struct Capture {
    bytes: Vec<u8>,
    packets: u32,
    numbers: BTreeMap<(bool, u32), u32>,
}

/// The last packet of a Send, the first, or the only one: the opcode (InfiniBand 9.2.1).
mod opcode {
    pub const FIRST: u8 = 0;
    pub const MIDDLE: u8 = 1;
    pub const LAST: u8 = 2;
    pub const ONLY: u8 = 4;
}

impl Capture {
    fn new() -> Self {
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 18, 1] {
            bytes.extend(word.to_le_bytes());
        }
        Self { bytes, packets: 0, numbers: BTreeMap::new() }
    }

    /// Adds a message in one packet, to queue pair `pair` of the server, or of the client.
    fn send(&mut self, to_server: bool, pair: u32, message: &[u8]) -> u32 {
        self.packet(to_server, pair, opcode::ONLY, message)
    }

    /// Adds a packet, and returns its place in the capture.
    fn packet(&mut self, to_server: bool, pair: u32, opcode: u8, payload: &[u8]) -> u32 {
        let number = self.numbers.entry((to_server, pair)).or_default();
        *number += 1;
        let pad = payload.len().wrapping_neg() % 4;
        let mut ib = vec![opcode, (pad as u8) << 4, 0xff, 0xff];
        ib.extend(pair.to_be_bytes());
        ib.extend(number.to_be_bytes());
        ib.extend(payload);
        ib.resize(ib.len() + pad + 4, 0); // The checksum is not checked.
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        let (client, server) = ([10, 0, 1, 1], [10, 0, 1, 2]);
        let (from, to) = if to_server { (client, server) } else { (server, client) };
        frame.extend([0x45, 0]);
        frame.extend((28 + ib.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend([from, to].concat());
        frame.extend([0xc0, 0, 0x12, 0xb7]); // The port of RoCE: 4791.
        frame.extend((8 + ib.len() as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(ib);
        let len = frame.len() as u32;
        for word in [self.packets, 0, len, len] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(frame);
        self.packets += 1;
        self.packets
    }

    /// What tshark shows of each packet; `None` if it is missing and may be.
    fn dissect(&self, name: &str, shown: &[&str]) -> Option<Vec<Shown>> {
        if std::env::var_os("RPCRDMA_SKIP_TSHARK").is_some_and(|value| value == "1") {
            // Not eprintln!: the test harness would capture it.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED tshark (RPCRDMA_SKIP_TSHARK=1): the dissector is not tried"
            );
            return None;
        }
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.pcap"));
        fs::write(&file, &self.bytes).expect("the capture can be written");
        let output = Command::new("tshark")
            .arg("-X")
            .arg(format!("lua_script:{}", dissector().display()))
            .args(["-2", "-r"])
            .arg(&file)
            .args(["-T", "fields", "-E", "separator=/t", "-E", "aggregator=;"])
            .args(shown.iter().flat_map(|field| ["-e", field]))
            .output()
            .unwrap_or_else(|error| panic!("tshark: {error}; {MISSING}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !errors.to_lowercase().contains("lua"), "{errors}");
        let text = String::from_utf8(output.stdout).expect("tshark writes UTF-8");
        let lines: Vec<Shown> = text
            .lines()
            .map(|line| Shown::new(shown, &line.split('\t').collect::<Vec<_>>()))
            .collect();
        assert_eq!(lines.len(), self.packets as usize, "a line for each packet");
        Some(lines)
    }
}

fn dissector() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/wireshark/rpcrdma2.lua")
}

/// The fields of a packet.
struct Shown(BTreeMap<String, Vec<String>>);

impl Shown {
    fn new(names: &[&str], values: &[&str]) -> Self {
        let split = |values: &str| match values {
            "" => Vec::new(),
            values => values.split(';').map(str::to_owned).collect(),
        };
        let fields = names.iter().zip(values);
        let shown =
            Self(fields.map(|(name, values)| ((*name).to_owned(), split(values))).collect());
        assert!(!shown.one("_ws.expert.message").contains("Lua"), "{:?}", shown.0);
        shown
    }

    /// All values of a field, as they are shown.
    fn one(&self, name: &str) -> String {
        self.0.get(name).map(|values| values.join(";")).unwrap_or_default()
    }

    /// Whether the dissector says that the header is not one.
    fn is_refused(&self) -> bool {
        let experts = self.one("_ws.expert.message");
        ["Bad header: ", "Too short: "].iter().any(|begin| experts.contains(begin))
    }

    /// The fields of the header in the form of `Expected`.
    fn header(&self) -> Expected {
        let mut fields = Expected::new();
        for (name, values) in &self.0 {
            let Some(name) = name.strip_prefix("rpcrdma2.") else { continue };
            if !name.starts_with(NOT_COMPARED) && name != "text" && !values.is_empty() {
                let is_bytes = name == "optinfo_data" || name == "pv_unknown";
                let value =
                    |text: &String| if is_bytes { text.replace(':', "") } else { number(text) };
                fields.insert(name.to_owned(), values.iter().map(value).collect());
            }
        }
        fields
    }
}

/// A number in decimal, of whichever form it is shown in.
fn number(text: &str) -> String {
    match (text, text.strip_prefix("0x")) {
        ("True", _) => "1".into(),
        ("False", _) => "0".into(),
        (_, Some(hex)) => u64::from_str_radix(hex, 16).expect("a number").to_string(),
        _ => text.into(),
    }
}

/// The values of each field, in the order of the wire.
type Expected = BTreeMap<String, Vec<String>>;

/// What a header has, from `name=value` in the order of the wire.
fn expected(list: &[String]) -> Expected {
    let mut fields = Expected::new();
    let unknown = list.iter().any(|field| {
        let number = field.strip_prefix("rdma_opttype=").map(|number| number.parse::<u32>());
        matches!(number, Some(Ok(0 | 9..)))
    });
    for field in list {
        let (name, value) = field.split_once('=').expect("a name and a value");
        let name = name.strip_prefix("rdma_").unwrap_or(name);
        let mut put = |name: &str, value: String| {
            if !name.starts_with(NOT_COMPARED) && !value.is_empty() {
                fields.entry(name.to_owned()).or_default().push(value);
            }
        };
        if name == "optinfo" && unknown {
            put(name, (value.len() / 2).to_string());
            put("optinfo_data", value.to_owned());
        } else {
            put(name, value.to_owned());
        }
    }
    fields
}

/// The columns: the text, what is wrong, and all fields of any vector.
fn columns() -> Vec<String> {
    let mut names = vec!["_ws.expert.message".into(), "rpcrdma2.text".into()];
    let mut known: Vec<String> =
        vectors().iter().flat_map(|vector| expected(&vector.fields).into_keys()).collect();
    known.sort();
    known.dedup();
    names.extend(known.iter().map(|name| format!("rpcrdma2.{name}")));
    names
}

/// The vectors of version two, and the error that is understood in every version.
fn vectors() -> Vec<golden::Vector> {
    let vectors: Vec<_> =
        golden::load().into_iter().filter(|vector| !vector.name.starts_with("v1_")).collect();
    assert!(vectors.len() >= 45, "only {} vectors of version two", vectors.len());
    vectors
}

/// Messages of both sides, after which queue pair `pair` is known to have version two.
fn negotiate(capture: &mut Capture, pair: u32, structure: &[SegmentGroup]) {
    for to_server in [true, false] {
        let mut buffer = [0; Property::LEN_MAX];
        let structure = RecvStructure::new(structure).expect("a structure");
        let value = Property::RecvStructure(structure).encode(&mut buffer).expect("room");
        let values = [value, PropVal { id: rpcrdma_xdr::PropId::RTR_SUPPORT, data: &[0, 0, 0, 7] }];
        let start = Array::from_slice(&values);
        let nochg = PropSubset::EMPTY;
        let own = if to_server { pair } else { pair + 1 };
        capture.send(
            to_server,
            own,
            &message(pair, Optional::ConnProp(ConnProp { start, nochg }), &[]),
        );
    }
}

const PLAIN: [SegmentGroup; 1] =
    [SegmentGroup { count: 1, length: 4096, align: 64, placement: false }];

fn message(xid: u32, operation: Optional<'_>, after: &[u8]) -> Vec<u8> {
    let header = Header { xid, vers: 2, credit: 32, body: Body::Optional(operation) };
    let mut buffer = vec![0; header.encoded_len()];
    header.encode(&mut Writer::new(&mut buffer)).expect("encoded_len is the length");
    buffer.extend(after);
    buffer
}

#[test]
fn every_vector_is_dissected_into_the_fields_that_this_codec_reads() {
    let (vectors, mut capture) = (vectors(), Capture::new());
    for (pair, vector) in (0x10..).zip(&vectors) {
        capture.send(true, pair, &vector.message);
    }
    let columns = columns();
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let Some(shown) = capture.dissect("vectors", &names) else { return };
    for (vector, shown) in vectors.iter().zip(&shown) {
        assert_eq!(shown.header(), expected(&vector.fields), "{}", vector.name);
        assert!(!shown.is_refused(), "{}: {}", vector.name, shown.one("_ws.expert.message"));
        #[cfg(feature = "text")]
        {
            let (header, _) = Header::decode(&vector.message).expect("the vector is valid");
            assert_eq!(shown.one("rpcrdma2.text"), header.to_string(), "{}", vector.name);
        }
    }
}

/// A message with one word replaced, or cut.
struct Damaged {
    name: String,
    message: Vec<u8>,
}

fn damaged(vector: &golden::Vector) -> Vec<Damaged> {
    let mut all = Vec::new();
    for len in 8..vector.header_len {
        let name = format!("{} cut to {len} bytes", vector.name);
        all.push(Damaged { name, message: vector.message[..len].to_vec() });
    }
    for at in (0..vector.header_len).step_by(4) {
        let old = u32::from_be_bytes(*vector.message[at..].first_chunk().expect("a word"));
        for new in [0, 1, 2, 3, 6, 9, 64, 65, 257, u32::MAX, old ^ 4, old ^ 0x0100_0000] {
            let mut message = vector.message.clone();
            message[at..at + 4].copy_from_slice(&new.to_be_bytes());
            let name = format!("{} with {new} at {at}", vector.name);
            all.push(Damaged { name, message });
        }
    }
    all
}

/// The dissector refuses what this codec refuses, and reads the same in what remains a header.
#[test]
fn every_damaged_vector_is_refused_or_read_as_this_codec_does() {
    let (vectors, mut capture, mut all) = (vectors(), Capture::new(), Vec::new());
    let last = PLAIN.len() as u32 * 2 * vectors.len() as u32;
    for pair in 0..vectors.len() as u32 {
        negotiate(&mut capture, 0x100 + 2 * pair, &PLAIN);
    }
    for (pair, vector) in (0..).zip(&vectors) {
        for damaged in damaged(vector) {
            capture.send(true, 0x100 + 2 * pair, &damaged.message);
            all.push(damaged);
        }
    }
    let columns = columns();
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let Some(shown) = capture.dissect("damaged", &names) else { return };
    let (mut read, mut refused) = (0, 0);
    for (damaged, shown) in all.iter().zip(&shown[last as usize..]) {
        let (name, message) = (&damaged.name, &damaged.message);
        match Header::decode(message) {
            // Version one is for another dissector, which takes such a message or does not.
            _ if message[4..8] != [0, 0, 0, 2] => {}
            Err(_) => {
                assert!(shown.is_refused(), "{name}: {:?}", shown.0);
                refused += 1;
            }
            Ok((header, _)) => {
                assert!(!shown.is_refused(), "{name}: {}", shown.one("_ws.expert.message"));
                assert_eq!(shown.header(), expected(&fields::fields(&header)), "{name}");
                #[cfg(feature = "text")]
                assert_eq!(shown.one("rpcrdma2.text"), header.to_string(), "{name}");
                read += 1;
            }
        }
    }
    println!("{read} read, {refused} refused");
    assert!(read > 3_000 && refused > 3_000, "{read} read, {refused} refused");
}

/// The words of an NFS WRITE of `data`, in front of it: the last is its length.
fn write_call(xid: u32, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    let handle = [8, 0x0102_0304, 0x0506_0708];
    let call = [xid, 0, 2, 100_003, 3, 7, 0, 0, 0, 0];
    let arguments = [0, 0, len, 2, len];
    [&call[..], &handle, &arguments].concat().into_iter().flat_map(u32::to_be_bytes).collect()
}

/// Two segments for a header, each behind one where data are placed.
const PLACED: [SegmentGroup; 2] = [
    SegmentGroup { count: 1, length: 512, align: 64, placement: false },
    SegmentGroup { count: 2, length: 1024, align: 1024, placement: true },
];

/// A call in a group of three transmissions, with an item of 4,500 bytes in five segments, of which
/// the last begins in the third.
fn group(xid: u32, data: &[u8]) -> Vec<Vec<u8>> {
    let head = write_call(xid, data);
    let (first, second) = head.split_at(40);
    let segments = Tbsns::run(0, 5);
    let item = MsgItem {
        disp: head.len() as u32,
        length: data.len() as u32,
        loc: Loc::Tbsn { offset: 0, segments },
    };
    let items = [item];
    let request = XmtReq {
        dp: Array::from_slice(&items),
        rsd: Array::EMPTY,
        count: 3,
        rsbuf: 1,
        pslen: first.len() as u32,
    };
    let further =
        |xnum, pslen: usize| Optional::XmtCont(XmtCont { xnum, itype: 5, pslen: pslen as u32 });
    let mut messages = vec![
        message(xid, Optional::XmtReq(request), first),
        message(xid, further(1, second.len()), second),
        message(xid, further(2, 0), &[]),
    ];
    for (message, data) in messages.iter_mut().zip(data.chunks(2048)) {
        message.resize(512, 0);
        message.extend(data);
    }
    messages
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 7 + index / 256) as u8).collect()
}

const CALL_COLUMNS: [&str; 8] = [
    "_ws.expert.message",
    "rpcrdma2.text",
    "rpcrdma2.reassembled_in",
    "rpcrdma2.group.frame",
    "rpc.xid",
    "nfs.procedure_v3",
    "nfs.count3",
    "nfs.data",
];

#[test]
fn a_call_in_three_transmissions_with_placed_data_reaches_the_dissector_of_nfs() {
    let (data, mut capture) = (bytes(4_500), Capture::new());
    negotiate(&mut capture, 0x20, &PLACED);
    for message in group(0x41, &data) {
        capture.send(true, 0x20, &message);
    }
    let Some(shown) = capture.dissect("group", &CALL_COLUMNS) else { return };
    for part in &shown[2..4] {
        assert_eq!(
            (part.one("rpcrdma2.reassembled_in"), part.one("rpc.xid")),
            ("5".into(), "".into())
        );
    }
    let whole = &shown[4];
    assert_eq!(whole.one("rpcrdma2.group.frame"), "3;4;5");
    assert_eq!(number(&whole.one("rpc.xid")), 0x41.to_string());
    assert_eq!(whole.one("nfs.procedure_v3"), "7");
    let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(whole.one("nfs.data").replace(':', ""), hex);
    assert_eq!(whole.one("_ws.expert.message"), "");
}

#[test]
fn a_send_of_several_packets_is_one_message_also_where_one_is_sent_again() {
    let (data, mut capture) = (bytes(4_500), Capture::new());
    negotiate(&mut capture, 0x20, &PLACED);
    for message in group(0x41, &data) {
        let packets: Vec<&[u8]> = message.chunks(256).collect();
        let (last, rest) = packets.split_last().expect("a packet");
        let (first, rest) = rest.split_first().expect("another");
        capture.packet(true, 0x20, opcode::FIRST, first);
        for (index, packet) in rest.iter().enumerate() {
            capture.packet(true, 0x20, opcode::MIDDLE, packet);
            if index == 2 {
                *capture.numbers.get_mut(&(true, 0x20)).expect("sent before") -= 1;
                capture.packet(true, 0x20, opcode::MIDDLE, packet);
            }
        }
        capture.packet(true, 0x20, opcode::LAST, last);
    }
    let Some(shown) = capture.dissect("packets", &CALL_COLUMNS) else { return };
    let whole = shown.last().expect("a packet");
    assert_eq!(whole.one("nfs.procedure_v3"), "7");
    let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(whole.one("nfs.data").replace(':', ""), hex);
    let again = shown.iter().filter(|shown| shown.one("_ws.expert.message").contains("again"));
    assert_eq!(again.count(), 2, "the last transmission has too few packets");
    assert_eq!(shown.iter().filter(|shown| !shown.one("rpcrdma2.text").is_empty()).count(), 5);
}

#[test]
fn violations_are_named() {
    let (data, mut capture) = (bytes(4_500), Capture::new());
    let mut violation = |said: &'static str, messages: &[Vec<u8>]| {
        let pair = 0x40 + 2 * capture.packets;
        negotiate(&mut capture, pair, &PLACED);
        let sent = messages.iter().map(|message| capture.send(true, pair, message)).last();
        (sent.expect("a message") as usize - 1, said)
    };
    let whole = group(0x41, &data);
    let other = group(0x42, &data);
    let word = |message: &[u8], at: usize, value: u32| {
        let mut message = message.to_vec();
        message[at..at + 4].copy_from_slice(&value.to_be_bytes());
        message
    };
    let cases = [
        violation("No group is open", &[whole[1].clone()]),
        violation("Transmission 2 where 1 is due", &[whole[0].clone(), whole[2].clone()]),
        violation("xid 0x00000042 continues", &[whole[0].clone(), other[1].clone()]),
        violation("A group is open", &[whole[0].clone(), other[0].clone()]),
        violation("optxc_itype is 6", &[whole[0].clone(), word(&whole[1], 28, 6)]),
        violation("A credit value of 0", &[word(&whole[0], 8, 0)]),
        violation("A payload stream of 6 bytes", &[word(&whole[1], 32, 6)]),
        violation("The payload stream has 8000 bytes", &[word(&whole[1], 32, 8_000)]),
        violation(
            "segment 5 was not received",
            &[word(&whole[0], 48, 5), whole[1].clone(), whole[2].clone()],
        ),
        violation(
            "offset 1024 in segment 0",
            &[word(&whole[0], 40, 1_024), whole[1].clone(), whole[2].clone()],
        ),
        violation("version 1 in a connection of version two", &[word(&whole[1], 4, 1)]),
        violation("procedure 2 is not one of version two", &[word(&whole[1], 12, 2)]),
        violation("Operation 9 is not known", &[word(&whole[1], 16, 9)]),
        violation("Too short", &[whole[1][..12].to_vec()]),
        violation("RDMA_DONE is reserved", &[word(&whole[1], 12, 3)]),
    ];
    let Some(shown) = capture.dissect("violations", &CALL_COLUMNS) else { return };
    for (at, said) in cases {
        let experts = shown[at].one("_ws.expert.message");
        assert!(experts.contains(said), "{said}: {experts}");
    }
}

/// Wireshark's dissector of version one takes an RDMA_MSG of any version if it is asked first.
#[test]
fn both_versions_are_dissected_in_one_capture() {
    let (vectors, mut capture) = (golden::load(), Capture::new());
    let named = |name: &str| {
        let vector = vectors.iter().find(|vector| vector.name == name);
        vector.expect("a vector").message.clone()
    };
    let plain = |version: u32| {
        let call = [0x61, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
        let words = [&[0x61, version, 32, 0, 0, 0, 0][..], &call].concat();
        words.into_iter().flat_map(u32::to_be_bytes).collect::<Vec<u8>>()
    };
    let messages = [
        (2, named("v2_connprop_all")),
        (1, plain(1)),
        (2, plain(2)),
        (1, plain(1)),
        (2, named("v2_nomsg_long_call")),
        (1, named("v1_error_bad_header")),
        (2, named("v2_error_inval_option")),
        (2, plain(2)),
    ];
    for (version, message) in &messages {
        capture.send(true, 0x30 + version, message);
    }
    let columns = ["_ws.expert.message", "rpcordma.version", "rpcrdma2.vers", "rpc.programversion"];
    let Some(shown) = capture.dissect("both", &columns) else { return };
    for ((version, message), shown) in messages.iter().zip(&shown) {
        let one = shown.one("rpcordma.version");
        let two = shown.one("rpcrdma2.vers");
        assert_eq!((one == "1", two == "2"), (*version == 1, *version == 2), "{one} {two}");
        let is_call = message.len() == 68;
        assert_eq!(shown.one("rpc.programversion").starts_with('3'), is_call);
    }
}
