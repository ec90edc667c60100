//! Upper-layer bindings on the software fabric: only DDP-eligible items are placed, and an item
//! that a peer places without right is detected.

use rpcrdma::onc::{CallHeader, HeaderError, HeaderRoom};
use rpcrdma::ulb::{BindError, Bound, ItemError, Protection, ReplyMax, nfs2, nfs3, nfs4};
use rpcrdma::{Answer, Bulk, Call, CallError, Loan, Reply, Want};
use rpcrdma_config::Raw;
use rpcrdma_mempool::RegisteredBytes;
use rpcrdma_suite::pair::{Pair, Respond};
use rpcrdma_suite::script::Random;
use rpcrdma_xdr::DecodeError;

fn bind(procedure: u32, protection: Protection) -> Bound {
    nfs3::BINDING.bind(procedure, protection).expect("the procedure exists")
}

fn placeable() -> Want {
    Want { len_min: 0, len_max: 4096 }
}

/// Says how many items were placed in the call.
fn count<'a>(_: &mut Vec<Loan>, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
    let placed = call.placed().len() as u32;
    reply.payload().put_u32(placed);
    reply.send()
}

#[test]
fn a_procedure_without_items_never_places() {
    let mut pair = Pair::new(count);
    let mut refused = 0;
    for procedure in nfs3::BINDING.procedures {
        let bound = bind(procedure.number, Protection::None);
        let loan = pair.buffer(&[7; 4096]);
        let mut call = bound.call(pair.begin());
        let not_eligible = Err(BindError::NotEligible { procedure: procedure.name });
        if procedure.arguments.is_empty() {
            assert_eq!(call.argument(loan), not_eligible);
            assert_eq!(call.payload().position(), 8, "nothing was written");
            refused += 1;
        }
        if procedure.results.is_empty() {
            assert_eq!(call.result(placeable()), not_eligible);
            assert_eq!(call.result_in_line(4), not_eligible);
            call.asks(0);
            call.submit().expect("a call with nothing placed");
            let placed = pair.finish(|reply| {
                let reply = reply.expect("an answer");
                assert_eq!(reply.placed().len(), 0);
                reply.reader().u32()
            });
            assert_eq!(placed, Ok(0), "{}", procedure.name);
            refused += 1;
        }
    }
    assert_eq!(refused, 22 + 22 - 4, "all but the four items");
}

#[test]
fn an_item_is_placed_once_and_a_second_one_is_refused() {
    let mut pair = Pair::new(count);
    let (one, two) = (pair.buffer(&[1; 5000]), pair.buffer(&[2; 5000]));
    let mut call = bind(nfs3::WRITE, Protection::None).call(pair.begin());
    call.argument(one).expect("the data of a WRITE");
    assert_eq!(call.argument(two), Err(BindError::NotEligible { procedure: "WRITE" }));
    call.submit().expect("one item");
    assert_eq!(pair.finish(|reply| reply.map(|reply| reply.reader().u32())), Ok(Ok(1)));
}

#[test]
fn an_item_longer_than_its_program_allows_is_refused() {
    let mut pair = Pair::new(count);
    let (full, long) = (pair.buffer(&[1; 8192]), pair.buffer(&[1; 8193]));
    let write = nfs2::BINDING.bind(nfs2::WRITE, Protection::None).expect("it exists");
    let mut call = write.call(pair.begin());
    call.argument(full).expect("as long as it may be");
    drop(call);
    let mut call = write.call(pair.begin());
    let (item, max) = ("writeargs.data", 8192);
    assert_eq!(call.argument(long), Err(BindError::TooLong { item, len: 8193, max }));
    drop(call);
    let read = nfs2::BINDING.bind(nfs2::READ, Protection::None).expect("it exists");
    let mut call = read.call(pair.begin());
    let (item, want) = ("readres.data", Want { len_min: 0, len_max: 8193 });
    assert_eq!(call.result(want), Err(BindError::TooLong { item, len: 8193, max }));
}

