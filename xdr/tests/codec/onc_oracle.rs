//! The codec of RPC headers, compared with libtirpc's in both directions, byte for byte.
//!
//! It has the requirements of `rpcgen_oracle.rs`, without rpcgen.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::oracle::{Request, ask, copy, oracle, run, runner, sample, seed};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_xdr::onc::{AcceptStatus, Auth, AuthSys, CallHeader, ReplyHeader};
use rpcrdma_xdr::{Array, DecodeError, MsgType, Reader, RpcPrefix, Writer};

const MESSAGES: usize = 5_000;

/// The folder of the C program; `None` if the oracle is to be skipped.
fn libtirpc() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    oracle(&BUILT, "onc_oracle", |out| {
        copy(out, "tests/codec/onc_oracle.c");
        let source = ["-O1", "-Wall", "-Werror", "-I/usr/include/tirpc", "onc_oracle.c"];
        run(out, "gcc", &[&source[..], &["-o", "oracle", "-ltirpc"]].concat());
    })
}

/// A message, and its fields as C writes them.
struct Message {
    kind: u8,
    bytes: Vec<u8>,
    fields: String,
}

fn leak(bytes: Vec<u8>) -> &'static [u8] {
    bytes.leak()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn auth() -> impl Strategy<Value = Auth<'static>> {
    let flavor = prop_oneof![Just(0), Just(1), Just(6), any::<u32>()];
    let body = prop_oneof![2 => vec(any::<u8>(), 0..24), 1 => vec(any::<u8>(), 0..=400)];
    (flavor, body).prop_map(|(flavor, body)| Auth::new(flavor, leak(body)).expect("400 at most"))
}

fn call() -> impl Strategy<Value = CallHeader<'static>> {
    (any::<[u32; 3]>(), auth(), auth()).prop_map(|(words, credentials, verifier)| {
        let [program, version, procedure] = words;
        CallHeader { program, version, procedure, credentials, verifier }
    })
}

fn reply() -> impl Strategy<Value = ReplyHeader<'static>> {
    let versions = any::<[u32; 2]>();
    let status = prop_oneof![
        Just(AcceptStatus::Success),
        Just(AcceptStatus::ProgramUnavailable),
        versions.prop_map(|[low, high]| AcceptStatus::ProgramMismatch { low, high }),
        Just(AcceptStatus::ProcedureUnavailable),
        Just(AcceptStatus::GarbageArguments),
        Just(AcceptStatus::SystemError),
    ];
    let accepted = (auth(), status);
    prop_oneof![
        4 => accepted.prop_map(|(verifier, status)| ReplyHeader::Accepted { verifier, status }),
        1 => versions.prop_map(|[low, high]| ReplyHeader::RpcMismatch { low, high }),
        1 => any::<u32>().prop_map(|why| ReplyHeader::AuthError { why }),
    ]
}

fn user() -> impl Strategy<Value = AuthSys<'static>> {
    // C keeps the name as a string, so it has no zeros.
    let name = prop_oneof![vec(1..=255u8, 0..16), vec(1..=255u8, 0..=255)];
    (any::<[u32; 3]>(), name, vec(any::<u32>(), 0..=16)).prop_map(|(words, machine, groups)| {
        let [stamp, uid, gid] = words;
        let groups = Array::from_slice(groups.leak());
        AuthSys { stamp, machine: leak(machine), uid, gid, groups }
    })
}

fn prefixed(xid: u32, kind: MsgType, header: &[u8]) -> Vec<u8> {
    [&RpcPrefix { xid, kind }.bytes(), header].concat()
}

fn auth_fields(auth: &Auth<'_>) -> String {
    format!("flavor={}\nbody={}\n", auth.flavor(), hex(auth.body()))
}

fn call_message(xid: u32, header: &CallHeader<'_>) -> Message {
    let CallHeader { program, version, procedure, credentials, verifier } = header;
    let fields = format!(
        "xid={xid}\nrpcvers=2\nprog={program}\nvers={version}\nproc={procedure}\n{}{}",
        auth_fields(credentials),
        auth_fields(verifier),
    );
    Message { kind: b'C', bytes: prefixed(xid, MsgType::Call, &header.bytes()), fields }
}

fn reply_message(xid: u32, header: &ReplyHeader<'_>) -> Message {
    let versions = |low, high| format!("low={low}\nhigh={high}\n");
    let body = match header {
        ReplyHeader::Accepted { verifier, status } => {
            let (number, more) = match *status {
                AcceptStatus::Success => (0, String::new()),
                AcceptStatus::ProgramUnavailable => (1, String::new()),
                AcceptStatus::ProgramMismatch { low, high } => (2, versions(low, high)),
                AcceptStatus::ProcedureUnavailable => (3, String::new()),
                AcceptStatus::GarbageArguments => (4, String::new()),
                AcceptStatus::SystemError => (5, String::new()),
            };
            format!("reply_stat=0\n{}accept_stat={number}\n{more}", auth_fields(verifier))
        }
        ReplyHeader::RpcMismatch { low, high } => {
            format!("reply_stat=1\nreject_stat=0\n{}", versions(*low, *high))
        }
        ReplyHeader::AuthError { why } => format!("reply_stat=1\nreject_stat=1\nauth_stat={why}\n"),
    };
    let bytes = prefixed(xid, MsgType::Reply, &header.bytes());
    Message { kind: b'P', bytes, fields: format!("xid={xid}\n{body}") }
}

