//! An HdrHistogram log, as the tools of HdrHistogram read it: every sample of every contender.
//!
//! One interval for each distribution, with its name as the tag. Values are whole round trips in
//! nanoseconds, the largest in the third column in milliseconds. An interval begins with the run
//! and is as long as its round trips one after the other.

use std::fmt::Write as _;

use super::report::{Distribution, Report};

pub fn text(report: &Report) -> String {
    let ended_s = report.environment.ended_ms as f64 / 1e3;
    let mut text = format!(
        "#[Logged with rpcrdma-bench {}]\n\
         #[{}]\n\
         #[Round trips in nanoseconds]\n\
         #[Histogram log format version 1.3]\n\
         #[StartTime: {ended_s:.3} (seconds since epoch)]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        report.environment.build.rpcrdma,
        report.what.replace('\n', " "),
    );
    for Distribution { name, latency } in &report.distributions {
        let length_s = latency.mean_ns() * latency.count() as f64 / 1e9;
        let (tag, max_ms) = (tag(name), latency.max_ns() as f64 / 1e6);
        let hdr = latency.to_base64();
        writeln!(text, "Tag={tag},0.000,{length_s:.3},{max_ms:.6},{hdr}")
            .expect("writing to a string does not fail");
    }
    text
}

/// A name without what a tag may not contain: `rpc, one` is `rpc_one`.
fn tag(name: &str) -> String {
    let parts = name.split([',', ' ', '\r', '\n']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry, Tag};

    use super::*;
    use crate::output::report::tests::odd;

    #[test]
    fn the_log_is_read_back_by_the_reader_of_hdrhistogram() {
        let odd = odd(&[]);
        let text = text(&odd);
        let entries = IntervalLogIterator::new(text.as_bytes()).collect::<Result<Vec<_>, _>>();
        let entries = entries.expect("every line is of the format");
        let [LogEntry::StartTime(start), LogEntry::Interval(interval)] = entries.as_slice() else {
            panic!("other entries: {entries:?}");
        };
        assert_eq!(start.as_secs(), odd.environment.ended_ms / 1000);
        assert_eq!(interval.tag(), Tag::new("a"));
        assert_eq!(interval.max(), 7e-6);
        let bytes = BASE64.decode(interval.encoded_histogram()).expect("base64");
        let read: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram");
        assert_eq!(&read, odd.distributions[0].latency.histogram());
    }

    #[test]
    fn the_first_lines_are_those_that_tools_look_for() {
        let text = text(&odd(&[]));
        assert!(text.contains("\n#[Histogram log format version 1.3]\n#[StartTime: "), "{text}");
        let legend = "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",";
        assert!(text.contains(legend), "{text}");
    }

    #[test]
    fn tags_have_no_commas_and_no_blanks() {
        for (name, expected) in
            [("rpc, one", "rpc_one"), ("write 4 KiB, one@delay=5us", "write_4_KiB_one@delay=5us")]
        {
            assert_eq!(tag(name), expected);
            assert!(Tag::new(&tag(name)).is_some(), "{name}");
        }
    }
}
