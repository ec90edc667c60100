//! The services: each has a number for every item.

use rpcrdma::{Answer, Call, Handler, Reply, Ticket};

/// What a service knows.
#[derive(Debug, Clone, Copy)]
pub enum Service {
    Prices,
    Stocks,
}

impl Service {
    pub fn handler(self) -> Counter {
        Counter { service: self, kept: Vec::new() }
    }
}

/// Answers with the number of an item.
pub struct Counter {
    service: Service,
    /// Calls that are never answered.
    kept: Vec<Ticket>,
}

impl Handler for Counter {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let Ok(item) = call.reader().u32() else { return reply.refuse() };
        let number = match self.service {
            Service::Prices => 2 * item,
            // Of this one it does not find out.
            Service::Stocks if item == 13 => {
                let (answer, ticket) = reply.defer();
                self.kept.push(ticket);
                return answer;
            }
            Service::Stocks => item % 7,
        };
        reply.payload().put_u32(number);
        reply.send()
    }
}