/// Says how many items were placed, and how many bytes of 7 are in the stream behind the xid.
fn weigh<'a>(_: &mut Vec<Loan>, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
    let placed = call.placed().len() as u32;
    let sevens = call.payload().flatten().skip(4).filter(|byte| **byte == 7).count();
    reply.payload().put_u32(placed);
    reply.payload().put_u32(sevens as u32);
    reply.send()
}

/// The extension, and the base protocol, in which a long message is fetched by RDMA Reads.
const WAYS: [fn(&mut Raw); 2] = [|_| {}, base];

fn base(raw: &mut Raw) {
    raw.protocol.version = "one".into();
    raw.receive.inline = "4KiB".into();
    raw.receive.placement.count = 0;
}

// RFC 8166 8.2.2
#[test]
fn elements_of_rpcsec_gss_are_never_placed() {
    for way in WAYS {
        let mut pair = Pair::configured(weigh, way);
        let answered = |pair: &mut Pair| {
            pair.finish(|reply| {
                let mut reader = reply.expect("an answer").reader();
                [(); 2].map(|()| reader.u32().expect("a word"))
            })
        };
        // A context is set up by NULL, whose argument is a token.
        for len in [500, 30_000] {
            let loan = pair.buffer(&vec![7; len]);
            let mut call = bind(nfs3::NULL, Protection::None).call(pair.begin());
            call.payload().put_opaque(&loan);
            let not_eligible = Err(BindError::NotEligible { procedure: "NULL" });
            assert_eq!(call.argument(loan), not_eligible, "in the stream or nowhere");
            call.submit().expect("a call without items");
            assert_eq!(answered(&mut pair), [0, len as u32]);
        }
        // The longest credentials and verifier, before data that are placed.
        let loan = pair.buffer(&[9; 30_000]);
        let mut call = bind(nfs3::WRITE, Protection::None).call(pair.begin());
        call.payload().put_opaque(&[7; 400]);
        call.payload().put_opaque(&[7; 400]);
        call.argument(loan).expect("the data of a WRITE");
        call.submit().expect("a WRITE");
        assert_eq!(answered(&mut pair), [1, 800]);
    }
}

/// Answers with a verifier of 400 bytes, and 3800 of results.
fn verified<'a>(_: &mut Vec<Loan>, _: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
    reply.payload().put_opaque(&[5; 400]);
    reply.payload().put_opaque(&[6; 3800]);
    reply.send()
}

// RFC 8166 8.2.2.2
#[test]
fn a_long_verifier_is_counted_when_a_reply_is_sized() {
    let mut pair = Pair::configured(verified, base);
    let mut call_with = |more: u32| {
        let mut call = bind(nfs3::READDIR, Protection::None).call(pair.begin());
        call.asks(3800);
        call.reply_more(more);
        call.submit().expect("its longest reply is known");
        pair.finish(|reply| reply.map(|reply| reply.payload().map(<[u8]>::len).sum::<usize>()))
    };
    // Without it the reply is expected in a message of 4 KiB, and has no memory to be written to.
    assert!(matches!(call_with(0), Err(CallError::Rejected(..))));
    assert_eq!(call_with(400), Ok(8 + 4 + 400 + 4 + 3800));
}

#[test]
fn protected_calls_keep_their_data_in_the_stream() {
    for (protection, placed) in
        [(Protection::None, 1), (Protection::Integrity, 0), (Protection::Privacy, 0)]
    {
        let mut pair = Pair::new(count);
        let bytes = RegisteredBytes::new(pair.buffer(&[9; 2001]));
        let items = [pair.buffer(&[9; 2001]).into(), bytes.slice(0..2001).expect("all").into()];
        for item in items as [Bulk; 2] {
            let mut call = bind(nfs3::WRITE, protection).call(pair.begin());
            call.argument(item).expect("the data of a WRITE");
            // Length, bytes and padding, whether they are in the stream or not.
            assert_eq!(call.payload().position(), 8 + 4 + 2004);
            call.submit().expect("a WRITE");
            let seen = pair.finish(|reply| reply.map(|reply| reply.reader().u32()));
            assert_eq!(seen, Ok(Ok(placed)), "{protection:?}");
        }
    }
}

