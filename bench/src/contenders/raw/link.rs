//! A connection between two sets of queues of one provider.

use std::time::{Duration, Instant};

use rpcrdma::Address;
use rpcrdma::provider::{CmEvent, ConnParam, ConnectionManager, Endpoint, Provider, Queues, Waker};

use super::end::WHO;
use crate::error::BenchError;

pub(super) struct Link<Qp> {
    pub client: Qp,
    pub server: Qp,
}

/// Connects two sets of queues and attaches both queue pairs.
pub(super) fn connect<P: Provider>(
    provider: &P,
    at: Address,
    client: &mut P::Queues,
    server: &mut P::Queues,
) -> Result<Link<<P::Queues as Queues>::Qp>, BenchError> {
    let mut listener = provider.open_cm()?;
    let mut caller = provider.open_cm()?;
    let address = listener.listen(at)?;
    let param = ConnParam { private: &[], rnr_retry: RETRY_WITHOUT_END, send_timeout: None };
    caller.connect(address, &client.handle(), &param)?;

    let deadline = Instant::now() + PATIENCE;
    let (mut called, mut calling) = (None, None);
    while called.is_none() || calling.is_none() {
        called = called.or(accepted(&mut listener, server, &param)?);
        calling = calling.or(connected(&mut caller)?);
        if Instant::now() > deadline {
            return Err(BenchError::device(WHO, "no connection in time"));
        }
    }
    let endpoint = "the loop ends with both";
    Ok(Link {
        client: client.attach(calling.expect(endpoint))?.qp,
        server: server.attach(called.expect(endpoint))?.qp,
    })
}

fn accepted<C: ConnectionManager>(
    listener: &mut C,
    on: &C::Queues,
    param: &ConnParam<'_>,
) -> Result<Option<Endpoint<C>>, BenchError> {
    match listener.next(&Waker::new().map_err(waker)?, GLANCE) {
        Some(CmEvent::Request { request, .. }) => {
            Ok(Some(listener.accept(request, &on.handle(), param)?))
        }
        _ => Ok(None),
    }
}

fn connected<C: ConnectionManager>(caller: &mut C) -> Result<Option<Endpoint<C>>, BenchError> {
    match caller.next(&Waker::new().map_err(waker)?, GLANCE) {
        Some(CmEvent::Connected { endpoint, .. }) => Ok(Some(endpoint)),
        Some(CmEvent::Refused { reason, .. }) => Err(BenchError::device(WHO, reason)),
        _ => Ok(None),
    }
}

fn waker(error: std::io::Error) -> BenchError {
    BenchError::device(WHO, format!("no file descriptor for a waker: {error}"))
}

const GLANCE: Duration = Duration::from_millis(1);
/// A device that has not connected by then never will.
const PATIENCE: Duration = Duration::from_secs(5);
/// `rnr_retry` of a connection that waits for a Receive without end.
const RETRY_WITHOUT_END: u8 = 7;
