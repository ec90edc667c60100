//! The rules of chunks one by one: what a call chooses, what a call and a reply must not have, and
//! what a reply makes of what was offered.

use crate::pair::{Side, connected, connected_in, plain_reply, rpc, structure};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_proto::*;
use rpcrdma_xdr::{
    Array, Body, ChunkLists, Header, List, MsgType, RdmaSegment, ReadSegment, RtrSupport,
    WriteChunk, Writer,
};

fn settings() -> Settings {
    Settings { rtr: RtrSupport::empty(), ..Settings::new(structure(4096, 0, 0)) }
}

fn both() -> (Side, Side) {
    connected(settings(), settings())
}

fn segment(handle: u32, length: u32) -> RdmaSegment {
    RdmaSegment { handle, length, offset: u64::from(handle) << 32 }
}

fn read(position: u32, length: u32) -> ReadSegment {
    ReadSegment { position, target: segment(0x10 + position, length) }
}

fn chunk(segments: &[RdmaSegment]) -> WriteChunk<'_> {
    WriteChunk(Array::from_slice(segments))
}

fn encoded(xid: u32, vers: u32, body: Body<'_>, payload: &[u8]) -> Vec<u8> {
    let header = Header { xid, vers, credit: 8, body };
    let mut bytes = vec![0; header.encoded_len()];
    header.encode(&mut Writer::new(&mut bytes)).expect("as long as it says");
    bytes.extend_from_slice(payload);
    bytes
}

/// A call with these lists: RDMA_MSG with a payload of 40 bytes, or RDMA_NOMSG without.
fn call(xid: u32, is_msg: bool, lists: ChunkLists<'_>) -> Vec<u8> {
    match is_msg {
        true => encoded(xid, 2, Body::Msg(lists), &rpc(xid, false, 40)),
        false => encoded(xid, 2, Body::NoMsg(lists), &[]),
    }
}

mod choice {
    //! The route of a call, against an oracle that knows sizes and nothing else.

    use super::*;

    const SIZE: u32 = 4096;
    const RDMA_BUFFER: u32 = 16_384;

    /// A call as the cases have it; lengths are multiples of four.
    #[derive(Debug, Clone)]
    struct Case {
        payload: u32,
        items: Vec<u32>,
        wants: Vec<(WantKind, u32, u32)>,
        reply: u32,
        interop: Interop,
    }

    /// What is to be chosen: reads, chunk for each want, body, reply.
    type Choice = (Vec<usize>, Vec<usize>, u32, u32);

    /// Every combination, written as a search over all subsets and not as the code has it.
    fn oracle(case: &Case) -> Option<Choice> {
        let stream_without = |apart: &[usize], lens: &[u32], payload: u32| {
            let left = (0..lens.len()).filter(|index| !apart.contains(index));
            payload + left.map(|index| lens[index]).sum::<u32>()
        };
        let want_lens: Vec<u32> = case.wants.iter().map(|want| want.1).collect();
        let may_write: Vec<usize> = (0..case.wants.len())
            .filter(|index| *index < case.interop.write_chunks_max as usize)
            .filter(|index| want_lens[*index] > 0 && want_lens[*index] >= case.wants[*index].2)
            .collect();
        let insisted: Vec<usize> =
            may_write.iter().copied().filter(|at| case.wants[*at].0 == WantKind::Exrw).collect();
        let write_header = |writes: &[usize]| -> u32 {
            let entries = writes.iter().max().map_or(0, |last| last + 1) as u32;
            8 * entries + 16 * writes.len() as u32
        };
        let mut replies = Vec::new();
        for writes in [&insisted, &may_write] {
            let whole = 28 + write_header(writes) + stream_without(writes, &want_lens, case.reply);
            if whole <= SIZE {
                replies.push((writes.clone(), 0));
            }
        }
        let beside = if case.interop.write_with_reply { may_write.clone() } else { Vec::new() };
        for writes in [beside, Vec::new()] {
            let reply = stream_without(&writes, &want_lens, case.reply);
            let segments = reply.div_ceil(RDMA_BUFFER);
            if segments <= case.interop.segments_max {
                replies.push((writes, reply));
            }
        }
        // The subsets of items, in the order of preference: fewest, then longest, then first.
        let mut subsets: Vec<Vec<usize>> = (0u32..1 << case.items.len())
            .map(|bits| (0..case.items.len()).filter(|at| bits >> at & 1 == 1).collect())
            .filter(|set: &Vec<usize>| set.iter().all(|at| case.items[*at] > 0))
            .filter(|set: &Vec<usize>| set.len() <= case.interop.read_chunks_max as usize)
            .collect();
        subsets.sort_by_key(|set| {
            let lens: Vec<_> = set.iter().map(|at| std::cmp::Reverse(case.items[*at])).collect();
            (set.len(), std::cmp::Reverse(lens.iter().map(|len| len.0).sum::<u32>()), set.clone())
        });
        for (writes, reply) in replies {
            let mut header = 28 + write_header(&writes);
            if reply > 0 {
                header += 4 + 16 * reply.div_ceil(RDMA_BUFFER);
            }
            for reads in &subsets {
                let header = header + 24 * reads.len() as u32;
                let stream = stream_without(reads, &case.items, case.payload);
                if header + stream <= SIZE {
                    return Some((reads.clone(), writes, 0, reply));
                }
            }
            // Of the largest subsets the first is the one with the longest items.
            let largest = subsets.last().map_or(0, Vec::len);
            let longest = subsets.iter().find(|set| set.len() == largest).cloned();
            let mut fetched = Vec::new();
            if case.interop.long_call_with_chunks {
                fetched.extend(longest.filter(|set| !set.is_empty()));
            }
            fetched.push(Vec::new());
            for reads in fetched {
                let body = stream_without(&reads, &case.items, case.payload);
                let segments = body.div_ceil(RDMA_BUFFER);
                if segments <= case.interop.segments_max
                    && header + 24 * (reads.len() as u32 + segments) <= SIZE
                {
                    return Some((reads, writes, body, reply));
                }
            }
        }
        None
    }

    fn chosen(case: &Case) -> Option<Choice> {
        let settings = Settings { interop: case.interop, ..settings() };
        let (client, _) = connected(settings, super::settings());
        let mut position = 8;
        let items: Vec<_> = case
            .items
            .iter()
            .map(|len| {
                let item = BulkItem { position, len: *len, origin: 0, pieces: 1 };
                position += len;
                item
            })
            .collect();
        let end = case.payload + case.items.iter().sum::<u32>();
        let wants: Vec<_> = case
            .wants
            .iter()
            .map(|(kind, max_len, min_len)| Want {
                kind: *kind,
                pieces: 1,
                ..Want::sends(0, end, *min_len, *max_len)
            })
            .collect();
        let demand = CallDemand {
            payload: case.payload,
            items: &items,
            wants: &wants,
            reply_payload_max: case.reply,
            gather_max: 64,
            copy_max: 0,
            explicit: Explicit::unlimited(RDMA_BUFFER),
        };
        match client.conn.route_call(&demand) {
            Ok(route) => {
                assert_eq!(route.form == CallForm::NoMsg, route.body > 0);
                let reads = route.items.iter().collect();
                Some((reads, route.wants.iter().collect(), route.body, route.reply))
            }
            Err(SendError::NoRoute { .. }) => None,
            Err(other) => panic!("{other}"),
        }
    }