/// The results of a READ, placed if the caller wants that and `protection` allows it.
fn read_of<'a>(loans: &mut Vec<Loan>, reply: Reply<'a>, protection: Protection) -> Answer<'a> {
    let mut loan = loans.pop().expect("on_turn ran before");
    loan.truncate(2001);
    loan.fill(0x3c);
    let mut reply = bind(nfs3::READ, protection).reply(reply);
    reply.result(loan).expect("the data of a READ");
    assert_eq!(
        reply.payload().position(),
        8 + 4 + 2004,
        "length, bytes and padding, wherever they are"
    );
    reply.send()
}

#[test]
fn protected_replies_keep_their_data_in_the_stream() {
    let open: Respond = |loans, _, reply| read_of(loans, reply, Protection::None);
    let sealed: Respond = |loans, _, reply| read_of(loans, reply, Protection::Integrity);
    // With RPCSEC_GSS protection the client requests no DDP, and the server would not use it.
    for (of_client, answer, placed) in [
        (Protection::None, open, true),
        (Protection::Integrity, open, false),
        (Protection::None, sealed, false),
        (Protection::Privacy, sealed, false),
    ] {
        let mut pair = Pair::new(answer);
        let bound = bind(nfs3::READ, of_client);
        let mut call = bound.call(pair.begin());
        call.result(placeable()).expect("the data of a READ");
        let plain = 24 + 104;
        let in_line = if of_client.may_place() { 0 } else { 4096 };
        assert_eq!(call.reply_max(), Ok(plain + in_line));
        call.submit().expect("a READ");
        pair.finish(|reply| {
            let reply = reply.expect("an answer");
            let mut results = bound.results(reply);
            let data = results.data().expect("the data of a READ");
            assert_eq!(data.placed_index().is_some(), placed, "{of_client:?}");
            assert_eq!((data.len(), data.is_empty()), (2001, false));
            assert!(data.to_vec() == [0x3c; 2001]);
            assert_eq!(results.position(), 8 + 4 + 2004);
            results.end().expect("nothing else was placed");
        });
    }
}

#[test]
fn the_longest_reply_is_known_before_a_call_is_sent() {
    let mut pair = Pair::new(count);
    for procedure in nfs3::BINDING.procedures {
        let bound = bind(procedure.number, Protection::None);
        let mut call = bound.call(pair.begin());
        let unknown = Err(BindError::ReplyUnknown { procedure: procedure.name });
        let mut more = 0;
        if !procedure.results.is_empty() {
            assert_eq!(call.reply_max(), unknown, "{}: how long the item is", procedure.name);
            // As short as this it comes in the stream, with its padding.
            call.result(Want { len_min: 102, len_max: 4096 }).expect("an item");
            more = 104;
        }
        let expected = match procedure.reply {
            ReplyMax::Fixed(len) => len,
            ReplyMax::Asked(len) => {
                assert_eq!(call.reply_max(), unknown, "{}: what was asked", procedure.name);
                call.asks(1022);
                len + 1024
            }
            ReplyMax::Stated => panic!("the table of NFSv3 knows all"),
        };
        // The shortest reply says at least which versions there are.
        assert_eq!(call.reply_max(), Ok(24 + expected.max(8) + more), "{}", procedure.name);
        call.reply_more(16);
        assert_eq!(call.reply_max(), Ok(24 + expected.max(8) + more + 16));
    }
    let mut call = bind(nfs3::READLINK, Protection::None).call(pair.begin());
    call.result_in_line(1022).expect("the path");
    assert_eq!(call.reply_max(), Ok(24 + 96 + 1024));
    drop(call);
    let compound = nfs4::BINDING.bind(nfs4::COMPOUND, Protection::None).expect("it exists");
    let mut call = compound.call(pair.begin());
    assert_eq!(call.reply_max(), Err(BindError::ReplyUnknown { procedure: "COMPOUND" }));
    call.asks(500);
    assert_eq!(call.reply_max(), Ok(24 + 500));
}

