//! NFS version 3 through its binding, with every form of data movement: the results of READ,
//! READLINK and WRITE do not depend on it.

use rpcrdma::onc::{AcceptStatus, CallHeader, HeaderRoom, ReplyHeader};
use rpcrdma::ulb::{BindError, BoundCall, Items, Protection, nfs3};
use rpcrdma::{Answer, Call, Loan, Reply, Sink, Want};
use rpcrdma_config::{Config, Raw};
use rpcrdma_suite::pair::Pair;

/// How data are wanted that may be placed.
#[derive(Debug, Clone, Copy)]
enum Ask {
    /// Somewhere outside of the stream.
    Apart,
    /// In a buffer of the program, by RDMA Write.
    Into,
    /// As the server likes.
    Either,
    /// Up to so many bytes by Send, more by RDMA Write.
    BySize(u32),
}

/// What was seen of the ways that data took.
#[derive(Debug, Default)]
struct Seen {
    /// WRITEs whose data did not come in the stream.
    placed_arguments: u32,
    /// READs and READLINKs whose data did not.
    placed_results: u64,
    /// Sinks that came back.
    sinks: u64,
    /// Requests for explicit RDMA that the server has made.
    reads: u64,
    writes: u64,
}

/// A file that holds the pattern, and a link: each WRITE is compared with what is there.
fn serve<'a>(loans: &mut Vec<Loan>, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
    let (mut reader, mut room) = (call.reader(), HeaderRoom::new());
    let header = reader.call_header(&mut room).expect("a call of RPC");
    assert_eq!((header.program, header.version), (nfs3::PROGRAM, nfs3::BINDING.version));
    let protection = Protection::of(&header.credentials);
    let bound = nfs3::BINDING.bind(header.procedure, protection).expect("it exists");
    let mut arguments = bound.arguments(&call, reader);
    if header.procedure != nfs3::NULL {
        let mut handle = [0; HANDLE.len()];
        assert_eq!(arguments.reader().u32(), Ok(HANDLE.len() as u32));
        arguments.reader().fixed_into(&mut handle).expect("a handle");
        assert_eq!(handle, *HANDLE);
    }
    let (words, data) = execute(header.procedure, &mut arguments, loans);
    arguments.end().expect("nothing else was placed");
    let mut reply = bound.reply(reply);
    reply.payload().put_fixed(&ReplyHeader::SUCCESS);
    words.iter().for_each(|word| reply.payload().put_u32(*word));
    data.map_or(Ok(()), |data| reply.result(data)).expect("the results have such an item");
    reply.send()
}

/// The words of the results, and the item behind them.
fn execute(
    procedure: u32,
    arguments: &mut Items<'_>,
    loans: &mut Vec<Loan>,
) -> (Vec<u32>, Option<Loan>) {
    let mut filled = |bytes: &[u8]| {
        let mut loan = loans.pop().expect("a buffer");
        loan.truncate(bytes.len());
        loan.copy_from_slice(bytes);
        loan
    };
    match procedure {
        nfs3::NULL => (Vec::new(), None),
        nfs3::GETATTR => {
            let mut attributes = vec![0; 1 + 21];
            attributes[7] = SIZE;
            (attributes, None)
        }
        nfs3::READLINK => (vec![0, 0], Some(filled(LINK))),
        nfs3::READ => {
            let offset = arguments.reader().u64().expect("an offset") as u32;
            let count = arguments.reader().u32().expect("a count").min(SIZE - offset);
            let is_end = offset + count == SIZE;
            let data = filled(&pattern(offset, count));
            (vec![0, 0, count, is_end.into()], Some(data))
        }
        nfs3::WRITE => {
            let offset = arguments.reader().u64().expect("an offset") as u32;
            let count = arguments.reader().u32().expect("a count");
            arguments.reader().u32().expect("how stable");
            let data = arguments.data().expect("data");
            let bytes = data.to_vec();
            assert!(bytes == pattern(offset, count), "{count} bytes at {offset} as they were sent");
            // In the place of a verifier: whether they were placed.
            (vec![0, 0, 0, count, FILE_SYNC, 0, data.placed_index().is_some().into()], None)
        }
        _ => panic!("procedure {procedure} is not called"),
    }
}

