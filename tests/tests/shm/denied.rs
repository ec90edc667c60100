//! Connections that the system does not permit: the error names the call and its error number.

use rpcrdma_engine::{Address, Config, ConnectError, Engine, RefuseCalls, SetupError, Shm};
use rpcrdma_tests::denied::Denied;

fn engine() -> Engine<Shm> {
    let mut raw = Config::default().raw().clone();
    raw.engine.provider = "shm".into();
    let config = Config::try_from(raw).expect("sound");
    Engine::new(Shm::from_config(&config).expect("a thread"), config).expect("an engine")
}

/// Why a client whose `call` fails with `errno` does not connect.
fn refusal(call: libc::c_long, errno: i32) -> ConnectError {
    let mut server = engine();
    server.start(|_| RefuseCalls).expect("a shard");
    let at = server.listen("shm:@".parse::<Address>().expect("an address")).expect("a name");
    // The threads of its engine inherit it.
    Denied { calls: &[call], errno }.run(|| {
        let engine = engine();
        let mut client = engine.client().expect("a client");
        match client.connect(at) {
            Err(SetupError::Connect { reason, .. }) => reason,
            outcome => panic!("{outcome:?}"),
        }
    })
}

#[test]
fn a_call_that_the_system_refuses_is_named_with_its_error() {
    for (number, call, errno) in [
        (libc::SYS_memfd_create, "memfd_create", libc::EPERM),
        // As where the limit of file sizes is exceeded.
        (libc::SYS_ftruncate, "ftruncate", libc::EFBIG),
        // The file of the socket is not writable for this user, say.
        (libc::SYS_connect, "connect", libc::EACCES),
        (libc::SYS_connect, "connect", libc::EPERM),
        (libc::SYS_sendmsg, "sendmsg", libc::ETOOMANYREFS),
    ] {
        let refusal = refusal(number, errno);
        assert!(
            matches!(refusal, ConnectError::CallFailed { call: named, errno: given, .. }
                if (named, given) == (call, errno)),
            "{call}, {errno}: {refusal}"
        );
    }
}