    fn interops() -> Vec<Interop> {
        let mut all = Vec::new();
        for bits in 0..16 {
            all.push(Interop {
                read_chunks_max: 1 + (bits & 1),
                write_chunks_max: 1 + (bits >> 1 & 1),
                long_call_with_chunks: bits & 4 > 0,
                write_with_reply: bits & 8 > 0,
                segments_max: 2,
                ..Interop::default()
            });
        }
        all
    }

    #[test]
    fn every_combination_takes_the_route_of_the_oracle() {
        let lists: [&[u32]; 8] = [
            &[],
            &[0],
            &[400],
            &[20_000],
            &[20_000, 24_000],
            &[3000, 2000],
            &[400, 0, 20_000],
            &[4000, 4000, 4000],
        ];
        let (exrw, choice, tbsn) = (WantKind::Exrw, WantKind::Choice, WantKind::Tbsn);
        let wants: [&[(WantKind, u32, u32)]; 9] = [
            &[],
            &[(exrw, 400, 0)],
            &[(choice, 400, 0)],
            &[(tbsn, 20_000, 0)],
            &[(exrw, 400, 0), (exrw, 20_000, 0)],
            &[(choice, 400, 0), (exrw, 400, 0)],
            &[(choice, 20_000, 0), (choice, 20_000, 20_001)],
            &[(exrw, 0, 0), (choice, 8000, u32::MAX)],
            &[(choice, 2000, 0), (choice, 2000, 0), (exrw, 2000, 0)],
        ];
        let mut ways = std::collections::BTreeMap::new();
        for interop in interops() {
            for payload in [8, 4040, 4044, 4068, 4072, 30_000, 40_000] {
                for items in lists {
                    for wants in wants {
                        for reply in [8, 4044, 4048, 4068, 4072, 30_000, 40_000] {
                            let (items, wants) = (items.to_vec(), wants.to_vec());
                            let case = Case { payload, items, wants, reply, interop };
                            let choice = chosen(&case);
                            assert_eq!(choice, oracle(&case), "{case:?}");
                            let key = choice.map(|(reads, writes, body, reply)| {
                                (reads.len(), writes.len(), body > 0, reply > 0)
                            });
                            *ways.entry(key).or_insert(0) += 1;
                        }
                    }
                }
            }
        }
        // Nothing, and every sum of reads, writes, body and reply that the limits leave.
        assert!(ways.len() > 20, "{ways:?}");
    }

    #[test]
    fn without_explicit_rdma_nothing_is_exposed() {
        let (client, _) = both();
        let items = [BulkItem { position: 8, len: 20_000, origin: 0, pieces: 1 }];
        let demand = CallDemand { items: &items, gather_max: 8, ..CallDemand::inline(8, 8) };
        let error = client.conn.route_call(&demand).expect_err("too long");
        assert!(matches!(error, SendError::NeedsExplicitRdma { .. }), "{error}");
    }

    #[test]
    fn a_reply_fills_one_message_at_most_without_explicit_rdma() {
        let (client, _) = both();
        let room = client.conn.reply_room();
        // A result takes whole words.
        let wants = [Want::sends(8, 40, 0, 9)];
        for (wants, len) in [(&[][..], room), (&wants[..], room - 12)] {
            let routed = |payload| {
                let demand = CallDemand { wants, ..CallDemand::inline(40, payload) };
                client.conn.route_call(&demand).map(|route| route.form)
            };
            assert_eq!(routed(len), Ok(CallForm::Msg));
            let why = routed(len + 1).expect_err("too long");
            assert!(matches!(why, SendError::NeedsExplicitRdma { .. }), "{why}");
        }
    }

    #[test]
    fn only_the_last_item_is_read_where_the_peer_ignores_positions() {
        let interop = Interop { read_chunk_last: true, ..Interop::default() };
        let (client, _) = connected(Settings { interop, ..settings() }, settings());
        let item = BulkItem { position: 8, len: 20_000, origin: 0, pieces: 1 };
        let explicit = Explicit::unlimited(RDMA_BUFFER);
        for (payload, reads) in [(8, 1), (12, 0)] {
            let items = [item];
            let demand = CallDemand {
                items: &items,
                explicit,
                gather_max: 8,
                ..CallDemand::inline(payload, 8)
            };
            let route = client.conn.route_call(&demand).expect("a way");
            assert_eq!((route.items.len(), route.body == 0), (reads, reads == 1), "{payload}");
        }
    }

    #[test]
    fn a_group_for_which_no_credits_are_free_now_goes_by_chunks() {
        let two = Settings {
            credits_requested: 8,
            credits_granted_max: 8,
            ..Settings::new(structure(4096, 0, 0))
        };
        let (mut client, _) = connected(two, two);
        let demand = CallDemand {
            explicit: Explicit::unlimited(RDMA_BUFFER),
            ..CallDemand::inline(12_000, 40)
        };
        let form = |client: &Side| client.conn.route_call(&demand).expect("a way").form;
        assert_eq!(form(&client), CallForm::Xmt);
        let mut open = Vec::new();
        while client.conn.credits_available() > 2 {
            let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
            let plain = CallDemand::inline(40, 40);
            client.conn.begin_sends(&mut client.ledger, id, &plain).expect("a credit");
            open.push(id);
        }
        assert_eq!(form(&client), CallForm::NoMsg, "three credits needed, two free");
        client.conn.finish_call(&mut client.ledger, open[0]).expect("open");
        assert_eq!(form(&client), CallForm::Xmt);
    }

    #[test]
    fn a_reply_too_long_for_the_extension_gets_a_reply_chunk() {
        let two = Settings { response_sx_limit: 2, ..Settings::new(structure(4096, 0, 0)) };
        let (client, _) = connected(two, two);
        for (reply, form, chunk) in [(8000, CallForm::Xmt, 0), (9000, CallForm::Msg, 9000)] {
            let demand = CallDemand {
                explicit: Explicit::unlimited(RDMA_BUFFER),
                ..CallDemand::inline(40, reply)
            };
            let route = client.conn.route_call(&demand).expect("a way");
            assert_eq!((route.form, route.reply), (form, chunk));
        }
    }

