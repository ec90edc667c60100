//! Reading XDR from received messages, wherever their bytes were placed.

use rpcrdma::{Address, Answer, Call, Clock, Config, Engine, Fabric, Handler, ReadError, Reply};

/// Answers with what it has read, as it has read it.
struct Echo;

impl Handler for Echo {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let (mut reader, mut room) = (call.reader(), [0; LEN_MAX]);
        let Ok(bytes) = reader.opaque_into(&mut room) else { return reply.refuse() };
        assert_eq!(reader.u32(), Ok(BEHIND), "count, bytes and padding were read");
        reply.payload().put_opaque(bytes);
        reply.payload().put_u32(BEHIND);
        reply.send()
    }
}

const LEN_MAX: usize = 20_000;
const BEHIND: u32 = 100_000;

#[test]
fn opaque_data_is_read_as_written() {
    let config = Config::profile("laptop").expect("a profile");
    let mut engine = Engine::new(Fabric::new(), config).expect("an engine");
    engine.start(|_| Echo).expect("shards");
    let any: Address = "127.0.0.1:0".parse().expect("an address");
    let at = engine.listen(any).expect("a port");
    let mut client = engine.client().expect("a client");
    let peer = client.connect(at).expect("a connection");
    let clock = Clock::new();
    for len in [0, 1, 3, 4, 5, 100, 3_000, 9_000, LEN_MAX] {
        let sent: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        let mut call = client.call(peer, 0).expect("a call");
        call.payload().put_opaque(&sent);
        call.payload().put_u32(BEHIND);
        call.reply_payload_max(LEN_MAX as u32 + 64);
        call.submit().expect("it fits");
        let mut is_over = false;
        while !is_over {
            client.poll(clock.now(), |done| {
                let mut reader = done.result().expect("an answer").reader();
                let (mut short, mut room) = (reader.clone(), vec![0; len]);
                let back = reader.opaque_into(&mut room).expect("as many as allowed");
                assert!(back == sent, "{len} bytes");
                let mut cut = reader.clone();
                assert_eq!(reader.u32(), Ok(BEHIND));
                if let Some(max) = len.checked_sub(1) {
                    let refused = short.opaque_into(&mut room[..max]).map(|bytes| bytes.len());
                    assert_eq!(refused, Err(ReadError::TooLong { len, max }));
                }
                // A count that promises more than there is, and no count at all.
                let mut room = vec![0; BEHIND as usize];
                for reader in [&mut cut, &mut reader] {
                    let end = reader.opaque_into(&mut room);
                    assert!(matches!(end, Err(ReadError::End(_))));
                }
                is_over = true;
            });
        }
    }
}