#[test]
fn a_call_without_a_reply_bound_is_not_sent() {
    let mut pair = Pair::new(count);
    let call = bind(nfs3::READDIR, Protection::None).call(pair.begin());
    assert_eq!(call.submit(), Err(BindError::ReplyUnknown { procedure: "READDIR" }));
    // The slot is free again, and the connection has not noticed.
    let mut call = bind(nfs3::READDIR, Protection::None).call(pair.begin());
    call.asks(4096);
    call.submit().expect("now it is known");
    assert_eq!(pair.finish(|reply| reply.map(|reply| reply.reader().u32())), Ok(Ok(0)));
}

/// Reads a call of `procedure` that has a word and then data, and says what it found.
fn check<'a>(call: &Call<'a>, mut reply: Reply<'a>, bound: Bound) -> Answer<'a> {
    let mut arguments = bound.arguments(call, call.reader());
    let read = |arguments: &mut rpcrdma::ulb::Items<'_>| -> Result<u32, ItemError> {
        arguments.reader().u32()?;
        let data = arguments.data()?;
        arguments.end()?;
        Ok(data.slices().flatten().map(|byte| u32::from(*byte)).sum())
    };
    match read(&mut arguments) {
        Ok(sum) => {
            reply.payload().put_u32(sum);
            reply.send()
        }
        Err(ItemError::NotEligible { .. }) => reply.refuse(),
        Err(_) => {
            reply.payload().put_u32(u32::MAX);
            reply.send()
        }
    }
}

/// A call of a word and some data, placed where no binding stops it.
fn send_data(pair: &mut Pair, len: usize, is_placed: bool) -> Result<u32, CallError> {
    let loan = pair.buffer(&vec![1; len]);
    let mut call = pair.begin();
    call.payload().put_u32(5);
    match is_placed {
        true => call.payload().place(loan),
        false => call.payload().put_opaque(&loan),
    }
    call.submit().expect("a call");
    pair.finish(|reply| reply.map(|reply| reply.reader().u32().expect("a word")))
}

#[test]
fn a_server_reads_an_item_from_wherever_it_is() {
    let mut pair =
        Pair::new(|_, call, reply| check(&call, reply, bind(nfs3::WRITE, Protection::None)));
    for len in [0, 1, 3, 4, 5, 2000, 40_001] {
        assert_eq!(send_data(&mut pair, len, true), Ok(len as u32), "placed");
        assert_eq!(send_data(&mut pair, len.min(9000), false), Ok(len.min(9000) as u32), "in line");
    }
}

#[test]
fn a_call_with_an_ineligible_placed_item_is_not_executed() {
    let getattr: Respond =
        |_, call, reply| check(&call, reply, bind(nfs3::GETATTR, Protection::None));
    let mut pair = Pair::new(getattr);
    assert!(matches!(send_data(&mut pair, 2000, true), Err(CallError::Rejected(..))));
    assert_eq!(send_data(&mut pair, 2000, false), Ok(2000), "in the stream it is not checked");
    let sealed: Respond =
        |_, call, reply| check(&call, reply, bind(nfs3::WRITE, Protection::Integrity));
    let mut pair = Pair::new(sealed);
    assert!(matches!(send_data(&mut pair, 2000, true), Err(CallError::Rejected(..))));
    assert_eq!(send_data(&mut pair, 2000, false), Ok(2000));
}

#[test]
fn an_item_placed_where_none_belongs_is_found_at_the_end() {
    let write: Respond = |_, call, reply| check(&call, reply, bind(nfs3::WRITE, Protection::None));
    let mut pair = Pair::new(write);
    // Behind the data.
    let (one, two) = (pair.buffer(&[1; 2000]), pair.buffer(&[1; 2000]));
    let mut call = pair.begin();
    call.payload().put_u32(5);
    call.payload().place(one);
    call.payload().place(two);
    call.submit().expect("two items");
    let refused = pair.finish(|reply| reply.map(drop));
    assert!(matches!(refused, Err(CallError::Rejected(..))), "{refused:?}");
    // In front of them: its length is read for the word, and the data are those in the stream.
    let one = pair.buffer(&[1; 2000]);
    let mut call = pair.begin();
    call.payload().place(one);
    call.payload().put_opaque(&[1; 4]);
    call.submit().expect("one item");
    let refused = pair.finish(|reply| reply.map(drop));
    assert!(matches!(refused, Err(CallError::Rejected(..))), "{refused:?}");
}