fn user_message(user: &AuthSys<'_>) -> Message {
    let AuthSys { stamp, machine, uid, gid, groups } = user;
    let mut bytes = [0; 400];
    let mut writer = Writer::new(&mut bytes);
    user.encode(&mut writer).expect("the longest has 340 bytes");
    let groups: String = groups.iter().map(|group| format!("group={group}\n")).collect();
    let machine = hex(machine);
    let fields = format!("stamp={stamp}\nmachine={machine}\nuid={uid}\ngid={gid}\n{groups}");
    Message { kind: b'U', bytes: writer.written().to_vec(), fields }
}

/// What we make of bytes, encoded.
fn ours(kind: u8, bytes: &[u8]) -> Result<Vec<u8>, Option<DecodeError>> {
    if kind == b'U' {
        let user = AuthSys::decode(bytes).map_err(Some)?;
        return Ok(user_message(&user).bytes);
    }
    let prefix = RpcPrefix::decode(bytes).map_err(Some)?;
    let mut reader = Reader::new(&bytes[RpcPrefix::LEN..]);
    match (kind, prefix.kind) {
        (b'C', MsgType::Call) => {
            let header = CallHeader::decode(&mut reader).map_err(|_| None)?;
            Ok(call_message(prefix.xid, &header).bytes)
        }
        (b'P', MsgType::Reply) => {
            let header = ReplyHeader::decode(&mut reader).map_err(Some)?;
            Ok(reply_message(prefix.xid, &header).bytes)
        }
        _ => Err(None),
    }
}

fn messages(seed: u64) -> Vec<Message> {
    let mut runner = runner(seed);
    let (calls, replies, users) = (call(), reply(), user());
    (0..MESSAGES as u32)
        .map(|xid| match xid % 3 {
            0 => call_message(xid, &sample(&mut runner, &calls)),
            1 => reply_message(xid, &sample(&mut runner, &replies)),
            _ => user_message(&sample(&mut runner, &users)),
        })
        .collect()
}

#[test]
fn generated_headers_mean_the_same_to_c_and_encode_to_the_same_bytes() {
    let Some(folder) = libtirpc() else { return };
    let seed = seed();
    let messages = messages(seed);
    let asked = |message: &Message| {
        let (fields, repeated) = (message.kind | 0x20, message.kind);
        [fields, repeated].map(|kind| Request { kind, data: message.bytes.clone() })
    };
    let answers = ask(folder, "generated", &messages.iter().flat_map(asked).collect::<Vec<_>>());
    for (message, pair) in messages.iter().zip(answers.chunks_exact(2)) {
        let Message { kind, bytes, fields } = message;
        let what = format!("RPCRDMA_SEED={seed}, kind {}: {bytes:02x?}", char::from(*kind));
        let decoded = pair[0].as_ref().unwrap_or_else(|| panic!("{what}: C refuses it"));
        assert_eq!(String::from_utf8_lossy(decoded), *fields, "{what}: decoded by C");
        assert_eq!(pair[1].as_ref(), Some(bytes), "{what}: encoded by C");
        assert_eq!(ours(*kind, bytes).as_ref(), Ok(bytes), "{what}: decoded and encoded by us");
    }
}

/// What we accept C accepts, and makes the same bytes of; what is cut short for us is for C.
#[test]
fn damaged_headers_that_we_accept_are_accepted_by_c_and_unchanged() {
    let Some(folder) = libtirpc() else { return };
    let seed = seed();
    let mut runner = runner(seed ^ 1);
    let damage = vec((any::<prop::sample::Index>(), any::<u32>(), 0..4u8), 1..3);
    let damaged: Vec<(u8, Vec<u8>)> = messages(seed ^ 2)
        .into_iter()
        .map(|Message { kind, mut bytes, .. }| {
            for (at, word, how) in sample(&mut runner, &damage) {
                let at = 4 * at.index(bytes.len() / 4);
                match how {
                    0 => bytes[at..at + 4].copy_from_slice(&word.to_be_bytes()),
                    1 => bytes[at..at + 4].copy_from_slice(&(word % 9).to_be_bytes()),
                    2 => bytes.extend(word.to_be_bytes()),
                    _ => bytes.truncate(at.max(4)),
                }
            }
            (kind, bytes)
        })
        .collect();
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for (kind, data) in damaged {
        // C takes a machine's name up to its first zero.
        let is_name_cut =
            kind == b'U' && AuthSys::decode(&data).is_ok_and(|it| it.machine.contains(&0));
        match ours(kind, &data) {
            Ok(bytes) if !is_name_cut => expected.push(Some(bytes)),
            Err(Some(DecodeError::Truncated { .. } | DecodeError::TooMany { .. })) => {
                expected.push(None)
            }
            // C ends at a reject_stat that it does not know.
            _ => continue,
        }
        requests.push(Request { kind, data });
    }
    let answers = ask(folder, "damaged", &requests);
    for ((request, answer), expected) in requests.iter().zip(&answers).zip(&expected) {
        let what = format!("{}: {:02x?}", char::from(request.kind), request.data);
        assert_eq!(answer, expected, "RPCRDMA_SEED={seed}, kind {what}");
    }
    let accepted = expected.iter().flatten().count();
    let refused = expected.len() - accepted;
    assert!(accepted > MESSAGES / 10 && refused > MESSAGES / 10, "{accepted} to {refused}");
}
