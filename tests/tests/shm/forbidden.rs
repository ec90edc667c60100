//! System calls that a program may not make (seccomp): setting up says which one has failed, or
//! goes on without it. Nothing panics, and nothing waits for ever.

use std::io::Error;
use std::time::{Duration, Instant};

use libc::c_long;
use rpcrdma::{Address, Answer, Call, Clock, Config, Engine, Handler, Provider, Reply, SetupError};
use rpcrdma_config::Raw;
use rpcrdma_testing::denied::Denied;
use rpcrdma_tests::setup::{checked, small};

struct Server;

impl Handler for Server {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        reply.send()
    }
}

/// A call that is forbidden, the error that it returns, and how setting up ends then with each
/// provider.
struct Forbidden {
    call: c_long,
    errno: i32,
    shm: Expected,
    tcp: Expected,
}

#[derive(Debug, Clone, Copy)]
enum Expected {
    /// The server answers.
    Answer,
    /// An error with these words. Behind those that end with "failed" it has that of the call.
    Error(&'static str),
    /// An attempt to connect takes as long as it may.
    TimedOut,
}

fn config(provider: &str, connect_timeout: &str) -> Config {
    let mut raw: Raw = small();
    raw.engine.provider = provider.into();
    raw.engine.idle.policy = "block".into();
    raw.connections.connect_timeout = connect_timeout.into();
    raw.connections.stop_timeout = "100ms".into();
    checked(&raw)
}

/// Sets up a server and a client, which calls it. Returns whether the call is answered.
fn set_up<P: Provider>(device: P, config: Config, at: Address) -> Result<bool, SetupError> {
    let mut engine = Engine::new(device, config)?;
    let ended = (|| {
        engine.start(|_| Server)?;
        let at = engine.listen(at)?;
        let mut client = engine.client()?;
        let peer = client.connect(at)?;
        let Ok(mut call) = client.call(peer, 0) else { return Ok(false) };
        call.deadline(Clock::new().now() + ANSWER_TIME.as_nanos() as u64);
        let _ = call.submit();
        let (begun, mut answered) = (Instant::now(), None);
        while answered.is_none() && begun.elapsed() < ANSWER_TIME {
            client
                .poll_for(Duration::from_millis(20), |done| answered = Some(done.result().is_ok()));
        }
        Ok(answered == Some(true))
    })();
    assert!(engine.failures().is_empty(), "{:?}", engine.failures());
    ended
}

/// Tries it without each of the calls.
pub fn is_an_error_or_done_without<P: Provider>(
    kind: &str,
    at: &str,
    open: impl Fn(&Config) -> Result<P, SetupError> + Sync,
) {
    let at: Address = at.parse().expect("an address");
    for forbidden in CALLS {
        let Forbidden { call, errno, shm, tcp } = *forbidden;
        let expected = if kind == "shm" { shm } else { tcp };
        let (connect_timeout, words) = match expected {
            Expected::Answer => (LONG, None),
            Expected::Error(words) => (LONG, Some(words)),
            Expected::TimedOut => ("200ms", Some("the peer did not answer in time")),
        };
        let ended = Denied { calls: &[call], errno }.run(|| {
            let config = config(kind, connect_timeout);
            open(&config).and_then(|device| set_up(device, config, at))
        });
        let said = ended.as_ref().err().map(ToString::to_string);
        let is_expected = match (&said, words) {
            (Some(said), Some(words)) => {
                let error = Error::from_raw_os_error(errno).to_string();
                said.contains(words) && (!words.ends_with("failed") || said.contains(&error))
            }
            (None, None) => matches!(ended, Ok(true)),
            _ => false,
        };
        assert!(is_expected, "call {call}, {errno}: {ended:?}, expected: {expected:?}");
    }
}

const fn forbidden(call: c_long, shm: Expected, tcp: Expected) -> Forbidden {
    Forbidden { call, errno: libc::EPERM, shm, tcp }
}

const fn done_without(call: c_long) -> Forbidden {
    forbidden(call, Expected::Answer, Expected::Answer)
}

const fn fails(call: c_long, words: &'static str) -> Forbidden {
    forbidden(call, Expected::Error(words), Expected::Error(words))
}

const fn fails_in_shm(call: c_long, words: &'static str) -> Forbidden {
    forbidden(call, Expected::Error(words), Expected::Answer)
}

const fn fails_in_tcp(call: c_long, words: &'static str) -> Forbidden {
    forbidden(call, Expected::Answer, Expected::Error(words))
}

const fn fails_with(call: c_long, shm: &'static str, tcp: &'static str) -> Forbidden {
    forbidden(call, Expected::Error(shm), Expected::Error(tcp))
}

const fn times_out(call: c_long) -> Forbidden {
    forbidden(call, Expected::TimedOut, Expected::TimedOut)
}

/// The time for an attempt to connect that is to end without it.
const LONG: &str = "60s";
/// What the test takes for a hang.
const ANSWER_TIME: Duration = Duration::from_secs(60);
const NO_SOCKET: &str = "the process may not make a socket there";
const NO_PORT: &str = "the process may not listen on this port";
const UNFIT: &str = "the peer rejected the connection: the two sides differ in the size";
const REJECTED: &str = "the peer rejected the connection: no reason stated";
const CALLS: &[Forbidden] = &[
    done_without(libc::SYS_prlimit64),
    done_without(libc::SYS_sched_getaffinity),
    done_without(libc::SYS_sched_setaffinity),
    done_without(libc::SYS_sysinfo),
    done_without(libc::SYS_getcpu),
    done_without(libc::SYS_mbind),
    done_without(libc::SYS_mlock),
    done_without(libc::SYS_mlock2),
    fails(libc::SYS_madvise, "MADV_DONTFORK"),
    fails_in_shm(libc::SYS_memfd_create, "memfd_create failed"),
    // As where the limit of file sizes is exceeded.
    Forbidden { errno: libc::EFBIG, ..fails_in_shm(libc::SYS_ftruncate, "ftruncate failed") },
    fails_in_shm(libc::SYS_fcntl, "fcntl failed"),
    fails_in_shm(libc::SYS_fstat, UNFIT),
    fails_in_shm(libc::SYS_fstatfs, UNFIT),
    done_without(libc::SYS_statx),
    done_without(libc::SYS_newfstatat),
    done_without(libc::SYS_openat),
    done_without(libc::SYS_readlink),
    done_without(libc::SYS_getdents64),
    done_without(libc::SYS_read),
    fails(libc::SYS_eventfd2, "eventfd failed"),
    fails(libc::SYS_epoll_create1, "epoll_create1 failed"),
    fails(libc::SYS_epoll_ctl, "epoll_ctl failed"),
    done_without(libc::SYS_epoll_wait),
    times_out(libc::SYS_epoll_pwait),
    done_without(libc::SYS_epoll_pwait2),
    done_without(libc::SYS_ppoll),
    done_without(libc::SYS_poll),
    done_without(libc::SYS_clock_nanosleep),
    fails(libc::SYS_socket, "socket failed"),
    fails_with(libc::SYS_bind, NO_SOCKET, NO_PORT),
    fails(libc::SYS_listen, "listen failed"),
    fails(libc::SYS_connect, "connect failed"),
    // The file of the socket is not writable for this user, say.
    Forbidden { errno: libc::EACCES, ..fails(libc::SYS_connect, "connect failed") },
    times_out(libc::SYS_accept4),
    fails(libc::SYS_getsockname, "getsockname failed"),
    fails_in_tcp(libc::SYS_getpeername, "getpeername failed"),
    fails_with(libc::SYS_getsockopt, REJECTED, "getsockopt failed"),
    fails_in_tcp(libc::SYS_setsockopt, "setsockopt failed"),
    done_without(libc::SYS_shutdown),
    fails_in_tcp(libc::SYS_sendto, "send failed"),
    Forbidden { errno: libc::ETOOMANYREFS, ..fails_in_shm(libc::SYS_sendmsg, "sendmsg failed") },
    fails_with(libc::SYS_recvfrom, REJECTED, "recv failed"),
    fails_in_shm(libc::SYS_recvmsg, REJECTED),
    done_without(libc::SYS_getrandom),
    done_without(libc::SYS_geteuid),
    done_without(libc::SYS_getpid),
    done_without(libc::SYS_gettid),
    done_without(libc::SYS_uname),
    fails(libc::SYS_clone3, "pthread_create failed"),
];