#[test]
fn a_reply_with_an_ineligible_placed_item_is_invalid() {
    let answer: Respond = |loans, _, mut reply| {
        let mut loan = loans.pop().expect("on_turn ran before");
        loan.truncate(100);
        reply.payload().put_u32(5);
        reply.payload().place(loan);
        reply.send()
    };
    let mut pair = Pair::new(answer);
    let mut call = pair.begin();
    call.want(placeable());
    call.submit().expect("a call");
    pair.finish(|reply| {
        let reply = reply.expect("an answer");
        let mut results = bind(nfs3::GETATTR, Protection::None).results(reply);
        results.reader().u32().expect("a word");
        assert_eq!(results.end(), Err(ItemError::NotEligible { position: 16 }));
        assert_eq!(results.data().map(drop), Err(ItemError::NotEligible { position: 16 }));
        // A READ may have it, but not under protection.
        let mut results = bind(nfs3::READ, Protection::Privacy).results(reply);
        results.reader().u32().expect("a word");
        assert_eq!(results.data().map(drop), Err(ItemError::NotEligible { position: 16 }));
        let mut results = bind(nfs3::READ, Protection::None).results(reply);
        results.reader().u32().expect("a word");
        assert_eq!(results.data().map(|data| data.len()), Ok(100));
        results.end().expect("that was all");
    });
}

/// A COMPOUND of three operations: (number, one word) each. A READ with word 0 fails.
fn compound<'a>(loans: &mut Vec<Loan>, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
    let bound = nfs4::BINDING.bind(nfs4::COMPOUND, Protection::None).expect("it exists");
    let mut arguments = bound.arguments(&call, call.reader());
    let mut reply = bound.reply(reply);
    let mut read = || -> Result<(), ItemError> {
        for _ in 0..3 {
            // It begins with its number: the origin is in front of that.
            let number = arguments.clone().reader().u32()?;
            let origin = arguments.operation(number);
            let (_number, word) = (arguments.reader().u32()?, arguments.reader().u32()?);
            reply.operation(number, origin);
            reply.payload().put_u32(number);
            let is_good = number == nfs4::OP_READ && word > 0;
            reply.payload().put_bool(is_good);
            if is_good {
                let mut loan = loans.pop().expect("on_turn ran before");
                loan.truncate(word as usize);
                loan.fill(word as u8);
                reply.result(loan).expect("the data of a READ");
            }
            const OTHER: u32 = 9;
            if number == OTHER {
                let loan = loans.pop().expect("on_turn ran before");
                let refused = reply.result(loan);
                assert_eq!(refused, Err(BindError::NotEligible { procedure: "COMPOUND" }));
            }
        }
        arguments.end()
    };
    match read() {
        Ok(()) => reply.send(),
        Err(_) => reply.refuse(),
    }
}

/// Calls the operations, each READ wanting what is beside it. Returns for each READ that did not
/// fail the length of its data, and whether they were placed.
fn call_compound(pair: &mut Pair, operations: [(u32, u32, Want); 3]) -> Vec<(u32, bool)> {
    let bound = nfs4::BINDING.bind(nfs4::COMPOUND, Protection::None).expect("it exists");
    let mut call = bound.call(pair.begin());
    for (number, word, want) in operations {
        call.operation(number);
        call.payload().put_u32(number);
        call.payload().put_u32(word);
        match call.result(want) {
            Ok(()) => assert_eq!(number, nfs4::OP_READ),
            Err(error) => {
                assert_eq!(error, BindError::NotEligible { procedure: "COMPOUND" });
                assert_ne!(number, nfs4::OP_READ);
            }
        }
    }
    call.asks(36);
    call.submit().expect("a COMPOUND");
    pair.finish(|reply| {
        let reply = reply.expect("an answer");
        let mut results = bound.results(reply);
        let mut seen = Vec::new();
        for (number, ..) in operations {
            results.operation(number);
            assert_eq!(results.reader().u32(), Ok(number));
            if results.reader().u32() == Ok(1) {
                let data = results.data().expect("data");
                assert!(data.slices().flatten().all(|byte| *byte == data.len() as u8));
                seen.push((data.len(), data.placed_index().is_some()));
            }
        }
        results.end().expect("all items were met");
        seen
    })
}