    #[test]
    fn the_exposed_memory_must_match_the_route() {
        let (mut client, _) = both();
        let items = [BulkItem { position: 8, len: 20_001, origin: 0, pieces: 2 }];
        let demand = CallDemand {
            items: &items,
            explicit: Explicit::unlimited(RDMA_BUFFER),
            gather_max: 8,
            ..CallDemand::inline(8, 8)
        };
        let route = client.conn.route_call(&demand).expect("a way");
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let lists = |segments: &'static [RdmaSegment], ends: &'static [u16]| Exposed {
            items: SegmentLists { segments, ends },
            ..Exposed::NONE
        };
        const A: RdmaSegment = RdmaSegment { handle: 1, length: 20_000, offset: 0 };
        const B: RdmaSegment = RdmaSegment { handle: 2, length: 1, offset: 0 };
        let wrong = [
            Exposed::NONE,
            lists(&[A], &[1]),
            lists(&[A, B, B], &[3]),
            lists(&[A, B], &[1, 2]),
            Exposed { body: &[A], ..lists(&[A, B], &[2]) },
            Exposed { reply: &[A], ..lists(&[A, B], &[2]) },
        ];
        for exposed in wrong {
            let begun = client.conn.begin_call(&mut client.ledger, id, &demand, &route, &exposed);
            assert!(matches!(begun, Err(SendError::Misuse(_))), "{exposed:?}");
        }
        let right = lists(&[A, B], &[2]);
        let begun = client.conn.begin_call(&mut client.ledger, id, &demand, &route, &right);
        assert!(begun.is_ok());
    }

    // RFC 8166 3.4.6, 4.3.3
    #[test]
    fn the_memory_for_a_result_and_for_the_reply_is_as_long_as_they_may_be() {
        let interop = Interop { write_with_reply: true, ..Interop::default() };
        let (mut client, _) = connected(Settings { interop, ..settings() }, settings());
        let wants = [Want { kind: WantKind::Exrw, pieces: 1, ..Want::sends(0, 8, 0, 301) }];
        let explicit = Explicit::unlimited(RDMA_BUFFER);
        let demand =
            CallDemand { wants: &wants, explicit, gather_max: 8, ..CallDemand::inline(8, 5000) };
        let route = client.conn.route_call(&demand).expect("a way");
        assert_eq!((route.wants.len(), route.reply), (1, 5000));
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        for (result, reply, fits) in [(300, 5000, false), (301, 4999, false), (301, 5000, true)] {
            let (of_result, of_reply) = ([segment(1, result)], [segment(2, reply)]);
            let wants = SegmentLists { segments: &of_result, ends: &[1] };
            let exposed = Exposed { wants, reply: &of_reply, ..Exposed::NONE };
            let begun = client.conn.begin_call(&mut client.ledger, id, &demand, &route, &exposed);
            assert_eq!(begun.is_ok(), fits, "{result} {reply}");
        }
    }
}

mod calls {
    //! What a responder makes of the lists of a call.

    use super::*;

    /// The violation of a call with this Read list, if it is one.
    fn checked(is_msg: bool, reads: &[ReadSegment]) -> Option<Violation> {
        let (_, mut server) = both();
        let lists = ChunkLists { reads: List::from_slice(reads), ..ChunkLists::EMPTY };
        let Ingress::Call(message) = server.receive(&call(9, is_msg, lists)) else {
            panic!("a call")
        };
        let parts = [message.part];
        server.conn.resolve_call(&message, &parts).err()
    }

    #[test]
    fn positions_rise_within_the_message() {
        // 40 bytes of payload, so positions go up to 40.
        let good: [&[ReadSegment]; 9] = [
            &[read(8, 5)],
            &[read(40, 1)],
            &[read(8, 5), read(16, 4)],
            &[read(40, 5), read(48, 4)],
            &[read(8, 1), read(8, 4), read(16, 4)],
            &[read(8, 0), read(8, 0), read(8, 0)],
            &[read(16, 4), read(8, 4)],
            &[read(8, 4), read(16, 4), read(8, 4)],
            &[read(48, 4), read(40, 5)],
        ];
        for reads in good {
            assert_eq!(checked(true, reads), None, "{reads:?}");
        }
        let bad: [&[ReadSegment]; 7] = [
            &[read(4, 4)],
            &[read(44, 1)],
            &[read(40, 5), read(52, 4)],
            &[read(8, 5), read(12, 4)],
            &[read(16, 4), read(8, 12)],
            &[read(8, 4), read(16, 4), read(8, 5)],
            &[read(0, 40)],
        ];
        for reads in bad {
            let violation = checked(true, reads).expect("bad");
            assert!(matches!(violation, Violation::BadHeader(_)), "{reads:?}");
        }
    }

    #[test]
    fn a_long_call_is_at_position_zero() {
        assert_eq!(checked(false, &[read(0, 8)]), None);
        assert_eq!(checked(false, &[read(0, 4), read(0, 36), read(40, 4)]), None);
        assert_eq!(checked(false, &[read(8, 4), read(0, 40)]), None);
        assert_eq!(checked(false, &[read(0, 36), read(40, 4), read(0, 4)]), None);
        let bad: [&[ReadSegment]; 5] = [
            &[read(8, 40)],
            &[read(0, 7)],
            &[read(0, 0)],
            &[read(0, 40), read(44, 4)],
            &[read(44, 4), read(0, 40)],
        ];
        for reads in bad {
            assert!(checked(false, reads).is_some(), "{reads:?}");
        }
    }

    #[test]
    fn lengths_are_summed_without_overflow_and_bounded() {
        let max = settings().rpc_len_max;
        assert_eq!(checked(false, &[read(0, max)]), None);
        assert!(checked(false, &[read(0, max + 1)]).is_some());
        assert!(checked(false, &[read(0, max), read(8, 1)]).is_some(), "with its items");
        assert!(checked(true, &[read(8, max)]).is_some());
        assert!(checked(false, &[read(0, u32::MAX); 100]).is_some());
        assert!(checked(true, &[read(8, u32::MAX); 100]).is_some());
        let beyond = RdmaSegment { handle: 1, length: 2, offset: u64::MAX };
        assert!(checked(true, &[ReadSegment { position: 8, target: beyond }]).is_some());
    }

