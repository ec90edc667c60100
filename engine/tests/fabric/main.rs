//! The tests of the engine on the software fabric, or without any device: one program, because linking
//! takes longer than running.

mod api;
mod configured;
mod deadlines;
mod device_events;
mod dropped_tickets;
mod endings;
mod exposure;
mod hold;
mod inspect;
mod posts;
mod profiles;
mod reach;
mod read_rights;
mod reading;
mod replies;
mod session_waits;
mod sessions;
mod sessions_disturbed;
mod sizes;
mod ulb;
mod ulb_tables;
mod ulb_ways;
mod xids;
