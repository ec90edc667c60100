//! An echo server and its client: two shards on the software fabric, in one process.

use std::ops::ControlFlow;

use rpcrdma_engine::{Answer, Call, Client, Clock, Config, Engine, Fabric, Handler, Reply};

/// Answers every call with the bytes behind its transaction id and message type.
struct Echo;

impl Handler for Echo {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let mut skip = 8;
        for slice in call.payload() {
            let bytes = slice.get(skip..).unwrap_or_default();
            skip -= slice.len() - bytes.len();
            reply.payload().put_fixed(bytes);
        }
        reply.send()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut engine = Engine::new(Fabric::new(), Config::profile("laptop")?)?;
    engine.start(|_| Echo)?;
    let address = engine.listen("127.0.0.1:0".parse()?)?;
    let mut client: Client<Fabric> = engine.client()?;
    let peer = client.connect(address)?;
    let clock = Clock::new();

    const CALLS: u64 = 100_000;
    let start = clock.now();
    for cookie in 0..CALLS {
        let mut call = client.call(peer, cookie)?;
        call.payload().put_u64(cookie);
        call.payload().put_opaque(b"hello, peer");
        call.submit()?;
        let mut outcome = ControlFlow::Continue(());
        while outcome.is_continue() {
            client.poll(clock.now(), |done| {
                assert_eq!(done.cookie(), cookie);
                let reply = done.result().expect("the echo answers");
                let echoed = reply.reader().u64().expect("eight bytes");
                assert_eq!(echoed, cookie);
                outcome = ControlFlow::Break(());
            });
        }
    }
    let each = (clock.now() - start) / CALLS;
    println!("{CALLS} calls, one at a time: {each} ns each");
    println!("{:?}", engine.config().engine().idle);
    Ok(())
}
