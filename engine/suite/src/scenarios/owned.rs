//! Checks that each slot and message of a shard has one owner.

use rpcrdma::shard::audit::Audit;

/// Checks that each slot and message of a shard has one owner.
///
/// # Panics
/// If one has none, or two.
pub fn check_owned(audit: &Audit) {
    for held in [audit.send, audit.headers, audit.messages] {
        assert_eq!(held.total, held.free + held.held, "{held:?}");
    }
}
