//! Decoding RPC headers from received messages, also if they are divided into pieces.

use rpcrdma::onc::{AcceptStatus, Auth, CallHeader, HeaderRoom, ReplyHeader, RpcProgram};
use rpcrdma::{Answer, Call, Fabric, Loan, Reply};
use rpcrdma_tests::pair::Pair;
use rpcrdma_tests::raw_peer::{RawPeer, continuation, initial, properties};
use rpcrdma_xdr::{Body, Header, MsgType, Optional, RpcPrefix};

const CREDENTIALS: [u8; 399] = [7; 399];
const VERIFIER: [u8; 25] = [9; 25];

fn header() -> CallHeader<'static> {
    let credentials = Auth::new(1, &CREDENTIALS).expect("400 at most");
    let verifier = Auth::new(6, &VERIFIER).expect("400 at most");
    CallHeader { program: 1, version: 2, procedure: 3, credentials, verifier }
}

/// Answers with the word behind the header, if that is as it was made.
fn answer<'a>(_: &mut Vec<Loan>, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
    let (mut reader, mut room) = (call.reader(), HeaderRoom::new());
    let arguments = call.arguments(&RpcProgram { number: 1, version: 2, procedures: 4 });
    match reader.call_header(&mut room) {
        Ok(read) => {
            assert_eq!(read, header());
            let (procedure, mut arguments) = arguments.expect("a call to the program");
            assert_eq!((procedure, arguments.position()), (3, reader.position()));
            let argument = reader.u32().expect("the argument");
            assert_eq!(arguments.u32(), Ok(argument));
            reply.payload().put_fixed(&ReplyHeader::SUCCESS);
            reply.payload().put_u32(argument);
        }
        Err(why) => {
            assert_eq!(reader.position(), RpcPrefix::LEN, "nothing was taken");
            assert_eq!(arguments.expect_err("as the header"), why.reply());
            return reply.deny(&why.reply());
        }
    }
    reply.send()
}

/// The message of a call with an argument.
fn message(xid: u32, argument: u32) -> Vec<u8> {
    let prefix = RpcPrefix { xid, kind: MsgType::Call }.bytes();
    [&prefix[..], &header().bytes(), &argument.to_be_bytes()].concat()
}

/// A server that reads headers, and a peer that cuts them.
struct Scene {
    pair: Pair,
    raw: RawPeer<Fabric>,
}

impl Scene {
    fn new() -> Scene {
        let pair = Pair::configured(answer, |raw| raw.connections.max = 2);
        let mut raw = RawPeer::new(&pair.fabric);
        raw.connect(pair.at);
        let mut scene = Scene { pair, raw };
        scene.turns(|scene| scene.raw.is_connected().then_some(()));
        scene.raw.send(&properties(0x99, 16));
        scene.received();
        scene
    }

    fn turns<T>(&mut self, mut until: impl FnMut(&mut Scene) -> Option<T>) -> T {
        for _ in 0..1_000 {
            self.pair.step_server();
            self.raw.turn().expect("a connection");
            if let Some(value) = until(self) {
                return value;
            }
        }
        panic!("nothing came");
    }

    fn received(&mut self) -> Vec<u8> {
        self.turns(|scene| scene.raw.recv())
    }

    /// What is behind the prefix of the reply to a message that is cut at these places.
    fn answered(&mut self, xid: u32, message: &[u8], cuts: &[usize]) -> Vec<u8> {
        let ends = cuts.iter().copied().chain([message.len()]);
        let mut start = 0;
        for (end, number) in ends.zip(0..) {
            let part = &message[start..end];
            self.raw.send(&match number {
                0 => initial(xid, cuts.len() as u32 + 1, part),
                later => continuation(xid, later, part),
            });
            start = end;
        }
        let reply = self.received();
        let (header, len) = Header::decode(&reply).expect("a header");
        assert_eq!(header.xid, xid);
        let is_reply = matches!(header.body, Body::Msg(_) | Body::Optional(Optional::XmtResp(_)));
        assert!(is_reply, "{header:?}");
        reply[len + RpcPrefix::LEN..].to_vec()
    }
}

#[test]
fn a_call_header_is_read_wherever_it_is_cut() {
    let mut scene = Scene::new();
    let len = message(0, 0).len();
    let mut xid = 0u32;
    let mut call = |cuts: &[usize]| {
        xid += 1;
        let expected = [&ReplyHeader::SUCCESS[..], &xid.to_be_bytes()].concat();
        assert_eq!(scene.answered(xid, &message(xid, xid), cuts), expected, "{cuts:?}");
    };
    call(&[]);
    // A first part has the prefix. Every transmission but the last is whole words.
    for cut in (8..len).step_by(4) {
        call(&[cut]);
    }
    call(&[8, 12, 16, 20, 24, 28, 32, 36, 40, 44]);
}

#[test]
fn a_header_that_ends_too_early_is_answered_however_it_is_cut() {
    let mut scene = Scene::new();
    let whole = message(7, 0);
    let bad = |why| ReplyHeader::AuthError { why }.bytes().to_vec();
    let garbage = ReplyHeader::accepted(AcceptStatus::GarbageArguments).bytes().to_vec();
    let mut xid = 0u32;
    for (len, expected) in
        [(20, garbage), (32, bad(1)), (428, bad(1)), (432, bad(3)), (460, bad(3))]
    {
        for cuts in [&[][..], &[8], &[8, 16]] {
            xid += 1;
            let message = [&message(xid, 0)[..8], &whole[8..len]].concat();
            assert_eq!(scene.answered(xid, &message, cuts), expected, "{len}, {cuts:?}");
        }
    }
}