    #[test]
    fn memory_offered_for_the_reply_ends_before_the_last_address() {
        let (_, mut server) = both();
        let mut checked = |xid: u32, lists: ChunkLists<'_>| {
            let Ingress::Call(message) = server.receive(&call(xid, true, lists)) else {
                panic!("a call")
            };
            server.conn.resolve_call(&message, &[message.part]).err()
        };
        for (xid, length) in [(1, 1), (3, 2)] {
            let last = [segment(7, 4), RdmaSegment { handle: 1, length, offset: u64::MAX - 1 }];
            let writes = [chunk(&last[..1]), chunk(&last)];
            let written = ChunkLists { writes: List::from_slice(&writes), ..ChunkLists::EMPTY };
            assert_eq!(checked(xid, written).is_some(), length > 1, "a Write chunk, {length}");
            let replied = ChunkLists { reply: Some(chunk(&last)), ..ChunkLists::EMPTY };
            assert_eq!(checked(xid + 1, replied).is_some(), length > 1, "a Reply chunk, {length}");
        }
    }

    #[test]
    fn padding_may_be_among_the_bytes_or_not() {
        for (lens, padded) in [(&[5u32, 3][..], 8), (&[8], 8), (&[5], 5)] {
            let (_, mut server) = both();
            let mut reads: Vec<_> = lens.iter().map(|len| read(8, *len)).collect();
            reads.push(read(16, 4));
            let lists = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
            let Ingress::Call(message) = server.receive(&call(9, true, lists)) else {
                panic!("a call")
            };
            let parts = [message.part];
            let placed = server.conn.resolve_call(&message, &parts).expect("valid");
            let items: Vec<_> = placed.iter().map(|item| (item.position, item.len)).collect();
            assert_eq!(items, [(Some(8), padded), (Some(16), 4)]);
            assert_eq!(placed.virtual_len(), 40 + 8 + 4);
        }
    }

    #[test]
    fn at_most_sixty_four_items_are_read() {
        let reads: Vec<_> = (0..65).map(|index| read(8 + 4 * index, 4)).collect();
        assert_eq!(checked(true, &reads[..64]), None);
        assert!(checked(true, &reads).is_some());
    }

    // RFC 8166 3.4.5
    #[test]
    fn a_read_list_is_joined_by_position_whatever_its_order() {
        // As many chunks of two segments as there may be, one length for each.
        let mut reads: Vec<_> = (0..64u32)
            .flat_map(|at| [1 + at % 3, 4 * (at % 5) + 4].map(|length| (8 + 24 * at, length)))
            .zip(1..)
            .map(|((position, length), handle)| {
                let target = RdmaSegment { handle, length, offset: 0 };
                ReadSegment { position, target }
            })
            .collect();
        let seen = |reads: &[ReadSegment]| {
            let large = Settings { structure: structure(8192, 0, 0), ..settings() };
            let (_, mut server) = connected(large, large);
            let lists = ChunkLists { reads: List::from_slice(reads), ..ChunkLists::EMPTY };
            let payload = rpc(9, false, 2000);
            let wire = encoded(9, 2, Body::Msg(lists), &payload);
            let Ingress::Call(message) = server.receive(&wire) else { panic!("a call") };
            let placed = server.conn.resolve_call(&message, &[message.part]).expect("valid");
            let items = placed.iter().map(|item| {
                let Place::Remote(segments) = item.at else { panic!("remote") };
                (item.position, segments.iter().map(|segment| segment.handle).collect::<Vec<_>>())
            });
            items.collect::<Vec<_>>()
        };
        let expected: Vec<_> =
            (0..64u32).map(|at| (Some(8 + 24 * at), vec![2 * at + 1, 2 * at + 2])).collect();
        assert_eq!(seen(&reads), expected);
        reads.sort_by_key(|read| (read.target.handle % 2 == 0, read.position));
        assert_eq!(seen(&reads), expected, "first all first halves");
        reads.sort_by_key(|read| std::cmp::Reverse(read.position));
        assert_eq!(seen(&reads), expected, "the last chunk first");
        reads.reverse();
        let expected = expected.into_iter().map(|(at, halves)| (at, [halves[1], halves[0]].into()));
        assert_eq!(seen(&reads), expected.collect::<Vec<_>>(), "the other half first");
    }

    #[test]
    fn a_message_in_chunks_has_no_inline_bytes() {
        let (mut client, mut server) = both();
        let reads = [read(0, 40)];
        let lists = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
        let wire = encoded(9, 2, Body::NoMsg(lists), &[0; 4]);
        let Ingress::Reject(report) = server.receive(&wire) else { panic!("a bad call") };
        assert_eq!(report.kind, report::ReportKind::BadHeader);
        let segments = [segment(1, 40)];
        let reply = Some(chunk(&segments));
        let lists = ChunkLists { reply, ..ChunkLists::EMPTY };
        let ingress = client.receive(&encoded(9, 2, Body::NoMsg(lists), &[0; 4]));
        assert!(matches!(ingress, Ingress::Ignored(Ignored::BadReply)));
    }

    #[test]
    fn backward_calls_have_chunks_only_if_the_peer_accepts_them() {
        let general = Settings { backward: rpcrdma_xdr::BackwardSupport::General, ..settings() };
        let reads = [read(8, 4)];
        let lists = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
        let wire = call(1 << 31 | 9, true, lists);
        let (mut client, server) = connected(general, settings());
        assert!(matches!(client.receive(&wire), Ingress::Call(_)));
        let items = [BulkItem { position: 8, len: 20_000, origin: 0, pieces: 1 }];
        let demand = CallDemand {
            items: &items,
            explicit: Explicit::unlimited(4096),
            gather_max: 8,
            ..CallDemand::inline(8, 8)
        };
        assert_eq!(server.conn.route_call(&demand).map(|route| route.items.len()), Ok(1));
        let (mut client, server) = both();
        assert!(matches!(client.receive(&wire), Ingress::Reject(_)));
        assert!(server.conn.route_call(&demand).is_err());
        let (mut client, _) = connected_in(Version::One, general, settings());
        let wire = encoded(1 << 31 | 9, 1, Body::Msg(lists), &rpc(1 << 31 | 9, false, 40));
        assert!(matches!(client.receive(&wire), Ingress::Reject(_)));
    }

    #[test]
    fn the_body_that_was_fetched_is_the_message_that_was_announced() {
        let (_, server) = both();
        let prefix = |xid, reply| *rpc(xid, reply, 8).first_chunk().expect("eight");
        let check = |first: [u8; 8]| server.conn.check_body(9, &first, MsgType::Call);
        assert_eq!(check(prefix(9, false)), Ok(()));
        assert!(check(prefix(8, false)).is_err());
        assert!(check(prefix(9, true)).is_err());
        assert!(check([0, 0, 0, 9, 0, 0, 0, 2]).is_err());
    }
}

mod replies {
    //! What a responder returns, and what a requester accepts.

    use super::*;

    /// What is written, the reply's bytes, and the handle that it invalidates.
    type Answered = (Vec<RdmaSegment>, Vec<u8>, Option<u32>);

    /// Bytes of a body, and the items with their lengths.
    type Checked = (Option<u32>, Vec<(usize, u32)>);