/// A call from its arguments to its results, and whether a sink came back.
fn exchange<T>(
    pair: &mut Pair,
    procedure: u32,
    arguments: impl FnOnce(&mut BoundCall<'_>) -> Result<(), BindError>,
    results: impl FnOnce(&mut Items<'_>) -> T,
) -> (T, bool) {
    let bound = nfs3::BINDING.bind(procedure, Protection::None).expect("it exists");
    let mut call = bound.call(pair.begin());
    let version = nfs3::BINDING.version;
    call.payload().put_fixed(&CallHeader::plain(nfs3::PROGRAM, version, procedure));
    if procedure != nfs3::NULL {
        call.payload().put_opaque(HANDLE);
    }
    arguments(&mut call).expect("the procedure has such an item");
    call.submit().expect("there is a way");
    pair.complete(|done| {
        let mut items = bound.results(done.result().expect("an answer"));
        let mut room = HeaderRoom::new();
        let header = items.reader().reply_header(&mut room);
        assert_eq!(header, Ok(ReplyHeader::accepted(AcceptStatus::Success)));
        let value = results(&mut items);
        items.end().expect("nothing was placed that may not be");
        (value, done.take_sink(0).is_some())
    })
}

/// A call whose result may be placed.
struct Fetch<'a> {
    procedure: u32,
    /// The arguments behind the handle.
    words: &'a [u32],
    ask: Ask,
    want: Want,
}

fn fetch(pair: &mut Pair, seen: &mut Seen, call: &Fetch<'_>) -> Vec<u8> {
    let Fetch { procedure, words, ask, want } = *call;
    let sink: Sink = pair.buffer(&vec![0; want.len_max as usize]).into();
    let arguments = |call: &mut BoundCall<'_>| {
        words.iter().for_each(|word| call.payload().put_u32(*word));
        match ask {
            Ask::Apart => call.result(want),
            Ask::Into => call.result_into(want, sink),
            Ask::Either => call.result_either(want, sink),
            Ask::BySize(sent_max) => call.result_by_size(want, sent_max, sink),
        }
    };
    let ((data, is_placed), has_sink) = exchange(pair, procedure, arguments, |items| {
        skip(items, if procedure == nfs3::READ { 4 } else { 2 });
        let data = items.data().expect("an item");
        (data.to_vec(), data.placed_index().is_some())
    });
    seen.placed_results += u64::from(is_placed);
    seen.sinks += u64::from(has_sink);
    data
}

/// Writes a file in blocks, reads it back and compares.
fn show(lines: &str, ask: Ask) -> Seen {
    const BLOCK: u32 = 40_000;
    let change = |raw: &mut Raw| {
        let overlay = Config::parse(lines).unwrap_or_else(|error| panic!("{lines}: {error}"));
        *raw = overlay.raw().clone();
        raw.connections.max = 1;
    };
    let mut pair = Pair::configured(serve, change);
    let mut seen = Seen::default();
    let pair = &mut pair;
    exchange(pair, nfs3::NULL, |_| Ok(()), |_| ());
    for offset in (0..SIZE).step_by(BLOCK as usize) {
        let buffer = pair.buffer(&pattern(offset, BLOCK));
        let arguments = |call: &mut BoundCall<'_>| {
            call.payload().put_u64(offset.into());
            call.payload().put_u32(BLOCK);
            call.payload().put_u32(FILE_SYNC);
            call.argument(buffer)
        };
        let ([written, placed], _) = exchange(pair, nfs3::WRITE, arguments, |items| {
            skip(items, 3);
            let written = items.reader().u32().expect("a count");
            skip(items, 2);
            [written, items.reader().u32().expect("a verifier")]
        });
        assert_eq!(written, BLOCK, "the server has room for it");
        seen.placed_arguments += placed;
    }
    let (size, _) = exchange(
        pair,
        nfs3::GETATTR,
        |_| Ok(()),
        |items| {
            skip(items, 1 + 5);
            let size = items.reader().u64().expect("a size");
            skip(items, 14);
            size
        },
    );
    assert_eq!(size, 200_000);
    let mut read = |offset| {
        let (words, want) = ([0, offset, BLOCK], Want { len_min: 0, len_max: BLOCK });
        fetch(pair, &mut seen, &Fetch { procedure: nfs3::READ, words: &words, ask, want })
    };
    for offset in (0..SIZE).step_by(BLOCK as usize) {
        assert!(
            read(offset) == pattern(offset, BLOCK),
            "the block at {offset} is as it was written"
        );
    }
    // Behind the end there is nothing: a result of no bytes.
    assert_eq!(read(SIZE), b"");
    // A path of more than a few bytes may come apart from the message.
    let want = Want { len_min: 64, len_max: 1024 };
    let readlink = Fetch { procedure: nfs3::READLINK, words: &[], ask, want };
    assert_eq!(fetch(pair, &mut seen, &readlink), LINK);
    let served = pair.served();
    Seen { reads: served.rdma_reads, writes: served.rdma_writes, ..seen }
}