#[test]
fn wants_of_one_operation_are_not_used_by_another() {
    const GETATTR: u32 = 9;
    let mut pair = Pair::new(compound);
    let want = |len_min| Want { len_min, len_max: 4096 };
    // The first READ fails. Matched over the whole call, the second would meet the want of the
    // first, and 500 bytes would be too short for it.
    let failing =
        [(nfs4::OP_READ, 0, want(1000)), (GETATTR, 0, want(0)), (nfs4::OP_READ, 500, want(0))];
    assert_eq!(call_compound(&mut pair, failing), [(500, true)]);
    // And the other way round.
    let failing = [
        (nfs4::OP_READ, 500, want(0)),
        (nfs4::OP_READ, 0, want(0)),
        (nfs4::OP_READ, 400, want(1000)),
    ];
    assert_eq!(call_compound(&mut pair, failing), [(500, true), (400, false)]);
    let all = [
        (nfs4::OP_READ, 100, want(0)),
        (nfs4::OP_READ, 200, want(201)),
        (nfs4::OP_READ, 300, want(300)),
    ];
    assert_eq!(call_compound(&mut pair, all), [(100, true), (200, false), (300, true)]);
}

/// Answers with how the header of the call was read.
fn header<'a>(_: &mut Vec<Loan>, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
    let (mut reader, mut room) = (call.reader(), HeaderRoom::new());
    let words = match reader.call_header(&mut room) {
        Ok(CallHeader { program, version, procedure, credentials, .. }) => {
            assert_eq!(reader.u32(), Ok(0xa26), "it ends where the arguments begin");
            let protection = match Protection::of(&credentials) {
                Protection::None => 1,
                Protection::Integrity => 2,
                Protection::Privacy => 3,
            };
            [program, version, procedure, credentials.flavor(), protection]
        }
        Err(HeaderError::RpcVersion { given }) => [given, 0, 0, 0, 100],
        Err(HeaderError::Credentials(DecodeError::TooMany { count, .. })) => [count, 0, 0, 0, 101],
        Err(HeaderError::Credentials(_)) => [0, 0, 0, 0, 102],
        Err(other) => panic!("{other}"),
    };
    for word in words {
        reply.payload().put_u32(word);
    }
    reply.send()
}

#[test]
fn a_header_states_the_procedure_and_its_protection() {
    let mut pair = Pair::new(header);
    let mut read = |rpc: u32, flavor: u32, body: &[u32], stated: u32| -> [u32; 5] {
        let mut call = pair.begin();
        for word in [rpc, 100_003, 3, 7, flavor, stated] {
            call.payload().put_u32(word);
        }
        for word in body {
            call.payload().put_u32(*word);
        }
        for word in [0, 0, 0xa26] {
            call.payload().put_u32(word);
        }
        call.submit().expect("a call");
        pair.finish(|reply| {
            let mut reader = reply.expect("an answer").reader();
            [(); 5].map(|()| reader.u32().expect("a word"))
        })
    };
    assert_eq!(read(2, 0, &[], 0), [100_003, 3, 7, 0, 1], "AUTH_NONE");
    assert_eq!(read(2, 1, &[1, 2, 3], 12), [100_003, 3, 7, 1, 1], "AUTH_SYS");
    // A body that ends within a word is padded.
    assert_eq!(read(2, 1, &[1, 2, 3], 9), [100_003, 3, 7, 1, 1]);
    assert_eq!(read(2, 1, &[0; 100], 400), [100_003, 3, 7, 1, 1], "the longest");
    for (service, protection) in [(1, 1), (2, 2), (3, 3), (4, 3), (0, 3)] {
        let body = [1, 0, 55, service, 0];
        assert_eq!(read(2, 6, &body, 20), [100_003, 3, 7, 6, protection], "service {service}");
    }
    assert_eq!(read(2, 6, &[1, 0, 55], 12), [100_003, 3, 7, 6, 3], "cut off: nothing is placed");
    assert_eq!(read(3, 0, &[], 0), [3, 0, 0, 0, 100], "another RPC");
    assert_eq!(read(2, 1, &[0; 101], 401), [401, 0, 0, 0, 101], "longer than there can be");
    assert_eq!(read(2, 1, &[0; 3], 300), [0, 0, 0, 0, 102], "cut off");
}

