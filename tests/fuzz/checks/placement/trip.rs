//! A round trip: from a demand to bytes, and from the bytes to the same message.

use rpcrdma_proto::{CallDemand, Explicit, Ingress, Offered, Refusal, ReplyDemand, Settings};
use rpcrdma_xdr::{RecvStructure, RtrSupport, SegmentGroup};

use crate::checks::choices::Choices;
use crate::checks::content::{Content, Shape, Whole, any_want, is_too_long, offer};
use crate::checks::memory::{Laid, Memory};
use crate::checks::side::Side;

/// A call with arbitrary items and requested results, and its reply.
pub(super) fn check(choices: &mut Choices<'_>) {
    let (client, server) = (any_settings(choices), any_settings(choices));
    let (mut client, mut server) = match choices.rarely(3) {
        true => Side::old_pair(client, server),
        false => Side::pair(client, server),
    };
    let near = |choices: &mut Choices<'_>, side: &Side| {
        let structure = &side.settings.structure;
        choices.pick(&[structure.total_len(), structure.leading_len(), 4096])
    };
    let bound = near(choices, &server);
    let call = Shape::any(choices, bound, LEN_MAX);
    let bound = near(choices, &client);
    let reply = Shape::any(choices, bound, LEN_MAX);
    let wanted = choices.below(6);
    let gather_max = 2 + choices.below(20);
    let explicit = match choices.flag() {
        true => Explicit::unlimited(choices.pick(&[1 << 16, 9_000, 0])),
        false => Explicit::NONE,
    };

    let id = client.conn.open_call(&mut client.ledger, 7).expect("ready");
    let call = Content::new(id.xid(), false, &call);
    let answer = Content::new(id.xid(), true, &reply);
    let mut wants = Vec::new();
    for index in 0..wanted as usize {
        wants.push(any_want(choices, call.stream_len(), reply.lens().nth(index).unwrap_or(0)));
    }
    // The requested results of one operation share its range, and all items of the reply are its
    // own.
    let demand = CallDemand {
        payload: call.payload.len() as u32,
        items: &call.items,
        wants: &wants,
        reply_payload_max: answer.stream_len(),
        gather_max,
        copy_max: 0,
        explicit,
    };
    let mut memory = Memory::default();
    let laid;
    let planned = match client.conn.route_call(&demand) {
        Ok(route) => {
            laid = Laid::new(&mut memory, &route, &call, &wants);
            client.conn.begin_call(&mut client.ledger, id, &demand, &route, &laid.exposed())
        }
        Err(error) => {
            laid = Laid::default();
            Err(error)
        }
    };
    let mut plan = match planned {
        Ok(plan) => plan,
        Err(error) => {
            assert!(is_too_long(error), "{error}");
            client.check_credits(0);
            return client.close();
        }
    };
    let wire = client.transmit(&mut plan, &call.payload, &call.bulk);
    assert!(wire.len() as u32 <= server.settings.request_rx_limit);
    let arrived = deliver(&mut server, &wire, &Offered::NONE, &memory, &call);

    let demand = ReplyDemand {
        payload: answer.payload.len() as u32,
        items: &answer.items,
        offer: offer(&arrived.lead),
        gather_max,
        copy_max: 0,
    };
    let to = arrived.to;
    match server.conn.begin_reply(&mut server.ledger, &to, &demand) {
        Ok(mut plan) => {
            assert!(plan.count() <= to.rsbuf.max(1));
            server.write(&mut plan, &answer.payload, &answer.bulk, &mut memory);
            let wire = server.transmit(&mut plan, &answer.payload, &answer.bulk);
            let arrived = deliver(&mut client, &wire, &laid.offered(), &memory, &answer);
            assert_eq!(arrived.answers, Some(id));
            let finished = client.conn.finish_call(&mut client.ledger, id);
            assert_eq!(finished.map(|finished| finished.token), Some(7));
        }
        Err(error) => {
            assert!(is_too_long(error), "{error}");
            server.check_credits(to.credits);
            let report = server.conn.refuse(&mut server.ledger, &to);
            let report = server.report(report);
            let buffer = client.keep(&report);
            let failed = client.hand_in(buffer, &report);
            assert!(matches!(failed, Ingress::Failed(of, Refusal::BadHeader) if of == id));
            client.conn.finish_call(&mut client.ledger, id).expect("it was open");
        }
    }
    client.check_credits(0);
    server.check_credits(0);
    client.close();
    server.close();
}

/// The longest items and payloads.
const LEN_MAX: u32 = 20_000;

/// Delivers a whole message, and compares it with the sent one.
fn deliver(
    side: &mut Side,
    wire: &[Vec<u8>],
    offered: &Offered<'_>,
    memory: &Memory,
    sent: &Content,
) -> Whole {
    let (last, first) = wire.split_last().expect("a message has a transmission");
    for wire in first {
        let buffer = side.keep(wire);
        assert!(matches!(side.hand_in(buffer, wire), Ingress::Partial));
    }
    let buffer = side.keep(last);
    let ingress = side.hand_in(buffer, last);
    let whole = Whole::of(side, &ingress).expect("the message is whole");
    let placed = whole.resolve(side, &ingress, offered).expect("what was planned is valid");
    assert!(whole.stream(side, &placed, offered, memory, sent) == sent.stream(), "as it was sent");
    whole
}

fn any_settings(choices: &mut Choices<'_>) -> Settings {
    let lead = 1024 + choices.below(4000);
    let lead = SegmentGroup { count: 1, length: lead, align: 64, placement: choices.rarely(16) };
    let mut groups = vec![lead];
    for _ in 0..choices.below(5) {
        let length = match choices.below(3) {
            0 => 1 + choices.below(16),
            1 => 4096,
            _ => 1 + choices.below(9000),
        };
        let (count, placement) = (1 + choices.below(4), !choices.rarely(4));
        groups.push(SegmentGroup { count, length, align: 4, placement });
    }
    let structure = RecvStructure::new(&groups).expect("within the limits");
    let (count, limit) = (1 + choices.below(64), 1 + choices.below(64));
    let rtr = match choices.below(8) {
        0 => RtrSupport::XREQ | RtrSupport::XRESP,
        1 => RtrSupport::empty(),
        _ => RtrSupport::XREQ | RtrSupport::XRESP | RtrSupport::XCONT,
    };
    Settings {
        credits_requested: 64,
        credits_granted_max: 64,
        call_count_max: count,
        request_rx_limit: limit,
        response_sx_limit: count,
        response_rx_max: limit,
        rtr,
        ..Settings::new(structure)
    }
}
