//! Calls whose reply repeats their bytes.

use rpcrdma::{
    Answer, Call, CallRefused, Client, CloseReason, Completion, ConnectionId, Handler, Reply, Shm,
};

/// Answers calls, and counts ended connections.
#[derive(Debug, Default)]
pub struct Echo {
    /// Connections that have ended.
    pub ended: u32,
}

impl Handler for Echo {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let mut bytes = [0; LEN];
        call.reader().fixed_into(&mut bytes).expect("all calls have as many bytes");
        reply.payload().put_fixed(&bytes);
        reply.send()
    }

    fn on_close(&mut self, _: ConnectionId, _: CloseReason) {
        self.ended += 1;
    }
}

/// Makes a call.
///
/// # Errors
/// Why it was not made.
pub fn call(client: &mut Client<Shm>, to: ConnectionId, cookie: u64) -> Result<(), CallRefused> {
    let mut call = client.call(to, cookie)?;
    call.payload().put_fixed(&bytes(cookie));
    call.submit()
}

/// Checks a reply.
///
/// # Panics
/// If there is none, or it is not that of its call.
pub fn check(done: &Completion<'_>) {
    let mut came = [0; LEN];
    let reply = done.result().expect("a reply");
    reply.reader().fixed_into(&mut came).expect("all replies have as many bytes");
    assert_eq!(came, bytes(done.cookie()), "the reply repeats its call");
}

fn bytes(cookie: u64) -> [u8; LEN] {
    std::array::from_fn(|at| cookie.rotate_left(8 * at as u32) as u8 ^ at as u8)
}

/// Bytes of a call and of its reply.
const LEN: usize = 64;
