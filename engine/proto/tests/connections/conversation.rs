//! The effect of each kind of received transmission, and the state after it.

use crate::pair::{
    Side, connected, connected_in, first_call, plain_reply, property_operations, rpc, structure,
    transmission,
};
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

fn wire(xid: u32, vers: u32, credit: u32, body: Body<'_>, payload: &[u8]) -> Vec<u8> {
    let header = Header { xid, vers, credit, body };
    transmission(&header, payload)
}

fn msg(xid: u32, reply: bool) -> Vec<u8> {
    wire(xid, 2, 8, Body::Msg(ChunkLists::EMPTY), &rpc(xid, reply, 40))
}

fn xmtreq(xid: u32, count: u32) -> Vec<u8> {
    let req = XmtReq { dp: Array::EMPTY, rsd: Array::EMPTY, count, rsbuf: 1, pslen: 40 };
    wire(xid, 2, 8, Body::Optional(Optional::XmtReq(req)), &rpc(xid, false, 40))
}

fn xmtresp(xid: u32, count: u32, dp: &[MsgItem<'_>]) -> Vec<u8> {
    let resp = XmtResp { dp: Array::from_slice(dp), count, pslen: 40 };
    wire(xid, 2, 8, Body::Optional(Optional::XmtResp(resp)), &rpc(xid, true, 40))
}

fn xmtcont(xid: u32, xnum: u32, itype: u32) -> Vec<u8> {
    let cont = XmtCont { xnum, itype, pslen: 8 };
    wire(xid, 2, 8, Body::Optional(Optional::XmtCont(cont)), &[1; 8])
}

fn both() -> (Side, Side) {
    connected(settings(), settings())
}

/// A call of the client, sent inline and not yet answered.
fn call(client: &mut Side) -> CallId {
    let id = client.conn.open_call(&mut client.ledger, 77).expect("ready");
    let demand = CallDemand::inline(40, 40);
    client.conn.begin_sends(&mut client.ledger, id, &demand).expect("a credit is there");
    id
}

/// A call whose reply may have `count` transmissions.
fn long_call(client: &mut Side, count: u32) -> CallId {
    let id = client.conn.open_call(&mut client.ledger, 78).expect("ready");
    let demand = CallDemand::inline(40, count * 12_000);
    client.conn.begin_sends(&mut client.ledger, id, &demand).expect("credits are there");
    assert_eq!(client.ledger.replies.reserved(), count);
    id
}

fn rept(ingress: Ingress<'_>) -> ReptErr {
    let report = match ingress {
        Ingress::Reject(report)
        | Ingress::BadReply { report, .. }
        | Ingress::Aborted(Aborted { report, .. }) => report,
        other => panic!("no report: {other:?}"),
    };
    match report.kind {
        ReportKind::Rept(rept) => {
            assert_eq!(report.xid, rept.bad.xid);
            rept
        }
        other => panic!("another report: {other:?}"),
    }
}

fn is_bad_header(ingress: &Ingress<'_>) -> bool {
    matches!(ingress, Ingress::Reject(Report { kind: ReportKind::BadHeader, .. }))
}

mod handshake {
    use super::*;

    #[test]
    fn the_server_answers_with_the_same_xid_and_a_grant() {
        let mut client = Side::new(Role::Client, settings());
        let mut server = Side::new(Role::Server, settings());
        assert_eq!(client.conn.limits().recv_size, 1024, "before anything is known");
        assert!(!client.conn.is_ready() && !server.conn.is_ready());
        assert_eq!(client.conn.open_call(&mut client.ledger, 0), Err(SendError::NotReady));
        assert!(server.conn.begin().is_none(), "a server never speaks first");
        assert!(server.conn.next_control().is_none());
        let hello = client.conn.begin().expect("first message");
        assert!(client.conn.begin().is_none(), "once");
        let hello = client.control(hello);
        assert!(hello.len() <= 1024);
        let Ingress::Control(control) = server.receive(&hello) else { panic!("control") };
        let answer = server.control(control.answer.expect("own properties"));
        assert!(answer.len() <= 1024);
        let (header, _) = Header::decode(&answer).expect("valid");
        assert_eq!(header.xid, Header::decode(&hello).expect("valid").0.xid);
        assert_eq!(header.credit, 8, "what the client asked for");
        assert!(matches!(client.receive(&answer), Ingress::Control(_)));
        assert!(client.conn.is_ready() && server.conn.is_ready());
        assert_eq!(client.conn.credits_available(), 8);
        let limits = client.conn.limits();
        assert_eq!((limits.recv_size, limits.placement), (4096 * 3, true));
        assert_eq!(limits.rtr, RtrSupport::XREQ | RtrSupport::XRESP | RtrSupport::XCONT);
        assert!(server.conn.next_control().is_none(), "it has been sent");
    }

    #[test]
    fn a_server_without_properties_has_the_defaults() {
        let plain = Settings { properties: false, ..settings() };
        let mut client = Side::new(Role::Client, settings());
        let mut server = Side::new(Role::Server, plain);
        let hello = client.conn.begin().expect("first message");
        let hello = client.control(hello);
        let Ingress::Reject(report) = server.receive(&hello) else { panic!("rejected") };
        assert_eq!(report.kind, ReportKind::InvalOption);
        let error = server.report(report);
        assert_eq!(error.len(), 20);
        let ready = Control { became_ready: true, answer: None };
        assert!(matches!(client.receive(&error), Ingress::Control(control) if control == ready));
        assert_eq!(client.conn.limits().recv_size, 4096);
        assert_eq!(client.conn.limits().request_rx_limit, 1);
        assert!(client.conn.limits().rtr.is_empty());
        assert_eq!(client.conn.reply_room(), 4096 - 28, "what it sends has the default size");
        assert_eq!(client.conn.credits_limit(), 1);
    }

    #[test]
    fn errors_grant_no_credits() {
        let plain = Settings { properties: false, ..settings() };
        let rept = |xid| {
            let bad = MsgId { xid, dir: MsgType::Call, seq: 0 };
            Body::Optional(Optional::ReptErr(ReptErr { bad, lead: None, info: ReptInfo::BadCont }))
        };
        let errors = |xid| {
            let vers = RdmaError::Vers { low: 2, high: 2 };
            let all = [RdmaError::InvalOption, RdmaError::BadHeader, vers].map(Body::Error);
            all.into_iter().chain([rept(xid)]).map(move |body| wire(xid, 2, 5, body, &[]))
        };
        // To a client that states its properties, and to one that begins with a call.
        for error in errors(0) {
            let mut client = Side::new(Role::Client, settings());
            client.conn.begin().expect("first message");
            client.receive(&error);
            assert_eq!(client.conn.credits_limit(), 1);
        }
        for turn in 0..4 {
            let mut client = Side::new(Role::Client, plain);
            let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
            let demand = CallDemand::inline(40, 40);
            client.conn.begin_sends(&mut client.ledger, id, &demand).expect("one credit");
            let error = errors(id.xid()).nth(turn).expect("four");
            client.receive(&error);
            assert_eq!(client.conn.credits_limit(), 1, "{turn}");
            client.conn.finish_call(&mut client.ledger, id);
            // Nor do they take any away again.
            let reply = msg(call(&mut client).xid(), true);
            assert!(matches!(client.receive(&reply), Ingress::Reply(..)));
            let id = call(&mut client);
            let error = wire(id.xid(), 2, 2, Body::Error(RdmaError::BadHeader), &[]);
            assert!(matches!(client.receive(&error), Ingress::Failed(of, _) if of == id));
            assert_eq!(client.conn.credits_limit(), 8);
        }
    }

    #[test]
    fn a_report_about_no_message_changes_nothing() {
        let report = |xid, dir| {
            let bad = MsgId { xid, dir, seq: 0 };
            let report = ReptErr { bad, lead: None, info: ReptInfo::BadCont };
            wire(xid, 2, 5, Body::Optional(Optional::ReptErr(report)), &[])
        };
        for (role, dir) in [Role::Client, Role::Server]
            .into_iter()
            .flat_map(|role| [MsgType::Call, MsgType::Reply].map(|dir| (role, dir)))
        {
            let mut side = Side::new(role, settings());
            side.conn.begin();
            let ingress = side.receive(&report(0, dir));
            let is_ignored = matches!(ingress, Ingress::Ignored(Ignored::UnmatchedError));
            assert!(is_ignored && !side.conn.is_ready(), "{role:?} {dir:?}: {ingress:?}");
            assert_eq!((side.conn.version(), side.conn.next_control()), (None, None));
        }
        // The reported message is known, and a peer that reports it supports the extension.
        let mut client = Side::new(Role::Client, Settings { properties: false, ..settings() });
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let demand = CallDemand::inline(40, 40);
        client.conn.begin_sends(&mut client.ledger, id, &demand).expect("one credit");
        let failed = client.receive(&report(id.xid(), MsgType::Call));
        assert!(matches!(failed, Ingress::Failed(of, _) | Ingress::Again(of, _) if of == id));
        assert_eq!(client.conn.version(), Some(Version::Two));
    }

    #[test]
    fn a_client_without_properties_starts_with_a_small_call() {
        let plain = Settings { properties: false, ..settings() };
        let mut client = Side::new(Role::Client, plain);
        let mut server = Side::new(Role::Server, settings());
        assert!(client.conn.begin().is_none());
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let mut plan = |payload| {
            let demand = CallDemand::inline(payload, 40);
            client.conn.begin_sends(&mut client.ledger, id, &demand)
        };
        assert!(plan(1024 - 24).is_err(), "the first message has at most 1024 bytes");
        let mut plan = plan(1024 - 28).expect("the edge");
        let wires = client.transmit(&mut plan, &rpc(id.xid(), false, 1024 - 28), &[]);
        let Ingress::Call(message) = server.receive(&wires[0]) else { panic!("a call") };
        let to = message.reply_to();
        let demand = ReplyDemand::inline(40);
        server.conn.begin_reply(&mut server.ledger, &to, &demand).expect("fits");
        // wire.md B2: the server's properties come after the reply.
        let control = server.conn.next_control().expect("not yet sent");
        assert!(server.conn.next_control().is_none(), "once");
        assert!(matches!(client.receive(&msg(id.xid(), true)), Ingress::Reply(of, _) if of == id));
        assert_eq!(client.conn.limits().recv_size, 4096);
        let Ingress::Reject(report) = client.receive(&server.control(control)) else {
            panic!("the client has no properties")
        };
        assert_eq!(report.kind, ReportKind::InvalOption);
    }

    /// The transmissions of a reply of so many bytes, or the longest message that there could be.
    fn answer(
        server: &mut Side,
        to: &ReplyTo,
        offer: Offer<'_>,
        len: u32,
    ) -> Result<Vec<Vec<u8>>, u32> {
        let demand = ReplyDemand { offer, ..ReplyDemand::inline(len) };
        let Side { conn, ledger, .. } = &mut *server;
        match conn.begin_reply(ledger, to, &demand) {
            Ok(mut plan) => Ok(server.transmit(&mut plan, &rpc(to.xid, true, len as usize), &[])),
            Err(_) => Err(len),
        }
    }

    #[test]
    fn the_first_answer_of_a_server_is_small_in_every_way() {
        let target = RdmaSegment { handle: 1, length: 20_000, offset: 0 };
        let offered = [target];
        let chunk = Some(WriteChunk(Array::from_slice(&offered)));
        let with_chunk = ChunkLists { reply: chunk, ..ChunkLists::EMPTY };
        let with_chunk = wire(9, 2, 8, Body::Msg(with_chunk), &rpc(9, false, 40));
        let long = XmtReq { dp: Array::EMPTY, rsd: Array::EMPTY, count: 1, rsbuf: 16, pslen: 40 };
        let long = wire(9, 2, 8, Body::Optional(Optional::XmtReq(long)), &rpc(9, false, 40));
        let plain = msg(9, false);
        let writes = List::EMPTY;
        let by_chunk = Offer::Chunks { writes, reply: chunk };
        for properties in [true, false] {
            for (call, offer) in
                [(&plain, Offer::None), (&with_chunk, by_chunk), (&long, Offer::None)]
            {
                let mut server = Side::new(Role::Server, Settings { properties, ..settings() });
                let Ingress::Call(message) = server.receive(call) else { panic!("a call") };
                let to = message.reply_to();
                let answers = (0..4096).step_by(4).skip(10);
                for (len, is_short) in answers.map(|len| (len, len + 28 <= 1024)) {
                    let Side { conn, ledger, .. } = &mut server;
                    let short = plain_reply(conn, ledger, &to, len);
                    assert_eq!(short.is_some(), is_short, "{len}");
                    if short.is_some() {
                        conn.withdraw_reply(&to);
                    }
                    match answer(&mut server, &to, offer, len) {
                        Ok(sent) => {
                            assert!(sent.iter().all(|bytes| bytes.len() <= 1024), "{len}");
                            server.conn.withdraw_reply(&to);
                        }
                        Err(len) => assert!(call == &plain && !is_short, "{len}"),
                    }
                }
                // A call back is no longer, nor may it be in groups that are.
                for len in (40..12_000).step_by(4) {
                    let Ok(id) = server.conn.open_call(&mut server.ledger, 0) else { panic!() };
                    let demand = CallDemand::inline(len, 40);
                    let plan = server.conn.begin_sends(&mut server.ledger, id, &demand);
                    assert_eq!(plan.is_ok(), len + 28 <= 1024);
                    server.conn.finish_call(&mut server.ledger, id).expect("open");
                }
                // With our properties, or by its next message, the client has an answer.
                if properties {
                    assert!(server.conn.next_control().is_some());
                } else {
                    assert!(matches!(server.receive(&msg(10, false)), Ingress::Call(_)));
                }
                let sent = answer(&mut server, &to, Offer::None, 4096 - 28).expect("the default");
                assert_eq!(sent.len(), 1);
            }
        }
    }

    #[test]
    fn properties_that_could_not_be_sent_are_sent_later() {
        let mut server = Side::new(Role::Server, settings());
        assert!(!server.conn.owes_properties());
        for xid in 1..4 {
            assert!(matches!(server.receive(&msg(xid, false)), Ingress::Call(_)));
            assert!(server.conn.owes_properties(), "{xid}");
        }
        assert_eq!(server.conn.limits().recv_size, 4096, "it has had an answer");
        assert!(server.conn.next_control().is_some());
        assert!(!server.conn.owes_properties() && server.conn.next_control().is_none());
    }

    #[test]
    fn a_version_one_peer_is_fatal_for_an_end_of_version_two_only() {
        for vers in [1, 2] {
            let settings = Settings { versions: Versions::TWO, ..settings() };
            let mut client = Side::new(Role::Client, settings);
            client.conn.begin().expect("first message");
            let error = RdmaError::Vers { low: 1, high: 1 };
            let ingress = client.receive(&wire(0, vers, 8, Body::Error(error), &[]));
            let refused = Fatal::VersionRefused { low: 1, high: 1 };
            assert!(matches!(ingress, Ingress::Fatal(fatal) if fatal == refused), "{vers}");
        }
    }

    #[test]
    fn properties_count_once() {
        let (client, mut server) = both();
        let again = client.control(ControlSend::ConnProp { xid: 0 });
        let ingress = server.receive(&again);
        assert!(matches!(ingress, Ingress::Ignored(Ignored::RepeatedProperties)), "{ingress:?}");
    }

    #[test]
    fn properties_are_sent_once_though_the_client_states_its_own_late() {
        let (client, _) = both();
        let mut server = Side::new(Role::Server, settings());
        assert!(matches!(server.receive(&msg(16, false)), Ingress::Call(_)));
        server.conn.next_control().expect("not yet sent");
        let late = client.control(ControlSend::ConnProp { xid: 0 });
        let done = Control { became_ready: false, answer: None };
        assert!(matches!(server.receive(&late), Ingress::Control(control) if control == done));
        assert_eq!(server.conn.limits().recv_size, 4096 * 3, "it still counts");
    }

    #[test]
    fn a_payload_behind_properties_is_bad() {
        let (client, _) = both();
        let mut server = Side::new(Role::Server, settings());
        let mut hello = client.control(ControlSend::ConnProp { xid: 0 });
        hello.extend([0; 4]);
        assert!(is_bad_header(&server.receive(&hello)));
    }

    #[test]
    fn the_size_of_a_connection_is_limited() {
        let size = size_of::<Connection>();
        assert!(size <= 2048, "{size} bytes");
    }
}

mod properties {
    use super::*;

    fn set(values: &[Property<'_>], with: impl FnOnce(PropSet<'_>) -> Vec<u8>) -> Vec<u8> {
        let mut bytes = vec![[0; Property::LEN_MAX]; values.len()];
        let values: Vec<_> = values
            .iter()
            .zip(&mut bytes)
            .map(|(value, bytes)| value.encode(bytes).expect("LEN_MAX bytes are enough"))
            .collect();
        with(PropSet::from_slice(&values))
    }

    fn connprop(values: &[Property<'_>], nochg: u32) -> Vec<u8> {
        set(values, |start| {
            let words = [nochg];
            let nochg = PropSubset::from_words(&words);
            let body = Optional::ConnProp(ConnProp { start, nochg });
            wire(0, 2, 8, Body::Optional(body), &[])
        })
    }

    fn updprop(values: &[Property<'_>]) -> Vec<u8> {
        set(values, |now| wire(9, 2, 8, Body::Optional(Optional::UpdProp(UpdProp { now })), &[]))
    }

    fn server_after(values: &[Property<'_>], nochg: u32) -> Side {
        let mut server = Side::new(Role::Server, settings());
        let ingress = server.receive(&connprop(values, nochg));
        assert!(matches!(ingress, Ingress::Control(_)), "{ingress:?}");
        server
    }

    #[test]
    fn the_usable_size_is_the_smaller_of_size_and_structure() {
        let cut = structure(1024, 1, 1024);
        let of = |values: &[Property<'_>]| {
            let server = server_after(values, 0);
            let limits = server.conn.limits();
            (limits.recv_size, limits.placement)
        };
        let size = |bytes| Property::RecvBufferSize(bytes);
        assert_eq!(of(&[]), (4096, false));
        assert_eq!(of(&[size(8192)]), (8192, false));
        assert_eq!(of(&[Property::RecvStructure(cut)]), (2048, true));
        assert_eq!(of(&[size(8192), Property::RecvStructure(cut)]), (2048, true));
        assert_eq!(of(&[size(2047), Property::RecvStructure(cut)]), (2047, false));
        let more_than_the_default = structure(4096, 1, 4096);
        assert_eq!(of(&[Property::RecvStructure(more_than_the_default)]), (8192, true));
        assert_eq!(of(&[size(u32::MAX)]), (4 << 20, false), "clamped");
        assert_eq!(of(&[Property::Default(PropId::RECV_BUFFER_SIZE)]), (4096, false));
        for (stated, total) in [(&[][..], 4096), (&[size(8192)], 8192)] {
            let single = RecvStructure::single(total);
            assert_eq!(server_after(stated, 0).conn.limits().structure, single);
        }
    }

    #[test]
    fn a_structure_of_a_buffer_that_no_first_message_fits_is_ignored() {
        let after = |first| {
            let server = server_after(&[Property::RecvStructure(structure(first, 0, 0))], 0);
            (server.conn.limits().recv_size, server.conn.counters().skipped_properties)
        };
        assert_eq!(after(1024), (1024, 0));
        assert_eq!(after(1023), (4096, 1));
        // Not even a header fits.
        assert_eq!(after(1), (4096, 1));
    }

    #[test]
    fn limits_are_clamped_and_defaults_are_one() {
        let server =
            server_after(&[Property::RequestRxLimit(0), Property::ResponseSxLimit(u32::MAX)], 0);
        let limits = server.conn.limits();
        assert_eq!((limits.request_rx_limit, limits.response_sx_limit), (1, 1024));
        let server = server_after(&[], 0);
        let limits = server.conn.limits();
        assert_eq!((limits.request_rx_limit, limits.response_sx_limit), (1, 1));
        assert_eq!(limits.backward, BackwardSupport::Inline);
        assert!(!limits.remote_invalidation);
    }

    #[test]
    fn an_update_applies_to_what_was_stated_and_may_change() {
        let cut = Property::RecvStructure(structure(4096, 2, 2048));
        let stated = [
            Property::RecvBufferSize(8192),
            Property::RequestRxLimit(4),
            Property::ResponseSxLimit(4),
            cut,
        ];
        // The third will not change.
        let mut server = server_after(&stated, 0b100);
        let update = [
            Property::RecvBufferSize(2048),
            Property::RequestRxLimit(2),
            Property::ResponseSxLimit(2),
            Property::RtrSupport(RtrSupport::XREQ),
            // It never does, whatever the peer has said.
            cut,
        ];
        assert!(matches!(server.receive(&updprop(&update)), Ingress::Control(_)));
        let limits = *server.conn.limits();
        assert_eq!((limits.recv_size, limits.request_rx_limit), (2048, 2));
        assert_eq!((limits.response_sx_limit, limits.rtr), (4, RtrSupport::empty()));
        assert_eq!(server.conn.counters().skipped_properties, 3);
        // Growth is not for this connection.
        server.receive(&updprop(&[Property::RecvBufferSize(8192)]));
        assert_eq!(server.conn.limits().recv_size, 2048);
    }

    #[test]
    fn a_request_for_changes_is_refused_but_for_a_smaller_size() {
        let mut server = server_after(&[], 0);
        let wanted = [Property::RequestRxLimit(64), Property::RecvBufferSize(2048)];
        let request = set(&wanted, |want| {
            wire(5, 2, 8, Body::Optional(Optional::ReqProp(ReqProp { want })), &[])
        });
        let Ingress::Control(Control { answer: Some(answer), .. }) = server.receive(&request)
        else {
            panic!("it is answered")
        };
        let bytes = server.control(answer);
        let (header, len) = Header::decode(&bytes).expect("valid");
        assert_eq!((header.xid, len), (5, bytes.len()));
        let Body::Optional(Optional::RespProp(answer)) = header.body else { panic!("RESPROP") };
        let done = [0, 1, 2].map(|index| answer.done.contains(index));
        let rejected = [0, 1, 2].map(|index| answer.rej.contains(index));
        assert_eq!((done, rejected), ([false, true, false], [true, false, false]));
        // A larger one is refused.
        let larger = set(&[Property::RecvBufferSize(1 << 20)], |want| {
            wire(6, 2, 8, Body::Optional(Optional::ReqProp(ReqProp { want })), &[])
        });
        let Ingress::Control(Control { answer: Some(answer), .. }) = server.receive(&larger) else {
            panic!("it is answered")
        };
        let bytes = server.control(answer);
        let (header, _) = Header::decode(&bytes).expect("valid");
        let Body::Optional(Optional::RespProp(answer)) = header.body else { panic!("RESPROP") };
        assert!(answer.rej.contains(0) && !answer.done.contains(0));
    }

    #[test]
    fn an_answer_without_a_request_is_ignored() {
        let mut server = server_after(&[], 0);
        let body = Body::Optional(Optional::RespProp(RespProp::default()));
        let ingress = server.receive(&wire(5, 2, 8, body, &[]));
        assert!(matches!(ingress, Ingress::Ignored(Ignored::UnaskedProperties)));
    }
}

mod classification {
    use super::*;

    #[test]
    fn short_messages_are_dropped() {
        let (_, mut server) = both();
        for len in [0, 15, 16, 27] {
            let bytes = &msg(1, false)[..len];
            let ingress = server.receive(bytes);
            assert!(matches!(ingress, Ingress::Ignored(Ignored::Short)), "{len}: {ingress:?}");
        }
        assert_eq!(server.conn.counters().ignored[Ignored::Short as usize], 4);
    }

    #[test]
    fn an_unknown_version_is_answered_with_the_supported_ones() {
        let (_, mut server) = both();
        for vers in [0, 1, 3] {
            let mut bytes = msg(0x55, false);
            bytes[4..8].copy_from_slice(&u32::to_be_bytes(vers));
            let Ingress::Reject(report) = server.receive(&bytes) else { panic!("rejected") };
            let answer = server.report(report);
            let (header, _) = Header::decode(&answer).expect("valid");
            assert_eq!((header.xid, header.vers), (0x55, vers));
            // wire.md B8: all that we speak, though this connection has its version.
            let error = RdmaError::Vers { low: 1, high: 2 };
            assert_eq!(header.body, Body::Error(error));
        }
    }

    #[test]
    fn errors_are_never_answered() {
        let (_, mut server) = both();
        let truncated = &wire(1, 2, 8, Body::Error(RdmaError::BadHeader), &[])[..16];
        assert!(matches!(server.receive(truncated), Ingress::Ignored(Ignored::BadError)));
        let mut other = wire(1, 2, 8, Body::Error(RdmaError::BadHeader), &[]);
        other[4..8].copy_from_slice(&3u32.to_be_bytes());
        assert!(matches!(server.receive(&other), Ingress::Ignored(Ignored::BadError)));
        let unknown = wire(1, 2, 8, Body::Error(RdmaError::BadHeader), &[]);
        assert!(matches!(server.receive(&unknown), Ingress::Ignored(Ignored::UnmatchedError)));
        let mut rept = server.report(Report {
            xid: 1,
            kind: ReportKind::Rept(ReptErr {
                bad: MsgId { xid: 1, dir: MsgType::Call, seq: 0 },
                lead: None,
                info: ReptInfo::BadCont,
            }),
        });
        assert!(matches!(server.receive(&rept), Ingress::Ignored(Ignored::UnmatchedError)));
        let len = rept.len();
        rept[len - 4..].copy_from_slice(&99u32.to_be_bytes());
        assert!(matches!(server.receive(&rept), Ingress::Ignored(Ignored::BadError)));
    }

    #[test]
    fn unknown_operations_are_not_supported() {
        let (_, mut server) = both();
        let body = Body::Optional(Optional::Unknown { opttype: 99, info: &[0; 8] });
        let ingress = server.receive(&wire(1, 2, 8, body, &[]));
        assert!(matches!(ingress, Ingress::Reject(Report { kind: ReportKind::InvalOption, .. })));
    }

    #[test]
    fn an_operation_without_information_is_a_whole_message() {
        let empty = |opttype| {
            let body = Body::Optional(Optional::Unknown { opttype, info: &[] });
            wire(1, 2, 8, body, &[])
        };
        assert_eq!(empty(99).len(), 24);
        let (client, server) = both();
        let off = Settings { rtr: RtrSupport::empty(), properties: false, ..settings() };
        let plain = Side::new(Role::Server, off);
        let inval = ReportKind::InvalOption;
        // What those need that we have is missing; the others are nothing to us.
        for (mut side, of_ours) in
            [(client, ReportKind::BadHeader), (server, ReportKind::BadHeader), (plain, inval)]
        {
            for opttype in [0, 1, 2, 3, 4, 5, 6, 7, 9, 99, u32::MAX] {
                let bytes = empty(opttype);
                assert!(matches!(side.receive(&bytes[..23]), Ingress::Ignored(Ignored::Short)));
                let Ingress::Reject(report) = side.receive(&bytes) else { panic!("{opttype}") };
                let kind = if (1..8).contains(&opttype) { of_ours } else { inval };
                assert_eq!(report, Report { xid: 1, kind }, "{opttype}");
            }
            let report = side.receive(&empty(8));
            assert!(matches!(report, Ingress::Ignored(Ignored::BadError)), "{report:?}");
        }
    }

    #[test]
    fn the_contents_of_a_disabled_operation_are_not_read() {
        let off = Settings { rtr: RtrSupport::empty(), properties: false, ..settings() };
        let mut plain = Side::new(Role::Server, off);
        let (_, mut server) = both();
        for opttype in 1..8u32 {
            let body = Body::Optional(Optional::Unknown { opttype, info: &[7; 36] });
            let mut bytes = wire(1, 2, 8, body, &[]);
            let Ingress::Reject(report) = plain.receive(&bytes) else { panic!("{opttype}") };
            assert_eq!(report.kind, ReportKind::InvalOption, "{opttype}");
            assert!(is_bad_header(&server.receive(&bytes)), "{opttype}");
            // A header that is cut off is bad in every state.
            for len in [37, 40, u32::MAX] {
                bytes[20..24].copy_from_slice(&len.to_be_bytes());
                assert!(is_bad_header(&plain.receive(&bytes)), "{opttype}");
            }
        }
    }

    #[test]
    fn the_four_property_operations_are_supported_together() {
        for operation in property_operations() {
            for (role, properties) in [
                (Role::Client, true),
                (Role::Client, false),
                (Role::Server, true),
                (Role::Server, false),
            ] {
                let mut side = Side::new(role, Settings { properties, ..settings() });
                let ingress = side.receive(&wire(1, 2, 8, Body::Optional(operation), &[]));
                let inval = ReportKind::InvalOption;
                let is_unknown = matches!(ingress, Ingress::Reject(report) if report.kind == inval);
                assert_eq!(is_unknown, !properties, "{operation:?} at the {role:?}: {ingress:?}");
            }
        }
    }

    #[test]
    fn operations_switched_off_are_not_supported() {
        let off = Settings { rtr: RtrSupport::XRESP, ..settings() };
        let (_, mut server) = connected(settings(), off);
        for bytes in [xmtreq(1, 1), xmtcont(1, 1, 5)] {
            let ingress = server.receive(&bytes);
            let Ingress::Reject(Report { kind: ReportKind::InvalOption, .. }) = ingress else {
                panic!("{ingress:?}")
            };
        }
    }

    #[test]
    fn an_undecodable_header_is_bad() {
        let (_, mut server) = both();
        let mut bytes = xmtreq(1, 1);
        bytes[20..24].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(is_bad_header(&server.receive(&bytes)));
        // RDMA_MSGP does not exist in version two.
        let mut bytes = msg(1, false);
        bytes[12..16].copy_from_slice(&2u32.to_be_bytes());
        assert!(is_bad_header(&server.receive(&bytes)));
    }

    #[test]
    fn a_payload_with_another_xid_is_bad_in_a_call_and_dropped_in_a_reply() {
        let (mut client, mut server) = both();
        let body = Body::Msg(ChunkLists::EMPTY);
        assert!(is_bad_header(&server.receive(&wire(1, 2, 8, body, &rpc(2, false, 40)))));
        let ingress = client.receive(&wire(1, 2, 8, body, &rpc(2, true, 40)));
        assert!(matches!(ingress, Ingress::Ignored(Ignored::BadReply)));
        // Neither call nor reply, or too short for either.
        let mut neither = wire(1, 2, 8, body, &rpc(1, false, 40));
        neither[35] = 9;
        assert!(is_bad_header(&server.receive(&neither)));
        assert!(is_bad_header(&server.receive(&wire(1, 2, 8, body, &[0, 0, 0, 1]))));
        // The operation and the payload disagree.
        let mut disagree = xmtreq(1, 1);
        disagree[51] = 1;
        assert!(is_bad_header(&server.receive(&disagree)));
        assert_eq!(server.conn.inflow().outstanding(), 0);
    }

    #[test]
    fn a_payload_with_another_xid_is_bad_in_the_extension_too() {
        for count in [1, 2] {
            let (mut client, mut server) = both();
            let mut request = xmtreq(1, count);
            request[44..48].copy_from_slice(&2u32.to_be_bytes());
            assert!(is_bad_header(&server.receive(&request)), "{count}");
            assert_eq!(server.conn.inflow().outstanding(), 0, "no credit is held by a bad call");
            let id = long_call(&mut client, 2);
            let mut response = xmtresp(id.xid(), count, &[]);
            response[36..40].copy_from_slice(&(id.xid() + 1).to_be_bytes());
            let Ingress::BadReply { id: of, report, .. } = client.receive(&response) else {
                panic!("a bad reply")
            };
            assert_eq!((of, report.kind), (id, ReportKind::BadHeader), "{count}");
            client.conn.finish_call(&mut client.ledger, id).expect("it has failed");
        }
    }

    #[test]
    fn chunks_need_explicit_rdma() {
        let none = Settings { explicit: false, ..settings() };
        let (mut client, mut server) = connected(none, none);
        let segment = RdmaSegment { handle: 1, length: 4, offset: 0 };
        let reads = [ReadSegment { position: 0, target: segment }];
        let chunks = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
        let call_body = Body::Msg(chunks);
        assert!(is_bad_header(&server.receive(&wire(1, 2, 8, call_body, &rpc(1, false, 40)))));
        assert!(is_bad_header(&server.receive(&wire(1, 2, 8, Body::NoMsg(chunks), &[]))));
        assert_eq!(server.conn.inflow().outstanding(), 0, "no credit is held by a bad call");
        let id = call(&mut client);
        let segments = [segment];
        let reply = Some(WriteChunk(Array::from_slice(&segments)));
        let body = Body::NoMsg(ChunkLists { reply, ..ChunkLists::EMPTY });
        let ingress = client.receive(&wire(id.xid(), 2, 8, body, &[]));
        let Ingress::Reply(of, message) = ingress else { panic!("the reply to a call") };
        assert_eq!(of, id);
        let parts = [message.part];
        let resolved =
            client.conn.resolve_reply(&client.ledger, of, &message, &parts, &Offered::NONE);
        let violation = resolved.expect_err("nothing was offered");
        // wire.md B7: a base reply is not reported.
        let report = client.conn.reject_reply(of, message.via, violation);
        assert_eq!(report, None);
    }

    #[test]
    fn replies_without_a_call_are_ignored() {
        let (mut client, _) = both();
        assert!(matches!(client.receive(&msg(3, true)), Ingress::Ignored(Ignored::UnknownReply)));
        // Opened, but never sent.
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let ingress = client.receive(&msg(id.xid(), true));
        assert!(matches!(ingress, Ingress::Ignored(Ignored::UnknownReply)));
        // The rest of a group of such a reply is dropped, too.
        let group = xmtresp(3, 2, &[]);
        assert!(matches!(client.receive(&group), Ingress::Ignored(Ignored::UnknownReply)));
        let rest = client.receive(&xmtcont(3, 1, 6));
        assert!(matches!(rest, Ingress::Ignored(Ignored::AbortedRest)), "{rest:?}");
    }
}

mod credits {
    use super::*;

    #[test]
    fn a_call_holds_its_credit_until_it_is_finished() {
        let (mut client, mut server) = both();
        let ids: Vec<_> = (0..8).map(|_| call(&mut client)).collect();
        let id = client.conn.open_call(&mut client.ledger, 0).expect("the table has room");
        let demand = CallDemand::inline(40, 40);
        let error =
            client.conn.begin_sends(&mut client.ledger, id, &demand).expect_err("no credit");
        assert_eq!(error, SendError::NotEnoughCredits { need: 1, have: 0 });
        assert_eq!(client.ledger.replies.reserved(), 8, "a failure takes nothing");
        for id in &ids {
            assert!(matches!(server.receive(&msg(id.xid(), false)), Ingress::Call(_)));
        }
        assert_eq!(server.conn.inflow().outstanding(), 8);
        let to = ReplyTo { xid: ids[0].xid(), credits: 1, rsbuf: 1, via: Via::Msg, handle: None };
        let reply = ReplyDemand::inline(40);
        server.conn.begin_reply(&mut server.ledger, &to, &reply).expect("fits");
        assert_eq!(server.conn.inflow().outstanding(), 7);
        let answer = msg(ids[0].xid(), true);
        assert!(matches!(client.receive(&answer), Ingress::Reply(of, _) if of == ids[0]));
        assert_eq!(client.conn.credits_available(), 0, "not before it is finished");
        let finished = client.conn.finish_call(&mut client.ledger, ids[0]);
        assert_eq!(finished, Some(Finished { token: 77, timer: NO_MARK }));
        assert_eq!(client.conn.finish_call(&mut client.ledger, ids[0]), None, "once");
        assert!(client.conn.begin_sends(&mut client.ledger, id, &demand).is_ok());
        assert_eq!(
            client.conn.begin_sends(&mut client.ledger, id, &demand).err(),
            Some(SendError::UnknownCall),
            "a call is planned once"
        );
    }

    /// The credits of a call and of its reply, which take the short way or the general one.
    fn stated(from: &mut Side, to: &mut Side, is_short: bool) -> [u32; 2] {
        let (id, call) = match is_short {
            true => (None, first_call(from)),
            false => {
                let id = from.conn.open_call(&mut from.ledger, 1).expect("ready");
                let demand = CallDemand::inline(40, 40);
                let plan = from.conn.begin_sends(&mut from.ledger, id, &demand);
                let payload = rpc(id.xid(), false, 40);
                (Some(id), from.transmit(&mut plan.expect("a credit"), &payload, &[]).remove(0))
            }
        };
        let Ingress::Call(message) = to.receive(&call) else { panic!("a call") };
        let (asked, payload) = (message.reply_to(), rpc(message.xid, true, 40));
        let reply = match id {
            None => {
                let header = plain_reply(&mut to.conn, &mut to.ledger, &asked, 40);
                [&header.expect("it fits")[..], &payload].concat()
            }
            Some(_) => {
                let plan = to.conn.begin_reply(&mut to.ledger, &asked, &ReplyDemand::inline(40));
                to.transmit(&mut plan.expect("it fits"), &payload, &[]).remove(0)
            }
        };
        let Ingress::Reply(id, _) = from.receive(&reply) else { panic!("a reply") };
        from.conn.finish_call(&mut from.ledger, id).expect("it was open");
        [call, reply].map(|bytes| Header::decode(&bytes).expect("valid").0.credit)
    }

    // RFC 8166 4.2.3; wire.md B11
    #[test]
    fn a_call_states_what_is_requested_and_a_reply_what_is_granted() {
        // Each number is another one.
        let client = Settings { credits_requested: 5, credits_granted_max: 3, ..settings() };
        let server = Settings { credits_requested: 6, credits_granted_max: 4, ..settings() };
        for (version, is_short) in [
            (Version::One, false),
            (Version::One, true),
            (Version::Two, false),
            (Version::Two, true),
        ] {
            let (mut client, mut server) = connected_in(version, client, server);
            assert_eq!(stated(&mut client, &mut server, is_short), [5, 4]);
            assert_eq!(stated(&mut server, &mut client, is_short), [6, 3]);
            assert_eq!((client.conn.credits_limit(), server.conn.credits_limit()), (4, 3));
            // Between the transports clients ask, and servers grant.
            for (side, expected) in [(client, 5), (server, 4)] {
                let control = side.control(ControlSend::ConnProp { xid: 0 });
                assert_eq!(Header::decode(&control).expect("valid").0.credit, expected);
            }
        }
    }

    #[test]
    fn a_peer_that_exceeds_its_grant_is_disconnected() {
        let (_, mut server) = both();
        for xid in 1..=8 {
            assert!(matches!(server.receive(&msg(xid, false)), Ingress::Call(_)));
        }
        let overstep = Fatal::CreditOverstep { outstanding: 9, granted: 8 };
        let ingress = server.receive(&msg(9, false));
        assert!(matches!(ingress, Ingress::Fatal(fatal) if fatal == overstep), "{ingress:?}");
    }

    #[test]
    fn a_group_counts_as_its_transmissions() {
        let (_, mut server) = both();
        assert!(matches!(server.receive(&xmtreq(1, 5)), Ingress::Partial));
        assert_eq!(server.conn.inflow().outstanding(), 5);
        for number in 1..4 {
            assert!(matches!(server.receive(&xmtcont(1, number, 5)), Ingress::Partial));
        }
        let last = server.receive(&xmtcont(1, 4, 5));
        assert!(matches!(last, Ingress::Complete(Complete::Call)));
        let overstep = Fatal::CreditOverstep { outstanding: 9, granted: 8 };
        let ingress = server.receive(&xmtreq(2, 4));
        assert!(matches!(ingress, Ingress::Fatal(fatal) if fatal == overstep), "{ingress:?}");
        assert!(matches!(server.receive(&xmtreq(2, 3)), Ingress::Partial), "the edge");
    }

    #[test]
    fn a_group_that_the_grant_never_allows_needs_explicit_rdma() {
        let (mut client, _) = both();
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let payload = |count: u32| CallDemand::inline(count * 12_000, 40);
        let error = client.conn.begin_sends(&mut client.ledger, id, &payload(9)).expect_err("9");
        assert!(matches!(error, SendError::NeedsExplicitRdma { limit: 8, .. }), "{error}");
        call(&mut client);
        let error = client.conn.begin_sends(&mut client.ledger, id, &payload(8)).expect_err("8");
        assert_eq!(error, SendError::NotEnoughCredits { need: 8, have: 7 }, "it is only a wait");
    }

    #[test]
    fn a_reply_has_no_more_transmissions_than_its_sender_makes() {
        let (_, mut server) =
            connected(settings(), Settings { response_sx_limit: 2, ..settings() });
        let to = ReplyTo { xid: 16, credits: 1, rsbuf: 4, via: Via::Xmt, handle: None };
        assert!(matches!(server.receive(&xmtreq(16, 1)), Ingress::Call(_)));
        let ledger = &mut server.ledger;
        let long = ReplyDemand::inline(30_000);
        let error = server.conn.begin_reply(ledger, &to, &long).expect_err("three");
        assert!(matches!(error, SendError::NeedsExplicitRdma { transmissions: 3, limit: 2, .. }));
        let plan = server.conn.begin_reply(ledger, &to, &ReplyDemand::inline(20_000));
        assert_eq!(plan.expect("two").count(), 2);
    }

    #[test]
    fn a_reply_has_no_more_transmissions_than_its_caller_has_receives_for() {
        let (_, mut server) = both();
        // wire.md E7: 0 and 1 both mean one.
        for (rsbuf, most) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
            let to = ReplyTo { xid: 16, credits: 1, rsbuf, via: Via::Xmt, handle: None };
            assert!(matches!(server.receive(&xmtreq(16, 1)), Ingress::Call(_)));
            let of = |count| ReplyDemand::inline(count * 12_000);
            let ledger = &mut server.ledger;
            let error = server.conn.begin_reply(ledger, &to, &of(most + 1)).expect_err("too long");
            let needed = most + 1;
            assert!(
                matches!(error, SendError::NeedsExplicitRdma { transmissions, limit, .. }
                    if (transmissions, limit) == (needed, most)),
                "{error}"
            );
            let plan = server.conn.begin_reply(ledger, &to, &of(most)).expect("so many");
            assert_eq!(plan.count(), most);
        }
    }

    #[test]
    fn a_reply_raises_the_grant_as_soon_as_there_are_receives() {
        let mut poor = ShardLedger::new(4, 1, 1, 4);
        let mut conn =
            Connection::open(Role::Server, 0, &settings(), &Opening::of(Role::Server), &mut poor)
                .expect("one");
        let at = Received { buffer: 0, byte_len: 68 };
        let bytes = msg(1, false);
        let Ingress::Call(message) = conn.on_transmission(&mut poor, at, &bytes) else {
            panic!("a call")
        };
        assert_eq!(conn.inflow().granted(), 1);
        // Receives come in, as from a connection that was closed.
        poor.grants = GrantPool::new(5, 1);
        poor.grants.open().expect("its own floor");
        let demand = ReplyDemand::inline(40);
        conn.begin_reply(&mut poor, &message.reply_to(), &demand).expect("fits");
        assert_eq!(conn.inflow().granted(), 5);
    }

    #[test]
    fn no_receives_for_the_reply_means_no_call() {
        let (mut client, _) = both();
        client.ledger.replies = ReplyReserve::new(1);
        call(&mut client);
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let demand = CallDemand::inline(40, 40);
        let error = client.conn.begin_sends(&mut client.ledger, id, &demand).expect_err("none");
        assert_eq!(error, SendError::NotEnoughReceives { need: 1, have: 0 });
        assert_eq!(client.conn.credits_available(), 7, "a failure takes nothing");
    }

    #[test]
    fn receives_that_a_reply_does_not_use_return_with_its_first_transmission() {
        let (mut client, _) = both();
        let id = long_call(&mut client, 4);
        assert!(matches!(client.receive(&xmtresp(id.xid(), 2, &[])), Ingress::Partial));
        assert_eq!(client.ledger.replies.reserved(), 2);
        let last = client.receive(&xmtcont(id.xid(), 1, 6));
        assert!(matches!(last, Ingress::Complete(Complete::Reply(of)) if of == id));
        client.conn.finish_call(&mut client.ledger, id).expect("open");
        assert_eq!(client.ledger.replies.reserved(), 0);
    }

    #[test]
    fn closing_returns_the_credits_and_receives_of_a_connection() {
        let (mut client, server) = both();
        let Side { conn, mut ledger, .. } = server;
        assert_eq!(ledger.grants.granted(), 8);
        conn.close(&mut ledger);
        assert_eq!(ledger.grants.granted(), 0);
        call(&mut client);
        call(&mut client);
        let Side { mut conn, mut ledger, .. } = client;
        while let Some((id, _)) = ledger.calls.next_of(conn.peer(), 0) {
            conn.finish_call(&mut ledger, id).expect("open");
        }
        conn.close(&mut ledger);
        assert!(ledger.calls.is_empty());
        assert_eq!((ledger.replies.reserved(), ledger.grants.granted()), (0, 0));
    }
}

mod groups {
    use super::*;

    #[test]
    fn an_intervening_message_ends_the_group_once_and_is_itself_processed() {
        let (_, mut server) = both();
        assert!(matches!(server.receive(&xmtreq(1, 3)), Ingress::Partial));
        let first = server.last_buffer();
        let intervening = msg(2, false);
        let Ingress::Aborted(Aborted { report, again: true, .. }) = server.receive(&intervening)
        else {
            panic!("the group ends")
        };
        assert_eq!(server.conn.group()[0].buffer, first, "to be released");
        assert!(server.conn.parked().is_empty());
        assert_eq!(server.conn.inflow().outstanding(), 0);
        let ReportKind::Rept(rept) = report.kind else { panic!("a report of the extension") };
        assert_eq!(rept.info, ReptInfo::BadHmt(Mismatch { expect: 5, current: 0 }));
        assert_eq!(rept.lead, Some(MsgId { xid: 1, dir: MsgType::Call, seq: 0 }));
        let again = server.hand_in(server.last_buffer(), intervening.len());
        assert!(matches!(again, Ingress::Call(message) if message.xid == 2));
        for number in [1, 2] {
            let rest = server.receive(&xmtcont(1, number, 5));
            assert!(matches!(rest, Ingress::Ignored(Ignored::AbortedRest)), "{rest:?}");
        }
        assert_eq!(server.conn.counters().reported, 1);
        // Another stray is reported.
        assert_eq!(rept_of(&mut server, &xmtcont(9, 1, 5)).info, ReptInfo::BadCont);
    }

    fn rept_of(side: &mut Side, bytes: &[u8]) -> ReptErr {
        rept(side.receive(bytes))
    }

    #[test]
    fn another_initial_is_an_intervening_message_too() {
        let (_, mut server) = both();
        assert!(matches!(server.receive(&xmtreq(1, 3)), Ingress::Partial));
        assert_eq!(server.conn.parked().len(), 1);
        let second = xmtreq(2, 2);
        let report = rept_of(&mut server, &second);
        assert_eq!(report.info, ReptInfo::BadOmt(Mismatch { expect: 7, current: 5 }));
        let again = server.hand_in(server.last_buffer(), second.len());
        assert!(matches!(again, Ingress::Partial));
        let last = server.receive(&xmtcont(2, 1, 5));
        assert!(matches!(last, Ingress::Complete(Complete::Call)));
    }

    #[test]
    fn a_wrong_continuation_ends_the_group_and_is_dropped() {
        let mismatch = |expect, current| Mismatch { expect, current };
        let table = [
            (xmtcont(1, 2, 5), ReptInfo::BadSeq(mismatch(1, 2))),
            (xmtcont(8, 1, 5), ReptInfo::BadXid(mismatch(1, 8))),
            (xmtcont(1, 1, 6), ReptInfo::BadOmt(mismatch(5, 6))),
        ];
        for (bytes, info) in table {
            let (_, mut server) = both();
            assert!(matches!(server.receive(&xmtreq(1, 3)), Ingress::Partial));
            let ingress = server.receive(&bytes);
            assert!(matches!(ingress, Ingress::Aborted(Aborted { again: false, .. })));
            let report = rept(ingress);
            assert_eq!(report.info, info);
            assert_eq!(report.lead, Some(MsgId { xid: 1, dir: MsgType::Call, seq: 0 }));
            assert_eq!(server.conn.inflow().outstanding(), 0);
        }
    }

    /// Messages that end a group of a call: what is expected and found, and which way each goes.
    fn interventions() -> Vec<(Vec<u8>, ReptInfo, MsgType)> {
        use MsgType::{Call, Reply};
        let hmt = |current| ReptInfo::BadHmt(Mismatch { expect: 5, current });
        let omt = |current| ReptInfo::BadOmt(Mismatch { expect: 7, current });
        let target = RdmaSegment { handle: 1, length: 40, offset: 0 };
        let reads = [ReadSegment { position: 0, target }];
        let fetched = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
        let segments = [target];
        let written = ChunkLists {
            reply: Some(WriteChunk(Array::from_slice(&segments))),
            ..ChunkLists::EMPTY
        };
        let bad = MsgId { xid: 2, dir: Reply, seq: 0 };
        let rept = ReptErr { bad, lead: None, info: ReptInfo::BadCont };
        let of = |body| wire(2, 2, 8, body, &[]);
        let option = |optional| of(Body::Optional(optional));
        let mut other = of(Body::Error(RdmaError::Vers { low: 1, high: 1 }));
        other[7] = 1;
        vec![
            (msg(2, false), hmt(0), Call),
            (msg(2, true), hmt(0), Reply),
            (of(Body::NoMsg(fetched)), hmt(1), Call),
            (of(Body::NoMsg(written)), hmt(1), Reply),
            (xmtreq(2, 1), omt(5), Call),
            (xmtresp(2, 1, &[]), omt(6), Reply),
            // Those that go no way have that of the group.
            (of(Body::Error(RdmaError::BadHeader)), hmt(4), Call),
            (of(Body::Error(RdmaError::Vers { low: 1, high: 1 })), hmt(4), Call),
            (other, hmt(4), Call),
            (option(Optional::ReptErr(rept)), omt(8), Call),
            (option(Optional::ConnProp(ConnProp::default())), omt(1), Call),
            (option(Optional::Unknown { opttype: 99, info: &[] }), omt(99), Call),
        ]
    }

    #[test]
    fn every_message_intervenes_and_is_named_with_its_direction() {
        for (bytes, info, dir) in interventions() {
            let (_, mut server) = both();
            assert!(matches!(server.receive(&xmtreq(1, 2)), Ingress::Partial));
            let ingress = server.receive(&bytes);
            let is_again = matches!(ingress, Ingress::Aborted(Aborted { again: true, .. }));
            assert!(is_again, "{info}: {ingress:?}");
            let report = rept(ingress);
            assert_eq!((report.info, report.bad), (info, MsgId { xid: 2, dir, seq: 0 }));
            assert_eq!(report.lead, Some(MsgId { xid: 1, dir: MsgType::Call, seq: 0 }));
            // The same as without a group.
            let (_, mut alone) = both();
            let before = alone.receive(&[]);
            assert!(matches!(before, Ingress::Ignored(Ignored::Short)));
            let expected = format!("{:?}", alone.receive(&bytes));
            let again = server.hand_in(server.last_buffer(), bytes.len());
            assert_eq!(format!("{again:?}"), expected);
            let rest = server.receive(&xmtcont(1, 1, 5));
            assert!(matches!(rest, Ingress::Ignored(Ignored::AbortedRest)), "{info}: {rest:?}");
        }
    }

    #[test]
    fn dropped_messages_do_not_interrupt_a_group() {
        let (_, mut server) = both();
        assert!(matches!(server.receive(&xmtreq(1, 2)), Ingress::Partial));
        let error = wire(1, 2, 8, Body::Error(RdmaError::BadHeader), &[]);
        let empty =
            wire(1, 2, 8, Body::Optional(Optional::Unknown { opttype: 99, info: &[] }), &[]);
        for short in [&[0; 10][..], &msg(2, false)[..27], &error[..19], &empty[..23]] {
            let ingress = server.receive(short);
            assert!(matches!(ingress, Ingress::Ignored(Ignored::Short | Ignored::BadError)));
        }
        let last = server.receive(&xmtcont(1, 1, 5));
        assert!(matches!(last, Ingress::Complete(Complete::Call)));
    }

    #[test]
    fn a_continuation_is_named_with_the_direction_that_it_states() {
        use MsgType::{Call, Reply};
        for (itype, states) in [(5, Some(Call)), (6, Some(Reply)), (0, None)] {
            // Another xid than the open group's, and no group at all.
            let (_, mut server) = both();
            assert!(matches!(server.receive(&xmtreq(1, 3)), Ingress::Partial));
            let report = rept(server.receive(&xmtcont(8, 1, itype)));
            assert_eq!(report.bad, MsgId { xid: 8, dir: states.unwrap_or(Call), seq: 1 });
            assert_eq!(report.info, ReptInfo::BadXid(Mismatch { expect: 1, current: 8 }));
            let report = rept(server.receive(&xmtcont(9, 2, itype)));
            assert_eq!(report.bad, MsgId { xid: 9, dir: states.unwrap_or(Call), seq: 2 });
            let (mut client, _) = both();
            let id = long_call(&mut client, 3);
            assert!(matches!(client.receive(&xmtresp(id.xid(), 3, &[])), Ingress::Partial));
            let report = rept(client.receive(&xmtcont(8, 1, itype)));
            assert_eq!(report.bad, MsgId { xid: 8, dir: states.unwrap_or(Reply), seq: 1 });
        }
    }

    #[test]
    fn every_transmission_of_a_group_states_the_credits() {
        // wire.md E6: the last one received counts.
        let credited = |mut bytes: Vec<u8>, credit: u32| {
            bytes[8..12].copy_from_slice(&credit.to_be_bytes());
            bytes
        };
        let (mut client, _) = both();
        let id = long_call(&mut client, 3);
        let parts = [xmtresp(id.xid(), 3, &[]), xmtcont(id.xid(), 1, 6), xmtcont(id.xid(), 2, 6)];
        for (part, credit) in parts.into_iter().zip([7, 5, 3]) {
            client.receive(&credited(part, credit));
            assert_eq!(client.conn.credits_limit(), credit);
        }
        // A call asks: for more than it began with, in its last transmission.
        let plain = Settings { properties: false, ..settings() };
        let mut server = Side::new(Role::Server, plain);
        assert!(matches!(server.receive(&credited(msg(9, false), 2)), Ingress::Call(_)));
        server.conn.refuse(&mut server.ledger, &ReplyTo::plain(9));
        assert!(matches!(server.receive(&credited(xmtreq(1, 2), 2)), Ingress::Partial));
        let last = server.receive(&credited(xmtcont(1, 1, 5), 6));
        assert!(matches!(last, Ingress::Complete(Complete::Call)));
        server.completed();
        let to = ReplyTo { credits: 2, ..ReplyTo::plain(1) };
        server.conn.refuse(&mut server.ledger, &to);
        assert_eq!(server.conn.inflow().granted(), 6);
    }

    #[test]
    fn a_continuation_whose_payload_is_impossible_ends_the_group() {
        for pslen in [4, 12, u32::MAX - 3] {
            let (_, mut server) = both();
            assert!(matches!(server.receive(&xmtreq(1, 2)), Ingress::Partial));
            let cont = XmtCont { xnum: 1, itype: 5, pslen };
            let body = Body::Optional(Optional::XmtCont(cont));
            let ingress = server.receive(&wire(1, 2, 8, body, &[1; 8]));
            if pslen == 4 {
                // Less than was received is fine: what follows may be an item.
                assert!(matches!(ingress, Ingress::Complete(Complete::Call)));
                continue;
            }
            let range = OutOfRange { value: pslen, min: 0, max: 8 };
            assert_eq!(rept(ingress).info, ReptInfo::BadPl(range));
            assert_eq!(server.conn.inflow().outstanding(), 0);
        }
    }

    #[test]
    fn the_payload_of_a_first_transmission_is_8_to_all_its_bytes() {
        for (pslen, fine) in [(4, false), (8, true), (10, false), (40, true), (44, false)] {
            let (_, mut server) = both();
            let req = XmtReq { dp: Array::EMPTY, rsd: Array::EMPTY, count: 1, rsbuf: 1, pslen };
            let body = Body::Optional(Optional::XmtReq(req));
            let ingress = server.receive(&wire(1, 2, 8, body, &rpc(1, false, 40)));
            match fine {
                true => assert!(matches!(ingress, Ingress::Call(_)), "{pslen}"),
                false => {
                    let range = OutOfRange { value: pslen, min: 8, max: 40 };
                    assert_eq!(rept(ingress).info, ReptInfo::BadPl(range), "{pslen}");
                }
            }
        }
    }

    #[test]
    fn a_group_above_the_limit_is_refused_and_its_rest_dropped() {
        let small = Settings { request_rx_limit: 2, ..settings() };
        let (_, mut server) = connected(settings(), small);
        let report = rept(server.receive(&xmtreq(1, 3)));
        assert_eq!(report.info, ReptInfo::BadSeq(Mismatch { expect: 2, current: 3 }));
        for number in [1, 2] {
            let rest = server.receive(&xmtcont(1, number, 5));
            assert!(matches!(rest, Ingress::Ignored(Ignored::AbortedRest)));
        }
        let report = rept(server.receive(&xmtreq(1, 0)));
        assert_eq!(report.info, ReptInfo::BadSeq(Mismatch { expect: 1, current: 0 }));
        assert_eq!(server.conn.inflow().outstanding(), 0);
        assert!(matches!(server.receive(&xmtreq(1, 2)), Ingress::Partial), "the same xid again");
        let last = server.receive(&xmtcont(1, 1, 5));
        assert!(matches!(last, Ingress::Complete(Complete::Call)));
    }

    #[test]
    fn a_reply_may_have_as_many_transmissions_as_it_was_allowed() {
        let (mut client, _) = both();
        let id = long_call(&mut client, 2);
        let report = rept(client.receive(&xmtresp(id.xid(), 3, &[])));
        assert_eq!(report.info, ReptInfo::BadSeq(Mismatch { expect: 2, current: 3 }));
        assert_eq!(report.bad.dir, MsgType::Reply);
    }

    #[test]
    fn an_incomplete_group_is_reported_with_the_missing_number() {
        use MsgType::{Call, Reply};
        for came in 1..4 {
            // A call: its credits are free, and its rest is dropped when it comes after all.
            let (mut client, mut server) = both();
            assert_eq!(server.conn.expire_group(&mut server.ledger), None);
            server.receive(&xmtreq(1, 4));
            for number in 1..came {
                assert!(matches!(server.receive(&xmtcont(1, number, 5)), Ingress::Partial));
            }
            let Some(ended) = server.conn.expire_group(&mut server.ledger) else { panic!("open") };
            assert_eq!((ended.again, ended.failed), (false, None));
            assert_eq!(server.conn.group().len() as u32, came, "to be released");
            assert!(server.conn.parked().is_empty() && server.conn.open_group().is_none());
            assert_eq!(server.conn.inflow().outstanding(), 0);
            let info = ReptInfo::BadSeq(Mismatch { expect: came, current: came - 1 });
            let bad = MsgId { xid: 1, dir: Call, seq: came - 1 };
            let lead = Some(MsgId { xid: 1, dir: Call, seq: 0 });
            let report = rept(Ingress::Reject(ended.report));
            assert_eq!(report, ReptErr { bad, lead, info });
            let late = server.receive(&xmtcont(1, came, 5));
            assert!(matches!(late, Ingress::Ignored(Ignored::AbortedRest)), "{late:?}");
            assert_eq!(server.conn.expire_group(&mut server.ledger), None, "once");
            // A reply: its call has failed.
            let id = long_call(&mut client, 4);
            client.receive(&xmtresp(id.xid(), 4, &[]));
            for number in 1..came {
                let part = client.receive(&xmtcont(id.xid(), number, 6));
                assert!(matches!(part, Ingress::Partial));
            }
            let Some(ended) = client.conn.expire_group(&mut client.ledger) else { panic!("open") };
            let why = Violation::Missing { expect: came, current: came - 1 };
            assert_eq!(ended.failed, Some((id, why)));
            let report = rept(Ingress::Reject(ended.report));
            assert_eq!(report.bad, MsgId { xid: id.xid(), dir: Reply, seq: came - 1 });
            assert_eq!(report.info, info);
            client.conn.finish_call(&mut client.ledger, id).expect("it is to be finished");
            assert_eq!(client.ledger.replies.reserved(), 0);
        }
    }

    #[test]
    fn a_reply_that_breaks_a_rule_fails_its_call_at_once() {
        let no_item = [MsgItem { disp: 0, length: 0, loc: Loc::NoItem }];
        // Too many transmissions, none, one out of order, and an item that nothing asked for.
        let bads = |xid| {
            [
                vec![xmtresp(xid, 3, &[])],
                vec![xmtresp(xid, 0, &[])],
                vec![xmtresp(xid, 2, &[]), xmtcont(xid, 2, 6)],
                vec![xmtresp(xid, 1, &no_item)],
            ]
        };
        for turn in 0..4 {
            let (mut client, _) = both();
            let id = long_call(&mut client, 2);
            let bad = &bads(id.xid())[turn];
            let (last, first) = bad.split_last().expect("one");
            for part in first {
                assert!(matches!(client.receive(part), Ingress::Partial));
            }
            let of = match client.receive(last) {
                Ingress::BadReply { id, .. } => id,
                Ingress::Aborted(Aborted { failed: Some((id, _)), again: false, .. }) => id,
                other => panic!("{turn}: {other:?}"),
            };
            assert_eq!(of, id);
            // It was executed: what is said of it now makes it neither good nor to be repeated.
            for late in [msg(id.xid(), true), xmtresp(id.xid(), 1, &[])] {
                let late = client.receive(&late);
                assert!(matches!(late, Ingress::Ignored(Ignored::UnknownReply)), "{late:?}");
            }
            let error = wire(id.xid(), 2, 8, Body::Error(RdmaError::InvalOption), &[]);
            let late = client.receive(&error);
            assert!(matches!(late, Ingress::Ignored(Ignored::UnmatchedError)), "{late:?}");
            client.conn.finish_call(&mut client.ledger, id).expect("it is to be finished");
            assert_eq!(client.ledger.replies.reserved(), 0);
        }
    }

    #[test]
    fn a_transmit_response_answers_a_transmit_request_only() {
        let (mut client, mut server) = both();
        for count in [1, 2] {
            let id = call(&mut client);
            let ingress = client.receive(&xmtresp(id.xid(), count, &[]));
            let Ingress::BadReply { id: of, report, .. } = ingress else { panic!("{ingress:?}") };
            assert_eq!((of, report.kind), (id, ReportKind::BadHeader));
            assert!(client.conn.open_group().is_none());
            client.conn.finish_call(&mut client.ledger, id).expect("it has failed");
            // At the other end it names nothing.
            let ingress = server.receive(&client.report(report));
            assert!(matches!(ingress, Ingress::Ignored(Ignored::UnmatchedError)), "{ingress:?}");
            if count == 2 {
                let rest = client.receive(&xmtcont(id.xid(), 1, 6));
                assert!(matches!(rest, Ingress::Ignored(Ignored::AbortedRest)), "{rest:?}");
            }
        }
    }

    #[test]
    fn the_reply_to_an_ended_call_is_ignored() {
        let (mut client, _) = both();
        let id = long_call(&mut client, 2);
        assert!(matches!(client.receive(&xmtresp(id.xid(), 2, &[])), Ingress::Partial));
        client.conn.finish_call(&mut client.ledger, id).expect("open");
        let last = client.receive(&xmtcont(id.xid(), 1, 6));
        assert!(matches!(last, Ingress::Complete(Complete::Unwanted)));
        assert_eq!(client.conn.group().len(), 2, "both buffers are to be released");
    }
}

mod failures {
    use super::*;

    #[test]
    fn an_error_fails_the_call_it_names() {
        let errors = [
            (RdmaError::BadHeader, Refusal::BadHeader),
            (RdmaError::InvalOption, Refusal::InvalOption),
            (RdmaError::Vers { low: 3, high: 4 }, Refusal::Version { low: 3, high: 4 }),
        ];
        for (error, refusal) in errors {
            let (mut client, _) = both();
            let id = call(&mut client);
            let ingress = client.receive(&wire(id.xid(), 2, 3, Body::Error(error), &[]));
            let Ingress::Failed(of, why) = ingress else { panic!("{ingress:?}") };
            assert_eq!((of, why), (id, refusal));
            client.conn.finish_call(&mut client.ledger, id).expect("still open");
            // It was not sent by an operation that could be unknown.
            assert!(client.conn.limits().rtr.contains(RtrSupport::XREQ));
        }
    }

    #[test]
    fn a_call_whose_form_is_refused_is_repeated_in_another() {
        let (mut client, _) = both();
        let id = long_call(&mut client, 2);
        let (credits, receives) = (client.conn.credits_available(), 2);
        let ingress =
            client.receive(&wire(id.xid(), 2, 8, Body::Error(RdmaError::InvalOption), &[]));
        let Ingress::Again(of, Refusal::InvalOption) = ingress else { panic!("{ingress:?}") };
        assert_eq!(of, id);
        // wire.md E33: what is not supported is not tried again.
        assert!(!client.conn.limits().rtr.contains(RtrSupport::XREQ));
        assert_eq!(client.ledger.replies.reserved(), receives);
        client.conn.finish_call(&mut client.ledger, id).expect("open");
        let again = client.conn.open_call(&mut client.ledger, 78).expect("ready");
        assert_eq!(client.ledger.replies.reserved(), 0);
        assert_eq!(client.conn.credits_available(), credits + 1);
        // wire.md W15: what is still said of the first attempt does not meet the second.
        assert_ne!(again, id);
        let late = client.receive(&wire(id.xid(), 2, 8, Body::Error(RdmaError::InvalOption), &[]));
        assert!(matches!(late, Ingress::Ignored(Ignored::UnmatchedError)), "{late:?}");
        let long = CallDemand::inline(40, 2 * 12_000);
        let why = client.conn.route_call(&long).expect_err("no base reply is as long");
        assert!(matches!(why, SendError::NeedsExplicitRdma { .. }), "{why:?}");
        let short = CallDemand::inline(40, 40);
        let plan = client.conn.begin_sends(&mut client.ledger, again, &short).expect("base");
        assert!(matches!(plan, Plan::Inline(_)));
        // In the base form there is nothing else to try.
        let last =
            client.receive(&wire(again.xid(), 2, 8, Body::Error(RdmaError::InvalOption), &[]));
        assert!(matches!(last, Ingress::Failed(of, Refusal::InvalOption) if of == again));
        assert_eq!(
            client.conn.finish_call(&mut client.ledger, again),
            Some(Finished { token: 78, timer: NO_MARK })
        );
    }

    #[test]
    fn a_call_whose_reply_has_begun_counts_as_executed_and_is_not_repeated() {
        let refuse = |side: &mut Side, id: CallId| {
            side.receive(&wire(id.xid(), 2, 8, Body::Error(RdmaError::InvalOption), &[]))
        };
        let (mut client, _) = both();
        let id = long_call(&mut client, 2);
        assert!(matches!(client.receive(&xmtresp(id.xid(), 2, &[])), Ingress::Partial));
        // It ends the reply, and with it the call, which is named by nothing then.
        let ingress = refuse(&mut client, id);
        let Ingress::Aborted(Aborted { again: true, failed: Some((of, _)), .. }) = ingress else {
            panic!("{ingress:?}")
        };
        assert_eq!(of, id);
        let late = refuse(&mut client, id);
        assert!(matches!(late, Ingress::Ignored(Ignored::UnmatchedError)), "{late:?}");
    }

    #[test]
    fn a_group_refused_for_its_size_is_repeated_in_one_transmission() {
        let (mut client, mut server) = both();
        let id = client.conn.open_call(&mut client.ledger, 78).expect("ready");
        let demand = CallDemand::inline(20_000, 40);
        let plan = client.conn.begin_sends(&mut client.ledger, id, &demand).expect("two");
        assert_eq!(plan.count(), 2);
        let Ingress::Reject(report) = server.receive(&xmtreq(id.xid(), 65)) else { panic!() };
        let ingress = client.receive(&server.report(report));
        assert!(matches!(ingress, Ingress::Again(of, Refusal::Reported(_)) if of == id));
        let rtr = client.conn.limits().rtr;
        assert_eq!(rtr, RtrSupport::XREQ | RtrSupport::XRESP);
    }

    #[test]
    fn a_reply_that_is_refused_is_reported_and_the_report_is_not_answered() {
        let (mut client, mut server) = both();
        let id = long_call(&mut client, 2);
        let item = [MsgItem { disp: 0, length: 0, loc: Loc::NoItem }];
        let ingress = client.receive(&xmtresp(id.xid(), 1, &item));
        let Ingress::BadReply { id: of, report, .. } = ingress else { panic!("{ingress:?}") };
        assert_eq!(of, id);
        let ingress = server.receive(&client.report(report));
        let Ingress::ReplyRefused { xid, refusal } = ingress else { panic!("{ingress:?}") };
        let range = OutOfRange { value: 1, min: 0, max: 0 };
        assert_eq!((xid, refusal), (id.xid(), Refusal::Reported(ReptInfo::BadTbsn(range))));
    }

    #[test]
    fn a_report_about_a_call_fails_it_by_its_lead() {
        let (mut client, mut server) = both();
        let id = call(&mut client);
        assert!(matches!(server.receive(&xmtreq(id.xid(), 3)), Ingress::Partial));
        let ingress = server.receive(&msg(0x77, false));
        let Ingress::Aborted(Aborted { report, .. }) = ingress else { panic!("{ingress:?}") };
        let ingress = client.receive(&server.report(report));
        let Ingress::Failed(of, Refusal::Reported(info)) = ingress else { panic!("{ingress:?}") };
        assert_eq!(of, id);
        assert_eq!(info, ReptInfo::BadHmt(Mismatch { expect: 5, current: 0 }));
    }

    #[test]
    fn a_call_found_bad_is_rejected_and_its_credits_are_free() {
        let (mut client, mut server) = both();
        let id = call(&mut client);
        let segments = [99];
        let loc = Loc::Tbsn { offset: 0, segments: Tbsns::from_slice(&segments) };
        let dp = [MsgItem { disp: 8, length: 4, loc }];
        let dp = Array::from_slice(&dp);
        let req = XmtReq { dp, rsd: Array::EMPTY, count: 1, rsbuf: 1, pslen: 40 };
        let body = Body::Optional(Optional::XmtReq(req));
        let bytes = wire(id.xid(), 2, 8, body, &rpc(id.xid(), false, 40));
        let Ingress::Call(message) = server.receive(&bytes) else { panic!("a call") };
        assert!(!message.is_plain());
        let parts = [message.part];
        let violation = server.conn.resolve_call(&message, &parts).expect_err("no segment 99");
        let to = message.reply_to();
        let report = server.conn.reject_call(&mut server.ledger, &to, violation);
        assert_eq!(server.conn.inflow().outstanding(), 0);
        let ingress = client.receive(&server.report(report));
        let range = OutOfRange { value: 99, min: 0, max: 1 };
        let refusal = Refusal::Reported(ReptInfo::BadTbsn(range));
        assert!(matches!(ingress, Ingress::Failed(of, why) if of == id && why == refusal));
    }

    #[test]
    fn a_reply_must_answer_every_direction_and_no_more() {
        let (mut client, mut server) = both();
        let wanting = |client: &mut Side| {
            let wants = [Want::sends(0, 40, 0, 4096)];
            let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
            let demand = CallDemand { wants: &wants, gather_max: 4, ..CallDemand::inline(40, 40) };
            client.conn.begin_sends(&mut client.ledger, id, &demand).expect("fits");
            id
        };
        let id = wanting(&mut client);
        let range = |value, due| OutOfRange { value, min: due, max: due };
        let report = rept(client.receive(&xmtresp(id.xid(), 1, &[])));
        assert_eq!(report.info, ReptInfo::BadTbsn(range(0, 1)));
        client.conn.finish_call(&mut client.ledger, id).expect("it has failed");
        let item = |loc| MsgItem { disp: 8, length: 4, loc };
        let two = [item(Loc::TooShort), item(Loc::TooShort)];
        let id = wanting(&mut client);
        let report = rept(client.receive(&xmtresp(id.xid(), 1, &two)));
        assert_eq!(report.info, ReptInfo::BadTbsn(range(2, 1)));
        client.conn.finish_call(&mut client.ledger, id).expect("it has failed");
        // wire.md E30: a result that Table 2 does not allow.
        let id = wanting(&mut client);
        let wrong = [item(Loc::Exrw(Array::EMPTY))];
        let Ingress::Reply(of, message) = client.receive(&xmtresp(id.xid(), 1, &wrong)) else {
            panic!("a reply")
        };
        let parts = [message.part];
        let resolved =
            client.conn.resolve_reply(&client.ledger, of, &message, &parts, &Offered::NONE);
        let violation = resolved.expect_err("Table 2");
        let report = client.conn.reject_reply(of, message.via, violation);
        let bytes = client.report(report.expect("a reply of the extension is reported"));
        // The responder learns which reply it was.
        let ingress = server.receive(&bytes);
        let refusal = Refusal::Reported(ReptInfo::BadTbsn(OutOfRange { value: 1, min: 2, max: 2 }));
        assert!(matches!(
            ingress,
            Ingress::ReplyRefused { xid, refusal: why } if xid == id.xid() && why == refusal
        ));
        client.conn.finish_call(&mut client.ledger, of).expect("it has failed");
        // A plain answer means that nothing was placed.
        let id = wanting(&mut client);
        let Ingress::Reply(of, message) = client.receive(&msg(id.xid(), true)) else {
            panic!("a reply")
        };
        assert!(message.is_plain());
        let parts = [message.part];
        assert!(
            client.conn.resolve_reply(&client.ledger, of, &message, &parts, &Offered::NONE).is_ok()
        );
    }
}

mod backward {
    use super::*;

    #[test]
    fn calls_go_both_ways_with_separate_credits() {
        let (mut client, mut server) = both();
        let forward = call(&mut client);
        let id = server.conn.open_call(&mut server.ledger, 5).expect("ready");
        assert_eq!(id.xid() >> 31, 1);
        let demand = CallDemand::inline(40, 40);
        let mut plan =
            server.conn.begin_sends(&mut server.ledger, id, &demand).expect("one credit");
        let wires = server.transmit(&mut plan, &rpc(id.xid(), false, 40), &[]);
        let second = server.conn.open_call(&mut server.ledger, 6).expect("ready");
        assert_eq!(
            server.conn.begin_sends(&mut server.ledger, second, &demand).err(),
            Some(SendError::NotEnoughCredits { need: 1, have: 0 }),
            "one credit until the first grant"
        );
        let Ingress::Call(message) = client.receive(&wires[0]) else { panic!("a call") };
        let to = message.reply_to();
        let reply = ReplyDemand::inline(40);
        let mut plan = client.conn.begin_reply(&mut client.ledger, &to, &reply).expect("fits");
        let wires = client.transmit(&mut plan, &rpc(id.xid(), true, 40), &[]);
        assert!(matches!(server.receive(&wires[0]), Ingress::Reply(of, _) if of == id));
        assert_eq!(server.conn.credits_limit(), 8, "the client's grant");
        assert_eq!(client.conn.credits_available(), 7, "the forward call still holds its own");
        assert!(matches!(client.receive(&msg(forward.xid(), true)), Ingress::Reply(..)));
    }

    #[test]
    fn inline_backward_calls_are_single_and_without_placement() {
        let (mut client, mut server) = both();
        let id = server.conn.open_call(&mut server.ledger, 5).expect("ready");
        let items = [BulkItem { position: 40, len: 64, origin: 0, pieces: 1 }];
        let demand = CallDemand { items: &items, gather_max: 8, ..CallDemand::inline(40, 40) };
        let plan = server.conn.begin_sends(&mut server.ledger, id, &demand).expect("inline");
        assert!(!plan.is_placed(0));
        server.conn.finish_call(&mut server.ledger, id).expect("open");
        // And what breaks the rule is refused.
        assert!(is_bad_header(&client.receive(&xmtreq(1 << 31 | 9, 2))));
    }

    #[test]
    fn a_peer_that_accepts_no_backward_calls_receives_none() {
        let none = Settings { backward: BackwardSupport::None, ..settings() };
        let (mut client, mut server) = connected(none, settings());
        assert_eq!(server.conn.limits().backward, BackwardSupport::None);
        let opened = server.conn.open_call(&mut server.ledger, 5);
        assert_eq!(opened, Err(SendError::NoBackward));
        let xid = 1 << 31 | 9;
        let target = RdmaSegment { handle: 1, length: 40, offset: 0 };
        let reads = [ReadSegment { position: 0, target }];
        let lists = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
        let fetched = wire(xid, 2, 8, Body::NoMsg(lists), &[]);
        for call in [msg(xid, false), xmtreq(xid, 1), xmtreq(xid, 2), fetched] {
            assert!(is_bad_header(&client.receive(&call)));
            assert_eq!(client.conn.inflow().outstanding(), 0, "nothing was begun");
        }
        // The client's own calls go on.
        let id = client.conn.open_call(&mut client.ledger, 6).expect("ready");
        let demand = CallDemand::inline(40, 40);
        client.conn.begin_sends(&mut client.ledger, id, &demand).expect("a credit");
    }

    #[test]
    fn general_backward_calls_are_as_forward_ones() {
        let general = Settings { backward: BackwardSupport::General, ..settings() };
        let (mut client, mut server) = connected(general, settings());
        let id = server.conn.open_call(&mut server.ledger, 5).expect("ready");
        let items = [BulkItem { position: 40, len: 64, origin: 0, pieces: 1 }];
        let demand = CallDemand { items: &items, gather_max: 8, ..CallDemand::inline(40, 40) };
        let mut plan = server.conn.begin_sends(&mut server.ledger, id, &demand).expect("placed");
        assert!(plan.is_placed(0));
        let wires = server.transmit(&mut plan, &rpc(id.xid(), false, 40), &[vec![7; 64]]);
        assert!(
            matches!(client.receive(&wires[0]), Ingress::Call(message) if message.dp.len() == 1)
        );
    }
}

mod misuse {
    use super::*;

    #[test]
    fn contradictory_settings_open_no_connection() {
        let good = settings();
        let bad = [
            Settings { structure: structure(1023, 1, 4096), ..good },
            Settings { credits_requested: 0, ..good },
            Settings { credits_granted_max: 0, ..good },
            Settings { call_count_max: 0, ..good },
            Settings { request_rx_limit: 65, ..good },
        ];
        let mut ledger = ShardLedger::new(4, 1, 4, 4);
        for settings in bad {
            let opened = Connection::open(
                Role::Client,
                0,
                &settings,
                &Opening::of(Role::Client),
                &mut ledger,
            );
            assert!(matches!(opened, Err(OpenError::Misuse(_))));
        }
        assert_eq!(ledger.grants.granted(), 0);
        Connection::open(Role::Client, 0, &good, &Opening::of(Role::Client), &mut ledger)
            .expect("good");
        let second =
            Connection::open(Role::Client, 1, &good, &Opening::of(Role::Client), &mut ledger);
        assert!(matches!(second, Err(OpenError::NoReceives)));
    }

    #[test]
    fn impossible_items_are_refused() {
        let (mut client, _) = both();
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let item = |position, len| BulkItem { position, len, origin: 0, pieces: 1 };
        let lists = [
            vec![item(4, 4)],
            vec![item(10, 4)],
            vec![item(44, 4)],
            vec![item(8, 5), item(12, 4)],
            vec![item(8, u32::MAX)],
            vec![item(8, 0); 65],
        ];
        for items in lists {
            let demand = CallDemand { items: &items, gather_max: 8, ..CallDemand::inline(40, 40) };
            let error = client.conn.begin_sends(&mut client.ledger, id, &demand).expect_err("bad");
            assert!(matches!(error, SendError::Misuse(_)), "{items:?}: {error}");
        }
        let wants = [Want::sends(0, 41, 0, 1)];
        let demand = CallDemand { wants: &wants, ..CallDemand::inline(40, 40) };
        let error = client.conn.begin_sends(&mut client.ledger, id, &demand).expect_err("bad");
        assert!(matches!(error, SendError::Misuse(_)));
    }
}
