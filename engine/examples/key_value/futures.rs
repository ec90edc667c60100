//! A client on tokio: tasks that store values and read them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rpcrdma::future::{AsyncClient, AsyncOptions, Request, Response};
use rpcrdma::{Address, Clock, Engine, OwnedCall, Provider, Resend, Session, SessionOptions, Want};
use tokio::task::JoinSet;

use crate::protocol::{GET, PUT, VALUE_MAX, begin, read_value, value};
use crate::{CALL_TIME, Outcome, say};

/// Runs tasks that make `calls` altogether, or fewer if they shall stop.
pub fn run<P: Provider>(
    engine: &Engine<P>,
    at: Address,
    calls: u64,
    stopped: &Arc<AtomicBool>,
) -> Outcome<()> {
    let session = Session::new(engine.client()?, [at], &SessionOptions::default())?;
    let client = AsyncClient::spawn(session, &AsyncOptions::default())?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            // Not the keys of the other client.
            let (key, stopped) = (u64::MAX - task, stopped.clone());
            tasks.spawn(talk(client.clone(), key, calls.div_ceil(2 * TASKS), stopped));
        }
        let mut verified = 0;
        while let Some(count) = tasks.join_next().await {
            verified += count??;
        }
        client.close().await;
        say(format_args!("tokio: stopped: {verified} values verified"));
        Ok(())
    })
}

/// Stores values at a key and reads them back. Returns how many were as stored.
async fn talk(
    client: AsyncClient,
    key: u64,
    rounds: u64,
    stopped: Arc<AtomicBool>,
) -> Outcome<u64> {
    let mut verified = 0;
    while verified < rounds && !stopped.load(Ordering::Relaxed) {
        let stored = value(key, verified);
        let mut data = client.buffer().await?;
        data.truncate(stored.len());
        data.copy_from_slice(&stored);
        let mut put = OwnedCall::new();
        begin(&mut put, PUT, key);
        put.place(data);
        let stored_by = call(&client, put).await?.results()?.u64()?;

        let mut get = OwnedCall::new();
        begin(&mut get, GET, key);
        get.want(Want { len_min: 0, len_max: VALUE_MAX as u32 });
        let reply = call(&client, get).await?;
        let mut results = reply.results()?;
        let server = results.u64()?;
        let placed = reply.items().iter().flat_map(|item| &item.pieces).map(|piece| &piece[..]);
        match read_value(&mut results, placed)? {
            Some(got) if got == stored => verified += 1,
            None if server != stored_by => {} // the server has started anew
            _ => return Err(format!("key {key} has another value").into()),
        }
    }
    Ok(verified)
}

/// Makes a call that may be executed twice.
async fn call(client: &AsyncClient, mut call: OwnedCall) -> Outcome<Response> {
    call.deadline(Clock::new().now() + CALL_TIME.as_nanos() as u64);
    Ok(client.call(Request::from(call).resend(Resend::SameXid)).await?)
}

const TASKS: u64 = 8;