/// An operation of a generated COMPOUND.
#[derive(Debug, Clone, Copy)]
enum Operation {
    /// Reads so many bytes, wanted apart from `len_min` on; `None` fails.
    Read { len: Option<u32>, len_min: u32 },
    /// Writes so many bytes.
    Write { len: u32 },
    /// Something without data.
    Other,
}

const OTHER: u32 = 9;
const FAILS: u32 = u32::MAX;

impl Operation {
    fn any(random: &mut Random) -> Operation {
        let len = |random: &mut Random| match random.below(4) {
            0 => random.below(9),
            1 => 4096 - 4 + random.below(9),
            _ => random.below(30_000),
        };
        match random.below(5) {
            0 => Operation::Read { len: None, len_min: 0 },
            1 | 2 => {
                let len_min = if random.below(2) == 0 { 0 } else { random.below(20_000) };
                Operation::Read { len: Some(len(random)), len_min }
            }
            3 => Operation::Write { len: len(random) },
            _ => Operation::Other,
        }
    }
}

/// The byte of an operation at a place of its data.
fn byte(operation: usize, at: usize) -> u8 {
    (31 * operation + 7 * at + at / 251) as u8
}

fn is_of(operation: usize, data: &rpcrdma::ulb::Data<'_>) -> bool {
    let expected = (0..data.len() as usize).map(|at| byte(operation, at));
    data.slices().flatten().copied().eq(expected)
}

/// Does what a generated COMPOUND says, and returns of each WRITE whether its data were placed.
fn generated<'a>(loans: &mut Vec<Loan>, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
    let mut reader = call.reader();
    let (count, protection) = (reader.u32(), reader.u32());
    let protection = if protection == Ok(0) { Protection::None } else { Protection::Privacy };
    let bound = nfs4::BINDING.bind(nfs4::COMPOUND, protection).expect("it exists");
    let mut arguments = bound.arguments(&call, reader);
    let mut reply = bound.reply(reply);
    let mut read = || -> Result<(), ItemError> {
        for index in 0..count.unwrap_or_default() as usize {
            let number = arguments.clone().reader().u32()?;
            let origin = arguments.operation(number);
            arguments.reader().u32()?;
            reply.operation(number, origin);
            match number {
                nfs4::OP_READ => {
                    let len = arguments.reader().u32()?;
                    reply.payload().put_bool(len != FAILS);
                    if len != FAILS {
                        let mut loan = loans.pop().expect("as many as operations");
                        loan.truncate(len as usize);
                        loan.iter_mut().enumerate().for_each(|(at, to)| *to = byte(index, at));
                        reply.result(loan).expect("the data of a READ");
                    }
                }
                nfs4::OP_WRITE => {
                    let data = arguments.data()?;
                    assert!(is_of(index, &data), "the data of operation {index}");
                    reply.payload().put_bool(data.placed_index().is_some());
                }
                _ => reply.payload().put_u32(number),
            }
        }
        arguments.end()
    };
    match read() {
        Ok(()) => reply.send(),
        Err(_) => reply.refuse(),
    }
}

