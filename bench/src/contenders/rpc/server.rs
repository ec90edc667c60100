//! The server: a handler for null, echo, read and write calls.

use arrayvec::ArrayVec;
use rpcrdma::message::bulk::{Bulk, PIECES_MAX};
use rpcrdma::{Answer, Call, Handler, Loan, Reply};
use rpcrdma_mempool::RegisteredBytes;

use super::message::{Arrived, CALL_WORDS, PREFIX_LEN, REPLY_HEADER, WHO, Way, procedure_of};
use crate::call::{CALL_HEADER_LEN, Load};
use crate::contenders::blocks::{Inspector, pattern};
use crate::error::BenchError;
use crate::values::{Op, Placement};

pub(super) struct Server {
    placement: Placement,
    request_data: usize,
    reply_data: usize,
    /// What is read, as a store would have it in memory.
    file: Box<[u8]>,
    /// The same in registered memory, to be sent without a copy.
    registered: Option<RegisteredBytes>,
    inspector: Inspector,
    answered: u64,
    failure: Option<String>,
}

impl Server {
    /// A server for such a load. Data are placed only from memory given to [`Server::serve_from`].
    pub fn new(load: &Load) -> Server {
        let len = load.shape.data_len();
        Server {
            placement: load.placement,
            request_data: load.shape.request_data,
            reply_data: load.shape.reply_data,
            file: pattern(len),
            registered: None,
            inspector: Inspector::new(len, load.touch),
            answered: 0,
            failure: None,
        }
    }

    pub fn serve_from(&mut self, bulk: Option<Loan>) -> Result<(), BenchError> {
        self.registered = Some(filled(bulk, &self.file)?);
        Ok(())
    }

    /// Changes the last byte of what is read first.
    #[cfg(test)]
    pub fn spoil_file(&mut self) {
        if let Some(byte) = self.file.get_mut(4095) {
            *byte ^= 1;
        }
    }

    pub fn failure(&mut self) -> Result<(), BenchError> {
        let number = self.answered;
        self.failure.take().map_or(Ok(()), |detail| {
            Err(BenchError::CallFailed { who: WHO, number, reason: format!("server: {detail}") })
        })
    }

    #[inline]
    fn answer(&mut self, call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<(), &'static str> {
        let arrived = Arrived::new(call);
        let header: [u8; CALL_WORDS * 4] =
            arrived.bytes_at(PREFIX_LEN).ok_or("a call without a whole header")?;
        let op = procedure_of(&header).ok_or("a call with another header")?;
        reply.payload().put_fixed(&REPLY_HEADER);
        match op {
            Op::Null => Ok(()),
            Op::Echo if call.placed().len() > 0 && self.echoes() => echo_placed(call, reply),
            Op::Echo => self.echo(arrived, reply),
            Op::Read => self.read(arrived, reply),
            Op::Write => self.write(arrived, reply),
        }
    }

    fn echoes(&self) -> bool {
        self.request_data == self.reply_data
    }

    #[inline]
    fn echo(&self, call: Arrived<'_, '_>, reply: &mut Reply<'_>) -> Result<(), &'static str> {
        let len = call.word_at(CALL_HEADER_LEN).ok_or("an echo without its length")?;
        if len != self.reply_data {
            // The client requests another length: the beginning of the file.
            return self.put_file(reply, 0, self.reply_data);
        }
        reply.payload().put_u32(len as u32);
        let echo = |bytes: &[u8]| reply.payload().put_fixed(bytes);
        call.data(CALL_HEADER_LEN + 4, len, echo).ok_or("an echo shorter than it says")?;
        Ok(())
    }

    #[inline]
    fn read(&self, call: Arrived<'_, '_>, reply: &mut Reply<'_>) -> Result<(), &'static str> {
        let arguments: [u8; 12] = call.bytes_at(CALL_HEADER_LEN).ok_or("a read cut short")?;
        let (offset, len) = range(&arguments);
        self.put_file(reply, offset, len)
    }

    /// Writes a part of the file as variable-length opaque data.
    #[inline]
    fn put_file(
        &self,
        reply: &mut Reply<'_>,
        offset: usize,
        len: usize,
    ) -> Result<(), &'static str> {
        match (&self.registered, self.placement) {
            (Some(bytes), placement) if placement.is_placed() => {
                let slice = bytes.slice(offset..offset + len).ok_or(BEYOND)?;
                reply.payload().place(slice);
            }
            _ => {
                let bytes = self.file.get(offset..offset + len).ok_or(BEYOND)?;
                reply.payload().put_opaque(bytes);
            }
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, call: Arrived<'_, '_>, reply: &mut Reply<'_>) -> Result<(), &'static str> {
        let arguments: [u8; 12] = call.bytes_at(CALL_HEADER_LEN).ok_or("a write cut short")?;
        let (offset, len) = range(&arguments);
        let inspection = self.inspector.begin(offset, len);
        let way = call.inspect(CALL_HEADER_LEN + 12, len, inspection);
        let way = way.ok_or("a write with wrong data")?;
        if way == Way::InLine && self.placement.is_placed() {
            return Err("a write whose data were not placed");
        }
        reply.payload().put_u32(len as u32);
        Ok(())
    }
}

impl Handler for Server {
    #[inline]
    fn on_call<'a>(&mut self, mut call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        self.answered += 1;
        if let Err(detail) = self.answer(&mut call, &mut reply) {
            self.failure.get_or_insert_with(|| detail.to_owned());
            return reply.refuse();
        }
        match reply.try_send() {
            Ok(answer) => answer,
            Err((reply, why)) => {
                self.failure.get_or_insert_with(|| why.to_string());
                reply.refuse()
            }
        }
    }
}

const BEYOND: &str = "a read beyond the end";

/// Sends the placed segments of a call back as they are, without a copy.
fn echo_placed(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<(), &'static str> {
    let pieces = call.placed().next().map_or(0, |item| item.segments().len());
    let mut loans: ArrayVec<Bulk, PIECES_MAX> = ArrayVec::new();
    for piece in 0..pieces {
        let loan = call.take(0, piece).map_err(|_| "a segment that cannot be taken")?;
        loans.try_push(loan.into()).map_err(|_| "too many segments")?;
    }
    reply.payload().place_pieces(loans);
    Ok(())
}

/// A registered buffer with these bytes in it, for good.
pub(super) fn filled(bulk: Option<Loan>, bytes: &[u8]) -> Result<RegisteredBytes, BenchError> {
    let mut loan =
        bulk.ok_or_else(|| BenchError::device(WHO, "no registered buffer: see [app] bulk"))?;
    let room = loan.get_mut(..bytes.len());
    let room = room.ok_or_else(|| {
        BenchError::device(WHO, "the registered buffers are too short: see [app] bulk")
    })?;
    room.copy_from_slice(bytes);
    Ok(RegisteredBytes::new(loan))
}

/// Offset and length of a read or a write.
#[inline]
fn range(arguments: &[u8; 12]) -> (usize, usize) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *arguments;
    let offset = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let len = u32::from_be_bytes([i, j, k, l]);
    // Beyond the end of any file, if it does not fit.
    (usize::try_from(offset).unwrap_or(usize::MAX / 2).min(usize::MAX / 2), len as usize)
}
