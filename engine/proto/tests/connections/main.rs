//! The protocol by its public interface: one program, because linking takes longer than
//! running.

mod chunk_offers;
mod chunk_rules;
mod chunks;
mod continued;
mod conversation;
mod explicit;
mod floods;
mod hostile;
mod one_chunk;
mod pair;
mod properties;
mod rooms;
mod roundtrip;
mod rules;
mod single_item;
mod versions;