    /// The reply of a server to a call with these lists: what it writes, and its header.
    fn answered(
        interop: Interop,
        writes: &[WriteChunk<'_>],
        reply: Option<WriteChunk<'_>>,
        payload: u32,
        lens: &[u32],
    ) -> Result<Answered, SendError> {
        let client = Settings { requester_invalidation: true, ..settings() };
        let (_, mut server) = connected(client, Settings { interop, ..settings() });
        let lists = ChunkLists { writes: List::from_slice(writes), reply, ..ChunkLists::EMPTY };
        let Ingress::Call(message) = server.receive(&call(9, true, lists)) else {
            panic!("a call")
        };
        let parts = [message.part];
        server.conn.resolve_call(&message, &parts).expect("valid");
        let mut position = 8;
        let items: Vec<_> = lens
            .iter()
            .map(|len| {
                let item = BulkItem { position, len: *len, origin: 0, pieces: 1 };
                position += item.padded_len();
                item
            })
            .collect();
        let bulk: Vec<_> = lens.iter().map(|len| vec![1; *len as usize]).collect();
        let offer = message.offer();
        let demand = ReplyDemand { payload, items: &items, offer, gather_max: 16, copy_max: 0 };
        let mut plan = server.conn.begin_reply(&mut server.ledger, &message.reply_to(), &demand)?;
        let mut written = Vec::new();
        while let Some(write) = plan.next_write() {
            written.push(write.remote);
        }
        let invalidated = plan.invalidate();
        let wire = server.transmit(&mut plan, &rpc(9, true, payload as usize), &bulk);
        Ok((written, wire[0].clone(), invalidated))
    }

    fn lengths(wire: &[u8]) -> (Vec<Vec<u32>>, Option<Vec<u32>>, bool) {
        let (header, _) = Header::decode(wire).expect("valid");
        let (lists, is_msg) = match header.body {
            Body::Msg(lists) => (lists, true),
            Body::NoMsg(lists) => (lists, false),
            other => panic!("{other:?}"),
        };
        assert!(lists.reads.is_empty());
        let of = |chunk: WriteChunk<'_>| chunk.0.iter().map(|segment| segment.length).collect();
        (lists.writes.iter().map(of).collect(), lists.reply.map(of), is_msg)
    }

    #[test]
    fn chunks_are_filled_in_order_and_returned_with_their_lengths() {
        let first = [segment(1, 3), segment(2, 0), segment(3, 5), segment(4, 9)];
        let second = [segment(5, 100)];
        let third = [segment(6, 100), segment(7, 4)];
        let chunks = [chunk(&first), chunk(&[]), chunk(&second), chunk(&third)];
        // The second result has an empty chunk, the third no bytes, the last no chunk at all.
        let (written, wire, _) =
            answered(Interop::default(), &chunks, None, 40, &[7, 6, 0, 99, 3]).expect("fits");
        assert_eq!(
            written,
            [
                segment(1, 3),
                RdmaSegment { length: 4, ..segment(3, 5) },
                RdmaSegment { length: 99, ..segment(6, 100) }
            ]
        );
        let (writes, reply, is_msg) = lengths(&wire);
        assert_eq!(writes, [vec![3, 0, 4, 0], vec![], vec![0], vec![99, 0]]);
        assert_eq!((reply, is_msg), (None, true));
        // In line: the payload, six bytes and three, padded.
        let header = 28 + 4 * 8 + 16 * 7;
        assert_eq!(wire.len(), header + 40 + 8 + 4);
    }

    #[test]
    fn the_padding_segment_of_the_linux_client_is_returned_empty() {
        for residue in 1..4 {
            let chunks = [[segment(1, 100 + residue), segment(2, 4)]];
            let (written, wire, _) =
                answered(Interop::default(), &[chunk(&chunks[0])], None, 40, &[100 + residue])
                    .expect("fits");
            assert_eq!(written, [segment(1, 100 + residue)]);
            assert_eq!(lengths(&wire).0, [[100 + residue, 0]]);
        }
    }

    #[test]
    fn a_chunk_that_is_too_small_is_found_before_anything_is_written() {
        let exact = [segment(1, 60), segment(2, 40)];
        assert!(answered(Interop::default(), &[chunk(&exact)], None, 40, &[100]).is_ok());
        let error = answered(Interop::default(), &[chunk(&exact)], None, 40, &[101]);
        assert_eq!(error.err(), Some(SendError::RoomTooSmall { need: 101, have: 100 }));
        let room = [segment(1, 5000)];
        let small = |payload| {
            answered(Interop::default(), &[], Some(chunk(&room)), payload, &[]).map(|it| it.0)
        };
        assert_eq!(small(5000), Ok(vec![segment(1, 5000)]));
        assert_eq!(small(5004), Err(SendError::RoomTooSmall { need: 5004, have: 5000 }));
        let none = answered(Interop::default(), &[], None, 5000, &[]).map(|it| it.0);
        assert!(matches!(none, Err(SendError::NeedsExplicitRdma { .. })));
    }

    // wire.md C6, C7
    #[test]
    fn a_reply_whose_chunk_lists_make_the_header_too_long_is_refused() {
        let small = Settings { structure: structure(1024, 0, 0), ..settings() };
        // In buffers of 1024 bytes: a header with so many segments in the Reply chunk.
        for (segments, fits) in [(62, true), (63, false)] {
            let (_, mut server) = connected(small, settings());
            let room: Vec<_> = (1..=segments).map(|handle| segment(handle, 100)).collect();
            let lists = ChunkLists { reply: Some(chunk(&room)), ..ChunkLists::EMPTY };
            let Ingress::Call(message) = server.receive(&call(9, true, lists)) else {
                panic!("a call")
            };
            let to = message.reply_to();
            let demand = ReplyDemand { offer: message.offer(), ..ReplyDemand::inline(2000) };
            let planned = server.conn.begin_reply(&mut server.ledger, &to, &demand);
            assert_eq!(planned.is_ok(), fits, "{segments}");
        }
    }

    #[test]
    fn a_reply_chunk_is_used_when_needed_or_always() {
        let always = Interop { reply_chunk: ReplyChunkUse::Always, ..Interop::default() };
        let room = [segment(1, 100), segment(2, 9000)];
        let header = 28 + 4 + 2 * 16;
        let edge = 4096 - header;
        for (interop, payload, is_long) in [
            (Interop::default(), 40, false),
            (Interop::default(), edge, false),
            (Interop::default(), edge + 4, true),
            (always, 40, true),
            (always, 8000, true),
            (always, edge, true),
        ] {
            let (written, wire, _) =
                answered(interop, &[], Some(chunk(&room)), payload, &[]).expect("fits");
            let (_, reply, is_msg) = lengths(&wire);
            assert_eq!(is_msg, !is_long, "{payload}");
            let used: u32 = written.iter().map(|write| write.length).sum();
            assert_eq!(used, if is_long { payload } else { 0 });
            let first = used.min(100);
            assert_eq!(reply, Some(vec![first, used - first]));
            assert_eq!(wire.len() as u32, header + if is_long { 0 } else { payload });
        }
        // What does not fit the chunk may still fit in line.
        let tiny = [segment(1, 8)];
        let (_, wire, _) = answered(always, &[], Some(chunk(&tiny)), 40, &[]).expect("fits");
        assert!(lengths(&wire).2);
    }

    #[test]
    fn a_reply_invalidates_the_one_handle_of_its_call() {
        let one = [segment(7, 10), segment(7, 10)];
        let two = [segment(7, 10), segment(8, 10)];
        let on = Interop::default();
        let off = Interop { remote_invalidation: false, ..on };
        for (interop, chunks, expected) in
            [(on, [chunk(&one)], Some(7)), (on, [chunk(&two)], None), (off, [chunk(&one)], None)]
        {
            let (_, _, handle) = answered(interop, &chunks, None, 40, &[20]).expect("fits");
            assert_eq!(handle, expected);
            // Unused, it was offered all the same.
            let (_, _, handle) = answered(interop, &chunks, None, 40, &[]).expect("fits");
            assert_eq!(handle, expected);
        }
        let (_, _, handle) =
            answered(on, &[chunk(&one)], Some(chunk(&two)), 40, &[20]).expect("fits");
        assert_eq!(handle, None, "another handle in another list");
    }

    #[test]
    fn keys_of_a_peer_without_remote_invalidation_are_not_invalidated() {
        let (_, mut server) = both();
        let reads = [read(8, 4)];
        let lists = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
        let Ingress::Call(message) = server.receive(&call(9, true, lists)) else {
            panic!("a call")
        };
        let to = message.reply_to();
        assert_eq!(to.handle, Some(0x18));
        let plan = server.conn.begin_reply(&mut server.ledger, &to, &ReplyDemand::inline(40));
        assert_eq!(plan.expect("fits").invalidate(), None);
    }

    #[test]
    fn a_short_reply_to_a_call_that_was_read_invalidates_as_well() {
        let client = Settings { requester_invalidation: true, ..settings() };
        let (_, mut server) = connected(client, settings());
        let reads = [read(8, 4)];
        let lists = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
        let Ingress::Call(message) = server.receive(&call(9, true, lists)) else {
            panic!("a call")
        };
        let to = message.reply_to();
        // The short way has no place for it.
        assert!(plain_reply(&mut server.conn, &mut server.ledger, &to, 40).is_none());
        let plan = server.conn.begin_reply(&mut server.ledger, &to, &ReplyDemand::inline(40));
        let plan = plan.expect("fits");
        assert!(matches!(plan, Plan::Inline(_)));
        assert_eq!(plan.invalidate(), Some(0x18));
    }

    /// What a caller that offered two chunks and room for the reply makes of a reply.
    fn checked(is_msg: bool, lists: ChunkLists<'_>) -> Result<Checked, Violation> {
        checked_of(&[segment(4, 40), segment(5, 60)], is_msg, lists)
    }

    /// As [`checked`], with this memory for the whole reply.
    fn checked_of(
        reply: &[RdmaSegment],
        is_msg: bool,
        lists: ChunkLists<'_>,
    ) -> Result<Checked, Violation> {
        let (mut client, _) = both();
        let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
        let demand = CallDemand::inline(40, 40);
        client.conn.begin_sends(&mut client.ledger, id, &demand).expect("a credit");
        let xid = id.xid();
        let wire = match is_msg {
            true => encoded(xid, 2, Body::Msg(lists), &rpc(xid, true, 40)),
            false => encoded(xid, 2, Body::NoMsg(lists), &[]),
        };
        let Ingress::Reply(of, message) = client.receive(&wire) else { panic!("a reply") };
        assert_eq!(of, id);
        let segments = [segment(1, 10), segment(2, 10), segment(3, 5)];
        let mut set = ItemSet::EMPTY;
        [0, 2].into_iter().for_each(|index| set.insert(index));
        let wants = SegmentLists { segments: &segments, ends: &[2, 3] };
        let offered = Offered { set, wants, reply };
        let parts = [message.part];
        client.conn.resolve_reply(&client.ledger, id, &message, &parts, &offered).map(|placed| {
            let items = placed.iter().map(|item| (item.index, item.len)).collect();
            (placed.body().map(|body| body.len), items)
        })
    }

    /// Three chunks as they were offered, with these lengths.
    fn returned(lens: [u32; 3]) -> Vec<Vec<RdmaSegment>> {
        let with = |at: RdmaSegment, length| RdmaSegment { length, ..at };
        vec![
            vec![with(segment(1, 10), lens[0]), with(segment(2, 10), lens[1])],
            vec![],
            vec![with(segment(3, 5), lens[2])],
        ]
    }

    fn in_msg(chunks: &[Vec<RdmaSegment>]) -> Result<Checked, Violation> {
        let writes: Vec<_> = chunks.iter().map(|list| chunk(list)).collect();
        checked(true, ChunkLists { writes: List::from_slice(&writes), ..ChunkLists::EMPTY })
    }

    #[test]
    fn returned_chunks_match_the_offer_with_no_greater_lengths() {
        assert_eq!(in_msg(&returned([10, 7, 5])), Ok((None, vec![(0, 17), (2, 5)])));
        assert_eq!(in_msg(&returned([0, 0, 1])), Ok((None, vec![(2, 1)])));
        assert_eq!(in_msg(&returned([0, 0, 0])), Ok((None, vec![])));
        assert_eq!(in_msg(&[]), Ok((None, vec![])), "missing as a whole");
        // Too long, or not contiguous.
        assert!(in_msg(&returned([11, 0, 0])).is_err());
        assert!(in_msg(&returned([9, 1, 0])).is_err());
        assert!(in_msg(&returned([0, 1, 0])).is_err());
        assert!(in_msg(&returned([10, u32::MAX, 0])).is_err());
        let spoiled = |spoil: &dyn Fn(&mut Vec<Vec<RdmaSegment>>)| {
            let mut chunks = returned([10, 7, 5]);
            spoil(&mut chunks);
            in_msg(&chunks)
        };
        assert!(spoiled(&|chunks| chunks[0][1].handle ^= 1).is_err());
        assert!(spoiled(&|chunks| chunks[0][0].offset += 1).is_err());
        assert!(spoiled(&|chunks| chunks[2][0].offset ^= 1 << 63).is_err());
        assert!(spoiled(&|chunks| chunks[0].truncate(1)).is_err());
        assert!(spoiled(&|chunks| chunks[1].push(segment(1, 0))).is_err());
        assert!(spoiled(&|chunks| chunks.truncate(2)).is_err());
        assert!(spoiled(&|chunks| chunks.push(vec![])).is_err());
        assert!(spoiled(&|chunks| chunks.swap(0, 2)).is_err());
    }

    #[test]
    fn only_the_last_used_segment_may_be_partly_filled() {
        let lens = |lens: [u32; 3]| [segment(4, lens[0]), segment(6, lens[1]), segment(5, lens[2])];
        for (written, good) in [
            ([40, 0, 60], true),
            ([40, 0, 7], true),
            ([39, 0, 0], true),
            ([39, 0, 1], false),
            ([0, 0, 60], false),
        ] {
            let returned = lens(written);
            let lists = ChunkLists { reply: Some(chunk(&returned)), ..ChunkLists::EMPTY };
            assert_eq!(checked_of(&lens([40, 0, 60]), false, lists).is_ok(), good, "{written:?}");
        }
    }

    #[test]
    fn a_reply_is_in_one_place() {
        let with = |lens: [u32; 2]| {
            [
                RdmaSegment { length: lens[0], ..segment(4, 40) },
                RdmaSegment { length: lens[1], ..segment(5, 60) },
            ]
        };
        let check = |is_msg, lens| {
            let reply = with(lens);
            checked(is_msg, ChunkLists { reply: Some(chunk(&reply)), ..ChunkLists::EMPTY })
        };
        assert_eq!(check(false, [40, 3]), Ok((Some(43), vec![])));
        assert_eq!(check(false, [8, 0]), Ok((Some(8), vec![])));
        assert_eq!(check(true, [0, 0]), Ok((None, vec![])), "offered, and not used");
        assert!(check(false, [7, 0]).is_err(), "shorter than any message");
        assert!(check(false, [0, 0]).is_err());
        assert!(check(false, [39, 1]).is_err());
        assert!(check(false, [40, 61]).is_err());
        assert!(check(true, [8, 0]).is_err(), "in two places");
        // Nowhere: an unused Write list alone.
        let chunks = returned([0, 0, 0]);
        let writes: Vec<_> = chunks.iter().map(|list| chunk(list)).collect();
        let lists = ChunkLists { writes: List::from_slice(&writes), ..ChunkLists::EMPTY };
        assert!(checked(false, lists).is_err());
        // With results beside it.
        let (chunks, reply) = (returned([10, 0, 5]), with([40, 0]));
        let writes: Vec<_> = chunks.iter().map(|list| chunk(list)).collect();
        let writes = List::from_slice(&writes);
        let lists = ChunkLists { writes, reply: Some(chunk(&reply)), ..ChunkLists::EMPTY };
        assert_eq!(checked(false, lists), Ok((Some(40), vec![(0, 10), (2, 5)])));
    }

    #[test]
    fn a_reply_has_no_read_list() {
        let reads = [read(8, 4)];
        let lists = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
        assert!(checked(true, lists).is_err());
    }

    #[test]
    fn a_reply_of_too_many_pieces_is_sent_if_the_first_are_short_enough_to_be_copied() {
        let items: Vec<_> = (0..5)
            .map(|index| BulkItem { position: 12 + 12 * index, len: 5, origin: 0, pieces: 1 })
            .collect();
        let payload = 8 + 5 * 4;
        // The header; and the payload, an item and its padding five times. The first two of these
        // have 17 bytes, and copied together they are one.
        for (gather_max, copy_max, fits) in
            [(16, 0, true), (15, 0, false), (15, 16, false), (15, 17, true)]
        {
            let (_, mut server) = both();
            let Ingress::Call(message) = server.receive(&call(9, true, ChunkLists::EMPTY)) else {
                panic!("a call")
            };
            let offer = message.offer();
            let demand = ReplyDemand { payload, items: &items, offer, gather_max, copy_max };
            let plan = server.conn.begin_reply(&mut server.ledger, &message.reply_to(), &demand);
            match plan {
                Ok(_) => assert!(fits, "{gather_max} {copy_max}"),
                Err(why) => {
                    assert!(!fits, "{gather_max} {copy_max}");
                    assert_eq!(why, SendError::TooManyPieces { need: 16, max: gather_max });
                }
            }
        }
    }

    #[test]
    fn a_long_reply_is_written_in_requests_that_can_be_gathered() {
        let (_, mut server) = both();
        let room = [segment(1, 90_000)];
        let reply = Some(chunk(&room));
        let lists = ChunkLists { reply, ..ChunkLists::EMPTY };
        let Ingress::Call(message) = server.receive(&call(9, true, lists)) else {
            panic!("a call")
        };
        let items: Vec<_> = (0..20)
            .map(|index| BulkItem { position: 8 + 1008 * index, len: 1001, origin: 0, pieces: 2 })
            .collect();
        let (offer, payload) = (message.offer(), 8 + 20 * 4);
        let demand = ReplyDemand { payload, items: &items, offer, gather_max: 5, copy_max: 0 };
        let to = message.reply_to();
        let plan = server.conn.begin_reply(&mut server.ledger, &to, &demand).expect("fits");
        let Plan::Group(mut plan) = plan else { panic!("not plain") };
        let mut at = segment(1, 0).offset;
        while let Some(write) = plan.next_write() {
            assert_eq!(write.remote.offset, at, "one behind the other");
            at += u64::from(write.remote.length);
            let entries: u32 = plan
                .write_pieces(&write)
                .map(|piece| if matches!(piece, Gather::Bulk { .. }) { 2 } else { 1 })
                .sum();
            assert!(entries <= 5, "{entries}");
        }
        assert_eq!(at - segment(1, 0).offset, u64::from(8 + 20 * 1008u32));
    }
}

mod hostile {
    //! Arbitrary lists do no harm, and what is accepted is what a map of bytes says.

