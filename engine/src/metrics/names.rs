//! The names of the counters as Prometheus sees them: what is counted, then what happened to it.

use crate::stats::Snapshot;

/// The name of a counter of [`Snapshot`], without the prefix `rpcrdma_` and the suffix `_total`.
pub(super) fn of_counter(field: &'static str) -> &'static str {
    let renamed = RENAMED.iter().find(|(from, _)| *from == field);
    renamed.map_or(field, |(_, to)| to)
}

/// The description of a counter, with the names of other counters as Prometheus sees them.
pub(super) fn in_help(help: &str) -> String {
    let counters = Snapshot::default();
    let named = help.trim().split('`').enumerate().map(|(at, text)| {
        let field =
            counters.iter().map(|(field, _)| field).find(|field| at % 2 == 1 && *field == text);
        field.map_or(text.to_owned(), |field| format!("rpcrdma_{}_total", of_counter(field)))
    });
    named.collect()
}

/// Counters whose name does not say enough outside of the engine.
const RENAMED: &[(&str, &str)] = &[
    ("received", "transmissions_received"),
    ("sent", "transmissions_sent"),
    ("sent_inline", "transmissions_sent_inline"),
    ("calls_in", "calls_received"),
    ("replies_out", "replies_sent"),
    ("refusals_out", "refusals_sent"),
    ("calls_out", "calls_sent"),
    ("calls_done", "calls_completed"),
    ("late_replies", "replies_late"),
    ("busy_credits", "calls_not_sent_credits"),
    ("busy_local", "calls_not_sent_local"),
    ("groups", "groups_completed"),
    ("reads", "rdma_reads"),
    ("writes", "rdma_writes"),
    ("exposed", "exposures"),
    ("taken", "segments_taken"),
    ("spares_out", "segments_not_taken"),
    ("ignored", "transmissions_ignored"),
    ("unreported", "violations_unreported"),
    ("reported", "errors_reported_by_peers"),
    ("connected", "connections_established"),
    ("version_one", "connections_version_one"),
    ("version_two", "connections_version_two"),
    ("closed", "connections_closed"),
    ("not_admitted", "connections_not_admitted"),
    ("late", "completions_late"),
    ("failed_completions", "completions_failed"),
    ("unasked", "completions_unasked"),
    ("leaked", "buffers_leaked"),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_counter_has_a_name_of_its_own_and_no_other_is_renamed() {
        let fields: Vec<&str> = Snapshot::default().iter().map(|(field, _)| field).collect();
        let names: HashSet<&str> = fields.iter().map(|field| of_counter(field)).collect();
        assert_eq!(names.len(), fields.len());
        let is_name = |name: &&str| name.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
        assert!(names.iter().all(is_name));
        for (field, _) in RENAMED {
            assert!(fields.contains(field), "{field} is no counter");
        }
    }

    #[test]
    fn descriptions_name_other_counters_as_they_are_exported() {
        let help = " Calls sent: open calls plus `calls_done`, not `other`.";
        let expected = "Calls sent: open calls plus rpcrdma_calls_completed_total, not other.";
        assert_eq!(in_help(help), expected);
    }
}
