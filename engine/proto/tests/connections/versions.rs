//! The version of a connection, its negotiation, and the properties of version one.

use crate::pair::{
    Side, connected, connected_in, first_call, plain_call, plain_reply, rpc, structure,
};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::report::ReportKind;
use rpcrdma_proto::*;
use rpcrdma_xdr::*;

fn settings() -> Settings {
    Settings {
        credits_requested: 8,
        credits_granted_max: 8,
        ..Settings::new(structure(4096, 2, 4096))
    }
}

fn speaking(versions: Versions) -> Settings {
    Settings { versions, ..settings() }
}

fn beginning(role: Role, version: Start, private: Option<PrivateData>) -> Side {
    Side::opened(role, settings(), &Opening { private, version })
}

fn wire(xid: u32, vers: u32, credit: u32, body: Body<'_>, payload: &[u8]) -> Vec<u8> {
    let header = Header { xid, vers: body_version(&body, vers), credit, body };
    let mut bytes = vec![0; header.encoded_len()];
    header.encode(&mut Writer::new(&mut bytes)).expect("as long as it says");
    bytes[4..8].copy_from_slice(&vers.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A version in which the codec writes this body; the number is put in its place afterwards.
fn body_version(body: &Body<'_>, vers: u32) -> u32 {
    match body {
        Body::Optional(_) | Body::Error(RdmaError::InvalOption) => 2,
        Body::Msgp { .. } => 1,
        _ => vers,
    }
}

fn msg(xid: u32, vers: u32, reply: bool, credit: u32) -> Vec<u8> {
    wire(xid, vers, credit, Body::Msg(ChunkLists::EMPTY), &rpc(xid, reply, 40))
}

fn refused(vers: u32, low: u32, high: u32) -> Vec<u8> {
    wire(0, vers, 8, Body::Error(RdmaError::Vers { low, high }), &[])
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks(4);
    words.map(|word| u32::from_be_bytes(word.try_into().expect("whole words"))).collect()
}

fn said(send_size: u32, recv_size: u32) -> Option<PrivateData> {
    Some(PrivateData { remote_invalidation: false, send_size, recv_size })
}

/// Client and server in version one, after one call and its reply.
fn one() -> (Side, Side) {
    connected_in(Version::One, settings(), settings())
}

/// The report of a transmission, as it is sent.
fn report(side: &mut Side, bytes: &[u8]) -> Vec<u8> {
    match side.receive(bytes) {
        Ingress::Reject(report) => side.report(report),
        other => panic!("no report: {other:?}"),
    }
}

fn is_ignored(ingress: &Ingress<'_>, reason: Ignored) -> bool {
    matches!(ingress, Ingress::Ignored(why) if *why == reason)
}

/// RFC 5044 7.1.2 (iWARP) has the side that connected send first.
#[test]
fn a_server_has_nothing_to_send_before_it_has_received() {
    for versions in [Versions::all(), Versions::ONE, Versions::TWO] {
        for properties in [true, false] {
            let mut server = Side::new(Role::Server, Settings { properties, ..speaking(versions) });
            assert!(server.conn.begin().is_none() && server.conn.next_control().is_none());
            let Side { conn, ledger, .. } = &mut server;
            assert_eq!(conn.open_call(ledger, 1).err(), Some(SendError::NotReady));
            assert!(!conn.is_ready());
        }
    }
}

mod old_responders {
    use super::*;

    #[test]
    fn a_range_with_version_one_continues_in_version_one() {
        // wire.md B4: existing servers differ in the version that the error carries.
        for vers in [1, 2, 0, 77] {
            for (low, high) in [(1, 1), (0, 1), (1, 2), (1, u32::MAX), (0, u32::MAX)] {
                let mut client = Side::new(Role::Client, settings());
                client.conn.begin().expect("the first message");
                assert_eq!(client.conn.version(), None);
                let ingress = client.receive(&refused(vers, low, high));
                let ready = Control { became_ready: true, answer: None };
                assert!(matches!(ingress, Ingress::Control(control) if control == ready));
                assert_eq!(client.conn.version(), Some(Version::One));
                assert_eq!(
                    client.conn.credits_limit(),
                    1,
                    "the error's grant is not version one's"
                );
                assert!(client.conn.begin().is_none() && client.conn.next_control().is_none());
                // [V2] 5.2: the default of the version that is negotiated.
                let sizes = (client.conn.limits().recv_size, client.conn.reply_room());
                assert_eq!(sizes, (1024, 1024 - 28));
                let call = first_call(&mut client);
                assert_eq!(words(&call)[1..4], [1, 8, 0]);
            }
        }
    }

    #[test]
    fn a_range_without_it_is_a_clear_error() {
        for (low, high) in [(2, 2), (2, 9), (3, 4), (0, 0), (u32::MAX, u32::MAX), (2, 1)] {
            let mut client = Side::new(Role::Client, settings());
            client.conn.begin().expect("the first message");
            let Ingress::Fatal(why) = client.receive(&refused(1, low, high)) else {
                panic!("{low} to {high}")
            };
            assert_eq!(why, Fatal::VersionRefused { low, high });
        }
    }

    #[test]
    fn an_end_of_version_two_only_does_not_fall_back() {
        let mut client = Side::new(Role::Client, speaking(Versions::TWO));
        client.conn.begin().expect("the first message");
        let ingress = client.receive(&refused(2, 1, 1));
        let expected = Fatal::VersionRefused { low: 1, high: 1 };
        assert!(matches!(ingress, Ingress::Fatal(why) if why == expected));
    }

    #[test]
    fn without_properties_the_first_call_fails_and_the_next_is_of_version_one() {
        let plain = Settings { properties: false, ..settings() };
        let mut client = Side::new(Role::Client, plain);
        let call = first_call(&mut client);
        let xid = words(&call)[0];
        assert_eq!(words(&call)[1], 2);
        let ingress =
            client.receive(&wire(xid, 2, 8, Body::Error(RdmaError::Vers { low: 1, high: 1 }), &[]));
        let Ingress::Failed(id, why) = ingress else { panic!("{ingress:?}") };
        assert_eq!((id.xid(), why), (xid, Refusal::Version { low: 1, high: 1 }));
        assert_eq!(client.conn.version(), Some(Version::One));
        client.conn.finish_call(&mut client.ledger, id).expect("it was open");
        assert_eq!(words(&first_call(&mut client))[1], 1);
    }

    #[test]
    fn inval_option_is_version_two_without_properties() {
        // wire.md B3
        let mut client = Side::new(Role::Client, settings());
        client.conn.begin().expect("the first message");
        let ingress = client.receive(&wire(0, 2, 0, Body::Error(RdmaError::InvalOption), &[]));
        assert!(matches!(ingress, Ingress::Control(Control { became_ready: true, .. })));
        assert_eq!(client.conn.version(), Some(Version::Two));
        assert_eq!((client.conn.limits().recv_size, client.conn.credits_limit()), (4096, 1));
        assert_eq!(client.conn.reply_room(), 4096 - 28, "it knows nothing of our buffers");
        assert_eq!(client.conn.counters().zero_grants, 0, "no error grants");
    }

    #[test]
    fn after_version_two_is_decided_the_error_is_an_ordinary_one() {
        let (mut client, _) = connected(settings(), settings());
        let ingress = client.receive(&refused(2, 1, 1));
        assert!(is_ignored(&ingress, Ignored::UnmatchedError));
        let xid = words(&first_call(&mut client))[0];
        let error = Body::Error(RdmaError::Vers { low: 1, high: 1 });
        assert!(matches!(client.receive(&wire(xid, 2, 8, error, &[])), Ingress::Failed(..)));
        assert_eq!(client.conn.version(), Some(Version::Two));
    }

    #[test]
    fn the_sizes_of_version_one_come_from_private_data() {
        let opening = Opening { private: said(2048, 3072), version: Start::Two };
        let mut client = Side::opened(Role::Client, settings(), &opening);
        client.conn.begin().expect("the first message");
        assert_eq!(client.conn.limits().recv_size, 1024, "wire.md P15");
        client.receive(&refused(1, 1, 1));
        assert_eq!((client.conn.limits().recv_size, client.conn.reply_room()), (3072, 2048 - 28));
    }

    #[test]
    fn a_refused_version_one_is_fatal() {
        for (low, high) in [(2, 2), (1, 1), (1, 2)] {
            let mut client = beginning(Role::Client, Start::One, None);
            first_call(&mut client);
            let Ingress::Fatal(why) = client.receive(&refused(1, low, high)) else { panic!() };
            assert_eq!(why, Fatal::VersionRefused { low, high });
        }
    }
}

mod a_server {
    use super::*;

    #[test]
    fn takes_the_version_of_the_first_message() {
        for (vers, version) in [(1, Version::One), (2, Version::Two)] {
            let mut server = Side::new(Role::Server, settings());
            assert_eq!(server.conn.version(), None);
            assert!(matches!(server.receive(&msg(9, vers, false, 8)), Ingress::Call(_)));
            assert_eq!(server.conn.version(), Some(version));
            assert!(server.conn.is_ready());
            assert_eq!(server.conn.next_control().is_some(), version == Version::Two);
            assert!(!server.conn.knows_properties(), "a call states none");
        }
    }

    #[test]
    fn answers_every_other_version_with_what_it_speaks() {
        let spoken = [(Versions::ONE, 1, 1), (Versions::TWO, 2, 2), (Versions::all(), 1, 2)];
        for (versions, low, high) in spoken {
            for vers in [0, 1, 2, 3, u32::MAX].into_iter().filter(|vers| !versions.speaks(*vers)) {
                let mut server = Side::new(Role::Server, speaking(versions));
                let answer = report(&mut server, &msg(9, vers, false, 8));
                // wire.md B8: xid and version are those of the call.
                assert_eq!(words(&answer), [9, vers, 1, 4, 1, low, high]);
                assert_eq!(server.conn.counters().reported, 1);
                // Who speaks one version only has decided before.
                let before = (versions == Versions::ONE).then_some(Version::One);
                assert_eq!(server.conn.version(), before, "what is refused decides nothing");
                let next = msg(10, low, false, 8);
                assert!(matches!(server.receive(&next), Ingress::Call(_)));
            }
        }
    }

    #[test]
    fn keeps_its_version() {
        for (first, second) in [(1, 2), (2, 1)] {
            let mut server = Side::new(Role::Server, settings());
            assert!(matches!(server.receive(&msg(9, first, false, 8)), Ingress::Call(_)));
            let answer = report(&mut server, &msg(10, second, false, 8));
            assert_eq!(words(&answer)[..2], [10, second]);
            assert_eq!(words(&answer)[3..], [4, 1, 1, 2]);
            let other = msg(11, second, false, 8);
            assert_eq!(server.take_short(&other), None);
            assert!(matches!(server.receive(&msg(12, first, false, 8)), Ingress::Call(_)));
        }
    }

    #[test]
    fn of_version_two_is_answered_before_the_short_way() {
        let mut server = Side::new(Role::Server, settings());
        assert!(matches!(server.receive(&msg(9, 2, false, 8)), Ingress::Call(_)));
        assert_eq!(server.take_short(&msg(10, 2, false, 8)), None);
    }

    #[test]
    fn takes_the_short_way() {
        let directions = [RsdItem { min_len: 0, loc: RsdLoc::Tbsn }];
        let sets = [RsdSet { begin: 0, end: 40, items: Array::from_slice(&directions) }];
        let rsd = Array::from_slice(&sets);
        let read = XmtReq { dp: Array::EMPTY, rsd, count: 1, rsbuf: 1, pslen: 40 };
        let two = connected(settings(), settings());
        for (version, (_, mut server), has_items) in [(1, one(), false), (2, two, true)] {
            let plain = msg(9, version, false, 8);
            let (ledger, len) = (&mut server.ledger, plain.len() as u32);
            assert_eq!(server.conn.on_short(ledger, len + 4, &plain), None, "it goes on elsewhere");
            let other = [&plain[..28], &10_u32.to_be_bytes(), &plain[32..]].concat();
            assert_eq!(server.take_short(&other), None, "the payload has another xid");
            assert!(matches!(server.take_short(&plain), Some(Short::Plain { .. })));
            let read = Body::Optional(Optional::XmtReq(read));
            let taken = wire(10, version, 8, read, &rpc(10, false, 40));
            let taken = server.take_short(&taken);
            assert_eq!(matches!(taken, Some(Short::SingleItem(_))), has_items, "{taken:?}");
        }
    }

    #[test]
    fn is_not_decided_by_errors_or_what_is_too_short() {
        let mut server = Side::new(Role::Server, settings());
        for len in [0, 7, 15, 16, 27] {
            assert!(is_ignored(&server.receive(&msg(9, 1, false, 8)[..len]), Ignored::Short));
        }
        let error = wire(9, 1, 8, Body::Error(RdmaError::BadHeader), &[0; 12]);
        assert!(is_ignored(&server.receive(&error), Ignored::BadError));
        // RFC 8166 4.2.4: a server asked nothing, so nothing can have been refused.
        assert!(is_ignored(&server.receive(&refused(1, 1, 1)), Ignored::UnmatchedError));
        assert_eq!(server.conn.version(), None);
        // In version two an operation that carries nothing is a whole message.
        let empty = Body::Optional(Optional::Unknown { opttype: 99, info: &[] });
        let empty = wire(9, 2, 8, empty, &[]);
        assert!(is_ignored(&server.receive(&empty[..23]), Ignored::Short));
        assert_eq!(server.conn.version(), None);
        assert_eq!(words(&report(&mut server, &empty)), [9, 2, 1, 4, 3]);
        assert_eq!(server.conn.version(), Some(Version::Two));
        assert!(matches!(server.receive(&msg(9, 2, false, 8)), Ingress::Call(_)));
        let old = speaking(Versions::ONE);
        let mut server = Side::new(Role::Server, old);
        assert!(is_ignored(&server.receive(&empty), Ignored::Short), "RFC 8166 4.5");
    }

    #[test]
    fn answers_a_bad_first_message_in_its_version() {
        for vers in [1, 2] {
            let mut server = Side::new(Role::Server, settings());
            let mut bad = msg(9, vers, false, 8);
            bad[12..16].copy_from_slice(&9_u32.to_be_bytes());
            // ERR_CHUNK and BAD_HEADER are one number.
            assert_eq!(words(&report(&mut server, &bad)), [9, vers, 1, 4, 2]);
            assert_eq!(server.conn.counters().reported, 1);
        }
    }

    proptest! {
        #[test]
        fn decides_once(
            bits in 1u8..4,
            stream in vec((0u32..4, 0u32..7, 0usize..60, any::<bool>()), 1..20),
        ) {
            let versions = Versions::from_bits_truncate(bits);
            let mut server = Side::new(Role::Server, speaking(versions));
            let mut model = [None, Some(1), Some(2), None][usize::from(bits)];
            for (vers, proc, len, reply) in stream {
                let mut bytes = msg(9, vers, reply, 8);
                bytes[12..16].copy_from_slice(&proc.to_be_bytes());
                bytes.truncate(len);
                let shortest = if (vers, proc) == (2, 5) { 24 } else { 28 };
                let decides = bytes.len() >= shortest && proc != 4 && versions.speaks(vers);
                let is_other = bytes.len() >= 28 && proc != 4;
                if model.is_none() && decides {
                    model = Some(vers);
                }
                let is_other = is_other && model != Some(vers);
                match server.receive(&bytes) {
                    Ingress::Reject(report) => {
                        let is_reported = matches!(report.kind, ReportKind::Version { vers: it } if it == vers);
                        prop_assert_eq!(is_reported, is_other);
                        let answer = words(&server.report(report));
                        prop_assert_eq!((answer[0], answer[1]), (9, vers), "xid and version echoed");
                    }
                    Ingress::Fatal(_) => return Ok(()),
                    _ => prop_assert!(!is_other),
                }
                if let Some(version) = server.conn.version() {
                    prop_assert_eq!(Some(version.number()), model);
                }
            }
        }
    }
}

mod opening {
    use super::*;

    #[test]
    fn a_client_that_begins_with_version_one_is_ready_at_once() {
        let mut client = beginning(Role::Client, Start::One, None);
        assert!(client.conn.is_ready() && client.conn.begin().is_none());
        assert_eq!(client.conn.version(), Some(Version::One));
        let call = first_call(&mut client);
        assert_eq!(words(&call)[1..7], [1, 8, 0, 0, 0, 0]);
        // RFC 8166 3.3.3: one message until the first reply has granted more.
        let id = client.conn.open_call(&mut client.ledger, 2).expect("ready");
        let demand = CallDemand::inline(40, 40);
        let second = client.conn.begin_sends(&mut client.ledger, id, &demand);
        assert!(matches!(second, Err(SendError::NotEnoughCredits { need: 1, have: 0 })));
        let reply = msg(words(&call)[0], 1, true, 5);
        assert!(matches!(client.receive(&reply), Ingress::Reply(..)));
        assert_eq!(client.conn.credits_limit(), 5);
    }

    #[test]
    fn a_reply_of_another_version_is_ignored() {
        let mut client = beginning(Role::Client, Start::One, None);
        let xid = words(&first_call(&mut client))[0];
        for vers in [0, 2, 3] {
            assert!(is_ignored(&client.receive(&msg(xid, vers, true, 5)), Ignored::OtherVersion));
        }
        assert_eq!(client.conn.credits_limit(), 1);
        assert!(matches!(client.receive(&msg(xid, 1, true, 5)), Ingress::Reply(..)));
    }

    #[test]
    fn a_connection_does_not_begin_with_an_unsupported_version() {
        let cases = [
            (Role::Client, Versions::TWO, Start::One),
            (Role::Client, Versions::ONE, Start::Two),
            (Role::Client, Versions::all(), Start::Either),
            (Role::Server, Versions::ONE, Start::Two),
            (Role::Server, Versions::empty(), Start::Either),
        ];
        for (role, versions, version) in cases {
            let mut ledger = ShardLedger::new(1, 1, 1, 1);
            let opening = Opening { private: None, version };
            let opened = Connection::open(role, 0, &speaking(versions), &opening, &mut ledger);
            assert!(
                matches!(opened, Err(OpenError::Misuse(_))),
                "{role:?} {versions:?} {version:?}"
            );
            assert_eq!(ledger.grants.granted(), 0, "nothing was taken");
        }
    }

    #[test]
    fn sizes_are_the_smaller_of_both_ends() {
        // Own buffers take 12 KiB; so much is sent as well, unless less is stated.
        let table = [
            // said, own send size, then: longest to send, longest to receive
            (None, 12_288, 1024, 1024),
            (said(1024, 1024), 12_288, 1024, 1024),
            (said(4096, 8192), 12_288, 8192, 4096),
            (said(8192, 4096), 12_288, 4096, 8192),
            (said(262_144, 262_144), 12_288, 12_288, 12_288),
            (said(262_144, 262_144), 2047, 1024, 12_288),
            (said(262_144, 262_144), 2048, 2048, 12_288),
        ];
        for role in [Role::Client, Role::Server] {
            for (private, inline_send_max, send, recv) in table {
                let own = Settings { inline_send_max, ..speaking(Versions::ONE) };
                let opening = Opening { private, version: Start::One };
                let side = Side::opened(role, own, &opening);
                let limits = side.conn.limits();
                assert_eq!((limits.recv_size, limits.send_size), (send, recv), "{private:?}");
                assert_eq!(side.conn.reply_room(), recv - 28);
                assert!(limits.rtr.is_empty() && !limits.placement);
            }
        }
    }

    #[test]
    fn remote_invalidation_is_allowed_by_the_flag_alone() {
        for flag in [false, true] {
            let private = said(4096, 4096);
            let private = private.map(|it| PrivateData { remote_invalidation: flag, ..it });
            let side = beginning(Role::Client, Start::One, private);
            assert_eq!(side.conn.limits().remote_invalidation, flag);
            let side = beginning(Role::Client, Start::Two, private);
            assert!(!side.conn.limits().remote_invalidation, "version two has a property for it");
        }
    }

    #[test]
    fn messages_too_long_for_a_small_peer_are_refused() {
        let mut client = beginning(Role::Client, Start::One, None);
        for (payload, reply, fits) in [(996, 996, true), (1000, 40, false), (40, 1000, false)] {
            let id = client.conn.open_call(&mut client.ledger, 1).expect("ready");
            let plain = plain_call(&mut client.conn, &mut client.ledger, id, payload, reply);
            assert_eq!(plain.is_some(), fits, "{payload} {reply}");
            if plain.is_none() {
                let demand = CallDemand::inline(payload, reply);
                let planned = client.conn.begin_sends(&mut client.ledger, id, &demand);
                assert!(matches!(planned, Err(SendError::NeedsExplicitRdma { .. })));
            }
            client.conn.finish_call(&mut client.ledger, id).expect("open");
        }
    }

    #[test]
    fn our_own_sizes_are_stated_in_whole_kibibytes() {
        let own = Settings { inline_send_max: 5000, ..settings() };
        let stated = PrivateData::decode(&own.private_data().encode()).expect("ours");
        assert_eq!((stated.send_size, stated.recv_size), (4096, 12_288));
    }
}

mod version_one {
    use super::*;

    #[test]
    fn replies_carry_it_and_their_grant() {
        let (_, mut server) = one();
        let Ingress::Call(message) = server.receive(&msg(9, 1, false, 4)) else { panic!() };
        let ledger = &mut server.ledger;
        let header = plain_reply(&mut server.conn, ledger, &message.reply_to(), 40).expect("fits");
        assert_eq!(words(&header), [9, 1, 8, 0, 0, 0, 0]);
    }

    #[test]
    fn has_no_operations() {
        let (mut client, mut server) = one();
        let optional = Body::Optional(Optional::ConnProp(ConnProp::default()));
        let bytes = wire(9, 1, 8, optional, &[]);
        assert_eq!(words(&report(&mut server, &bytes))[1..], [1, 8, 4, 2]);
        assert!(is_ignored(&client.receive(&bytes), Ignored::BadReply));
        assert!(server.conn.next_control().is_none() && client.conn.begin().is_none());
    }

    #[test]
    fn every_unknown_procedure_is_err_chunk_to_a_caller_and_nothing_to_a_callee() {
        let (mut client, mut server) = one();
        for proc in [5_u32, 6, 99, u32::MAX] {
            let mut bytes = msg(9, 1, false, 8);
            bytes[12..16].copy_from_slice(&proc.to_be_bytes());
            assert_eq!(words(&report(&mut server, &bytes)), [9, 1, 8, 4, 2]);
            assert!(is_ignored(&client.receive(&bytes), Ignored::BadReply), "RFC 8166 4.5");
        }
    }

    #[test]
    fn a_message_without_chunks_and_without_payload_is_err_chunk() {
        let (_, mut server) = one();
        // RDMA_NOMSG with no list present (RFC 8166 4.5.2).
        let mut bytes = msg(9, 1, false, 8);
        bytes[12..16].copy_from_slice(&1_u32.to_be_bytes());
        assert_eq!(words(&report(&mut server, &bytes)), [9, 1, 8, 4, 2]);
    }

    #[test]
    fn a_payload_of_another_xid_is_err_chunk_for_a_call_and_dropped_for_a_reply() {
        let (mut client, mut server) = one();
        let other = |reply| wire(9, 1, 8, Body::Msg(ChunkLists::EMPTY), &rpc(10, reply, 40));
        assert_eq!(words(&report(&mut server, &other(false))), [9, 1, 8, 4, 2]);
        assert!(is_ignored(&client.receive(&other(true)), Ignored::BadReply));
        for kind in [2_u32, u32::MAX] {
            let mut bytes = msg(9, 1, false, 8);
            bytes[32..36].copy_from_slice(&kind.to_be_bytes());
            assert_eq!(words(&report(&mut server, &bytes)), [9, 1, 8, 4, 2]);
            assert!(is_ignored(&client.receive(&bytes), Ignored::BadReply));
        }
    }

    #[test]
    fn msgp_is_err_chunk_for_a_call_and_dropped_for_a_reply() {
        let (mut client, mut server) = one();
        let msgp = |xid, reply| {
            let body = Body::Msgp { align: 64, thresh: 1024, chunks: ChunkLists::EMPTY };
            wire(xid, 1, 8, body, &rpc(xid, reply, 40))
        };
        assert_eq!(words(&report(&mut server, &msgp(9, false))), [9, 1, 8, 4, 2]);
        assert!(is_ignored(&server.receive(&msgp(9, true)), Ignored::BadReply));
        let xid = words(&first_call(&mut client))[0];
        assert!(is_ignored(&client.receive(&msgp(xid, true)), Ignored::BadReply));
        assert_eq!(client.ledger.calls.len(), 1, "its call waits for another reply");
        assert!(is_ignored(&client.receive(&msgp(9, true)[..40]), Ignored::BadReply));
        assert_eq!(words(&report(&mut server, &msgp(9, true)[..40])), [9, 1, 8, 4, 2]);
    }

    #[test]
    fn done_is_dropped() {
        let (mut client, mut server) = one();
        let bytes = wire(9, 1, 8, Body::Done, &[0; 12]);
        assert!(is_ignored(&server.receive(&bytes), Ignored::Done));
        assert!(is_ignored(&client.receive(&bytes), Ignored::Done));
        assert!(is_ignored(&server.receive(&bytes[..16]), Ignored::Short));
    }

    #[test]
    fn errors_end_their_call_at_a_requester_and_nothing_at_a_responder() {
        let (mut client, mut server) = one();
        for (code, refusal) in [
            (RdmaError::BadHeader, Refusal::BadHeader),
            (RdmaError::Vers { low: 1, high: 1 }, Refusal::Version { low: 1, high: 1 }),
        ] {
            let xid = words(&first_call(&mut client))[0];
            let error = wire(xid, 1, 3, Body::Error(code), &[]);
            let ingress = client.receive(&error);
            let Ingress::Failed(id, why) = ingress else { panic!("{ingress:?}") };
            assert_eq!((id.xid(), why), (xid, refusal));
            client.conn.finish_call(&mut client.ledger, id).expect("open");
            assert!(is_ignored(&client.receive(&error), Ignored::UnmatchedError), "twice");
            assert!(is_ignored(&server.receive(&error), Ignored::UnmatchedError));
        }
        let inval = wire(9, 1, 8, Body::Error(RdmaError::InvalOption), &[]);
        assert!(is_ignored(&client.receive(&inval), Ignored::BadError), "not of version one");
        assert_eq!(server.conn.counters().reported, 0);
    }

    #[test]
    fn the_shortest_messages_are_those_of_wire_md() {
        let (mut client, mut server) = one();
        let lens = [(Body::Error(RdmaError::BadHeader), 20), (Body::Msg(ChunkLists::EMPTY), 28)];
        for (body, shortest) in lens {
            let bytes = wire(9, 1, 8, body, &[]);
            assert_eq!(bytes.len(), shortest);
            for len in 0..shortest {
                let expected = match body {
                    Body::Error(_) if len >= 16 => Ignored::BadError,
                    _ => Ignored::Short,
                };
                for side in [&mut client, &mut server] {
                    assert!(is_ignored(&side.receive(&bytes[..len]), expected), "{len}");
                }
            }
        }
        // RFC 8166 4.5: before anything of it is parsed, the version included.
        let other = msg(9, 3, false, 8);
        assert!(is_ignored(&server.receive(&other[..27]), Ignored::Short));
        assert_eq!(words(&report(&mut server, &other[..28]))[4..], [1, 1, 2]);
    }

    #[test]
    fn a_grant_of_zero_is_one_and_counted() {
        let (mut client, _) = one();
        assert_eq!(client.conn.credits_limit(), 8);
        let xid = words(&first_call(&mut client))[0];
        assert!(matches!(client.receive(&msg(xid, 1, true, 0)), Ingress::Reply(..)));
        assert_eq!((client.conn.credits_limit(), client.conn.counters().zero_grants), (1, 1));
    }
}

mod backward {
    use super::*;

    /// A call of the server; what it is as bytes.
    fn callback(server: &mut Side) -> Vec<u8> {
        first_call(server)
    }

    #[test]
    fn the_payload_states_the_direction_and_the_same_xid_may_be_in_both() {
        let (mut client, mut server) = one();
        let forward = words(&first_call(&mut client))[0];
        // A peer may number its callbacks as it likes: as our own call, for one.
        let Ingress::Call(message) = client.receive(&msg(forward, 1, false, 4)) else { panic!() };
        assert_eq!(message.xid, forward);
        assert_eq!(client.ledger.calls.len(), 1, "the call of this xid is still open");
        let ledger = &mut client.ledger;
        let answer = plain_reply(&mut client.conn, ledger, &message.reply_to(), 40).expect("fits");
        assert_eq!(words(&answer)[..4], [forward, 1, 4, 0]);
        assert!(matches!(client.receive(&msg(forward, 1, true, 8)), Ingress::Reply(..)));
        let bytes = callback(&mut server);
        assert!(matches!(client.receive(&bytes), Ingress::Call(_)));
    }

    #[test]
    fn credits_are_separate_and_one_at_first() {
        let (mut client, mut server) = one();
        assert_eq!((client.conn.credits_limit(), server.conn.credits_limit()), (8, 1));
        let bytes = callback(&mut server);
        let id = server.conn.open_call(&mut server.ledger, 2).expect("ready");
        let demand = CallDemand::inline(40, 40);
        let second = server.conn.begin_sends(&mut server.ledger, id, &demand);
        assert!(matches!(second, Err(SendError::NotEnoughCredits { .. })));
        let Ingress::Call(message) = client.receive(&bytes) else { panic!() };
        let (ledger, to) = (&mut client.ledger, message.reply_to());
        let header = plain_reply(&mut client.conn, ledger, &to, 40).expect("fits");
        let reply = [&header[..], &rpc(to.xid, true, 40)].concat();
        assert!(matches!(server.receive(&reply), Ingress::Reply(..)));
        assert_eq!(server.conn.credits_limit(), 8, "as the client grants");
        assert_eq!(client.conn.credits_limit(), 8, "and the other direction's are untouched");
    }

    #[test]
    fn is_inline_only() {
        let (mut client, mut server) = one();
        let id = server.conn.open_call(&mut server.ledger, 2).expect("ready");
        let demand = CallDemand::inline(12_288, 40);
        let long = server.conn.begin_sends(&mut server.ledger, id, &demand);
        assert!(matches!(long, Err(SendError::NeedsExplicitRdma { .. })));
        let segment = [ReadSegment { position: 8, target: RdmaSegment::default() }];
        let reads = ReadList::from_slice(&segment);
        let chunks = ChunkLists { reads, ..ChunkLists::EMPTY };
        let bytes = wire(9, 1, 8, Body::Msg(chunks), &rpc(9, false, 40));
        let answer = report(&mut client, &bytes);
        assert_eq!(
            (words(&answer)[..2].to_vec(), words(&answer)[3..].to_vec()),
            (vec![9, 1], vec![4, 2])
        );
    }

    #[test]
    fn is_refused_by_an_end_that_accepts_none() {
        let none = Settings { backward: BackwardSupport::None, ..settings() };
        let (mut client, mut server) = connected_in(Version::One, none, settings());
        let bytes = callback(&mut server);
        let answer = report(&mut client, &bytes);
        assert!(matches!(server.receive(&answer), Ingress::Failed(_, Refusal::BadHeader)));
    }

    #[test]
    fn an_error_finds_its_callback() {
        let (_, mut server) = one();
        let xid = words(&callback(&mut server))[0];
        let error = wire(xid, 1, 8, Body::Error(RdmaError::BadHeader), &[]);
        assert!(matches!(server.receive(&error), Ingress::Failed(..)));
    }
}