    use super::*;

    fn any_reads() -> impl Strategy<Value = Vec<ReadSegment>> {
        let position = prop_oneof![6 => (0u32..16).prop_map(|at| at * 4), 1 => any::<u32>().prop_map(|at| at & !3)];
        let length = prop_oneof![6 => 0u32..20, 1 => any::<u32>(), 1 => Just(u32::MAX)];
        let offset = prop_oneof![8 => 0u64..1000, 1 => Just(u64::MAX), 1 => any::<u64>()];
        let one = (position, length, offset).prop_map(|(position, length, offset)| ReadSegment {
            position,
            target: RdmaSegment { handle: 1, length, offset },
        });
        (vec(one, 0..6), any::<bool>()).prop_map(|(mut reads, is_sorted)| {
            if is_sorted {
                reads.sort_by_key(|read| read.position);
            }
            for (read, handle) in reads.iter_mut().zip(1..) {
                read.target.handle = handle;
            }
            reads
        })
    }

    /// A position, and what is there.
    type At = (u32, Vec<RdmaSegment>);

    /// The items, if a receiver that puts byte for byte back where it belongs can.
    fn naive(is_msg: bool, reads: &[ReadSegment], max: u32) -> Option<Vec<At>> {
        let mut chunks: Vec<(u32, u64)> = Vec::new();
        for read in reads {
            read.target.offset.checked_add(read.target.length.into())?;
            match chunks.iter_mut().find(|chunk| chunk.0 == read.position) {
                Some(chunk) => chunk.1 += u64::from(read.target.length),
                None => chunks.push((read.position, read.target.length.into())),
            }
        }
        chunks.sort_unstable();
        let at_zero = chunks.iter().position(|chunk| chunk.0 == 0);
        let payload = match (is_msg, at_zero) {
            (true, None) => 40,
            (false, Some(at)) => chunks.remove(at).1,
            _ => return None,
        };
        if payload < 8 || chunks.iter().map(|chunk| chunk.1).sum::<u64>() + payload > max.into() {
            return None;
        }
        // Which bytes of the whole message are of the payload.
        let mut owners: Vec<bool> = vec![true; payload as usize];
        for (position, len) in &chunks {
            let at = *position as usize;
            // Behind everything that was put back so far, and never within the first words.
            let last = owners.iter().rposition(|own| !own).map_or(0, |last| last + 1);
            if at < 8 || at < last || at > owners.len() {
                return None;
            }
            let padded = len.next_multiple_of(4) as usize;
            owners.splice(at..at, std::iter::repeat_n(false, padded));
        }
        (owners.len() <= max as usize).then_some(())?;
        chunks.retain(|chunk| chunk.1 > 0);
        Some(chunks.into_iter().map(|(position, _)| (position, joined(reads, position))).collect())
    }