fn skip(items: &mut Items<'_>, words: usize) {
    items.reader().skip(4 * words).expect("so many words");
}

fn pattern(offset: u32, len: u32) -> Vec<u8> {
    (offset..offset + len).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

const HANDLE: &[u8; 12] = b"the one file";
const LINK: &[u8] = b"/export/target";
const SIZE: u32 = 200_000;
/// `stable_how`
const FILE_SYNC: u32 = 2;

#[test]
fn data_are_placed_by_send_where_both_ends_can() {
    let seen = show("[explicit]\nenabled = false", Ask::Apart);
    // Five blocks each way; the path is shorter than wanted, and the read behind the end is empty.
    assert_eq!((seen.placed_arguments, seen.placed_results), (5, 5));
}

#[test]
fn data_travel_in_the_stream_where_nothing_can_be_placed() {
    let seen = show(
        "[explicit]\nenabled = false\n[features]\nplacement = false\n\
         [receive]\ninline = \"64KiB\"\nplacement = { count = 0 }\n",
        Ask::Apart,
    );
    assert_eq!((seen.placed_arguments, seen.placed_results), (0, 0));
}

#[test]
fn data_are_continued_where_one_buffer_does_not_hold_them() {
    let seen = show(
        "[explicit]\nenabled = false\n\
         [receive]\nplacement = { count = 1, length = \"16KiB\" }\n",
        Ask::Apart,
    );
    assert_eq!((seen.placed_arguments, seen.placed_results), (5, 5));
}

/// Base messages with chunks: 40 000 bytes fit no message in line.
const VERSION_ONE: &str = "[protocol]\nversion = \"one\"\n";
const BASE_OF_TWO: &str = "[protocol]\nversion = \"two\"\n\
     [features]\nplacement = false\ncontinuation = false\n\
     [receive]\ninline = \"8KiB\"\nplacement = { count = 0 }\n";
/// The extension, with nothing that data could be placed in by Send.
const NOT_BY_SEND: &str = "[receive]\ninline = \"8KiB\"\nplacement = { count = 0 }\n";

#[test]
fn data_are_read_and_written_by_chunks_in_both_versions() {
    for lines in [VERSION_ONE, BASE_OF_TWO] {
        for ask in [Ask::Apart, Ask::Into, Ask::Either, Ask::BySize(20_000), Ask::BySize(40_000)] {
            let seen = show(lines, ask);
            assert_eq!((seen.placed_arguments, seen.reads), (5, 5), "{ask:?}: {lines}");
            // A Write chunk states no least length: the path goes where it is offered one.
            let results = if matches!(ask, Ask::Into) { 6 } else { 5 };
            let placed = (seen.placed_results, seen.writes);
            assert_eq!(placed, (results, results), "{ask:?}: {lines}");
            let has_sinks = !matches!(ask, Ask::Apart);
            assert_eq!(seen.sinks >= 5, has_sinks, "{ask:?}: {lines}");
        }
    }
}

#[test]
fn data_are_read_and_written_where_they_cannot_be_placed_by_send() {
    for ask in [Ask::Apart, Ask::Into, Ask::Either, Ask::BySize(20_000), Ask::BySize(40_000)] {
        let seen = show(NOT_BY_SEND, ask);
        assert_eq!((seen.placed_arguments, seen.reads), (5, 5), "{ask:?}");
        // A result that has no sink comes in the stream, by continuation.
        let results = if matches!(ask, Ask::Apart) { 0 } else { 5 };
        assert_eq!((seen.placed_results, seen.writes), (results, results), "{ask:?}");
    }
}

#[test]
fn results_are_written_to_sinks_if_requested_by_the_extension() {
    for (ask, writes) in [
        (Ask::Apart, 0),
        (Ask::Into, 5),
        (Ask::Either, 0),
        (Ask::BySize(39_999), 5),
        (Ask::BySize(40_000), 0),
    ] {
        let seen = show("", ask);
        assert_eq!((seen.placed_arguments, seen.reads), (5, 0), "{ask:?}");
        // The path is shorter than wanted, and the read behind the end has nothing.
        assert_eq!((seen.placed_results, seen.writes), (5, writes), "{ask:?}");
        assert_eq!(seen.sinks > 0, !matches!(ask, Ask::Apart), "{ask:?}");
    }
}
