//! The descriptions of the counters as Prometheus sees them.

use crate::stats::Snapshot;

/// The description of a counter, with the names of other counters as Prometheus sees them.
pub(super) fn of_counter(help: &str) -> String {
    let counters = Snapshot::default();
    let named = help.trim().split('`').enumerate().map(|(at, text)| {
        let field =
            counters.iter().map(|(field, _)| field).find(|field| at % 2 == 1 && *field == text);
        field.map_or(text.to_owned(), |field| format!("rpcrdma_{field}_total"))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_name_other_counters_as_they_are_exported() {
        let help = " Calls sent: open calls plus `calls_completed`, not `other`.";
        let expected = "Calls sent: open calls plus rpcrdma_calls_completed_total, not other.";
        assert_eq!(of_counter(help), expected);
    }
}