    /// What is at a position: its segments in the order of the list, wherever they stand in it.
    fn joined(reads: &[ReadSegment], position: u32) -> Vec<RdmaSegment> {
        let here = reads.iter().filter(|read| read.position == position);
        here.map(|read| read.target).filter(|segment| segment.length > 0).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn a_read_list_agrees_with_a_map_of_bytes(
            is_msg in any::<bool>(),
            reads in any_reads(),
        ) {
            let small = Settings { rpc_len_max: 120, ..settings() };
            let (_, mut server) = connected(small, small);
            let lists = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
            if reads.is_empty() {
                return Ok(());
            }
            let Ingress::Call(message) = server.receive(&call(9, is_msg, lists)) else {
                panic!("a call")
            };
            let parts = [message.part];
            let placed = server.conn.resolve_call(&message, &parts);
            let segments_of = |at, len: u32| {
                let Place::Remote(segments) = at else { panic!("remote") };
                let sum: u64 = segments.iter().map(|segment| u64::from(segment.length)).sum();
                assert_eq!(u64::from(len), sum);
                segments.iter().collect::<Vec<_>>()
            };
            let items = placed.ok().map(|placed| {
                let body = placed.body().map(|body| segments_of(body.at, body.len));
                assert_eq!(body, (!is_msg).then(|| joined(&reads, 0)));
                placed
                    .iter()
                    .map(|item| (item.position.expect("it has one"), segments_of(item.at, item.len)))
                    .collect::<Vec<_>>()
            });
            prop_assert_eq!(items, naive(is_msg, &reads, 120));
        }

        #[test]
        fn bytes_of_a_chunked_message_that_were_changed_do_no_harm(
            vers in 1u32..3,
            is_msg in any::<bool>(),
            reads in any_reads(),
            (lens, room) in (vec(vec(any::<u16>(), 0..4), 0..4), prop::option::of(any::<u16>())),
            changes in vec((any::<u16>(), any::<u8>()), 0..6),
            payload in 8u32..4000,
            items in vec(0u32..9000, 0..4),
        ) {
            let version = if vers == 1 { Version::One } else { Version::Two };
            let (mut client, mut server) = connected_in(version, settings(), settings());
            let id = client.conn.open_call(&mut client.ledger, 0).expect("ready");
            let demand = CallDemand::inline(40, 40);
            client.conn.begin_sends(&mut client.ledger, id, &demand).expect("a credit");
            let lists: Vec<Vec<_>> = lens
                .iter()
                .map(|lens| lens.iter().map(|len| segment(1, (*len).into())).collect())
                .collect();
            let writes: Vec<_> = lists.iter().map(|list| chunk(list)).collect();
            let room: Vec<_> = room.iter().map(|len| segment(2, (*len).into())).collect();
            let chunks = ChunkLists {
                reads: List::from_slice(&reads),
                writes: List::from_slice(&writes),
                reply: (!room.is_empty()).then(|| chunk(&room)),
            };
            let body = if is_msg { Body::Msg(chunks) } else { Body::NoMsg(chunks) };
            let behind = if is_msg { rpc(id.xid(), false, 40) } else { Vec::new() };
            let mut wire = encoded(id.xid(), vers, body, &behind);
            for (at, byte) in changes {
                let at = usize::from(at) % wire.len();
                wire[at] ^= byte;
            }
            if let Ingress::Call(message) = server.receive(&wire) {
                let parts = [message.part];
                if let Ok(placed) = server.conn.resolve_call(&message, &parts) {
                    let total: u64 = placed.iter().map(|item| u64::from(item.len)).sum();
                    prop_assert!(total <= server.settings.rpc_len_max.into());
                }
                answer(&mut server, &message, payload & !3, &items);
            }
            let _ = client.receive(&wire);
            let mut back = wire.clone();
            if is_msg && back.len() >= 40 {
                let at = back.len() - 33;
                back[at] = 1;
            }
            if let Ingress::Reply(id, message) = client.receive(&back) {
                let parts = [message.part];
                let lists: Vec<_> = lists.concat();
                let ends = [lists.len() as u16];
                let mut set = ItemSet::EMPTY;
                set.insert(0);
                let wants = SegmentLists { segments: &lists, ends: &ends };
                let offered = Offered { set, wants, reply: &room };
                let _ = client.conn.resolve_reply(&client.ledger, id, &message, &parts, &offered);
            }
        }
    }