/// Calls a generated COMPOUND and checks everything that comes of it. `places` says whether all
/// that may be placed is; otherwise it depends on how much fits in line.
fn run_generated(pair: &mut Pair, seed: u64, places: bool) {
    let mut random = Random(seed);
    let operations: Vec<Operation> =
        (0..1 + random.below(6)).map(|_| Operation::any(&mut random)).collect();
    let is_sealed = random.below(4) == 0;
    let protection = if is_sealed { Protection::Integrity } else { Protection::None };
    let bound = nfs4::BINDING.bind(nfs4::COMPOUND, protection).expect("it exists");
    let is_write = |operation: &&Operation| matches!(operation, Operation::Write { .. });
    let mut buffers: Vec<Loan> =
        operations.iter().filter(is_write).map(|_| pair.buffer(&[0; 32_768])).collect();
    let mut call = bound.call(pair.begin());
    call.payload().put_u32(operations.len() as u32);
    call.payload().put_bool(is_sealed);
    for (index, operation) in operations.iter().enumerate() {
        match *operation {
            Operation::Read { len, len_min } => {
                call.operation(nfs4::OP_READ);
                call.payload().put_u32(nfs4::OP_READ);
                call.payload().put_u32(len.unwrap_or(FAILS));
                call.result(Want { len_min, len_max: 32_768 }).expect("the data of a READ");
            }
            Operation::Write { len } => {
                call.operation(nfs4::OP_WRITE);
                call.payload().put_u32(nfs4::OP_WRITE);
                let mut loan = buffers.pop().expect("one for each WRITE");
                loan.truncate(len as usize);
                loan.iter_mut().enumerate().for_each(|(at, to)| *to = byte(index, at));
                call.argument(loan).expect("the data of a WRITE");
            }
            Operation::Other => {
                call.operation(OTHER);
                call.payload().put_u32(OTHER);
            }
        }
    }
    call.asks(8 * operations.len() as u32);
    call.submit().unwrap_or_else(|error| panic!("seed {seed}: {error}: {operations:?}"));
    pair.finish(|reply| {
        let reply = reply.unwrap_or_else(|error| panic!("seed {seed}: {error}: {operations:?}"));
        let mut results = bound.results(reply);
        for (index, operation) in operations.iter().enumerate() {
            match *operation {
                Operation::Read { len, len_min } => {
                    results.operation(nfs4::OP_READ);
                    let is_good = results.reader().u32();
                    assert_eq!(is_good, Ok(len.is_some().into()), "seed {seed}");
                    let Some(len) = len else { continue };
                    let data = results.data().expect("the data of a READ");
                    assert!(data.len() == len && is_of(index, &data), "seed {seed}: {index}");
                    let may_be = len > 0 && !is_sealed;
                    let is_placed = data.placed_index().is_some();
                    assert!(may_be || !is_placed, "seed {seed}: {index}");
                    assert!(!places || is_placed == (may_be && len >= len_min), "seed {seed}");
                }
                Operation::Write { len } => {
                    let may_be = len > 0 && !is_sealed;
                    let is_placed = results.reader().u32().expect("a word") == 1;
                    assert!(may_be || !is_placed, "seed {seed}: {index}");
                    assert!(!places || is_placed == may_be, "seed {seed}: {index}");
                }
                Operation::Other => assert_eq!(results.reader().u32(), Ok(OTHER), "seed {seed}"),
            }
        }
        results.end().expect("all items were met");
    });
}

#[test]
fn any_list_of_operations_matches_the_wants_of_each() {
    let mut pair = Pair::new(generated);
    for seed in 0..300 {
        run_generated(&mut pair, seed, true);
    }
}

#[test]
fn any_list_of_operations_travels_by_chunks() {
    for (version, chunks) in [("one", 1), ("one", 8), ("two", 1), ("two", 8)] {
        let mut pair = Pair::configured(generated, |raw| {
            raw.protocol.version = version.into();
            raw.features.placement = false;
            raw.features.continuation = false;
            raw.receive.placement.count = 0;
            raw.explicit.buffers.count = 72;
            raw.interop.read_chunks_max = chunks;
            raw.interop.write_chunks_max = chunks;
            raw.interop.long_call_with_chunks = chunks > 1;
            raw.interop.write_with_reply = chunks > 1;
        });
        for seed in 0..150 {
            run_generated(&mut pair, seed, false);
        }
        let served = pair.served();
        assert!(served.rdma_reads > 0 && served.rdma_writes > 0, "{version}");
        assert!(served.bytes_read > served.rdma_reads && served.bytes_written > served.rdma_writes);
    }
}