    /// Answers, if there is a way, and checks that only what was offered is written.
    fn answer(server: &mut Side, message: &Message<'static>, payload: u32, lens: &[u32]) {
        let mut position = 8;
        let items: Vec<_> = lens
            .iter()
            .map(|len| {
                let item = BulkItem { position, len: *len, origin: 0, pieces: 1 };
                position += item.padded_len();
                item
            })
            .collect();
        let demand = ReplyDemand {
            payload,
            items: &items,
            offer: message.offer(),
            gather_max: 8,
            copy_max: 0,
        };
        let to = message.reply_to();
        let Ok(mut plan) = server.conn.begin_reply(&mut server.ledger, &to, &demand) else {
            server.conn.refuse(&mut server.ledger, &to);
            return;
        };
        let offered: Vec<_> = message
            .writes
            .iter()
            .chain(message.reply)
            .flat_map(|WriteChunk(list)| list.iter().collect::<Vec<_>>())
            .collect();
        while let Some(write) = plan.next_write() {
            let RdmaSegment { handle, length, offset } = write.remote;
            let is_within = |segment: &RdmaSegment| {
                let within = offset.wrapping_sub(segment.offset);
                segment.handle == handle
                    && within.saturating_add(length.into()) <= segment.length.into()
            };
            assert!(offered.iter().any(is_within), "{write:?}");
        }
        let bulk: Vec<_> = lens.iter().map(|len| vec![1; *len as usize]).collect();
        let wire = server.transmit(&mut plan, &rpc(message.xid, true, payload as usize), &bulk);
        assert!(Header::decode(&wire[0]).is_ok());
    }
}
