//! Reads `/proc/self/smaps`: how much of a range is in huge pages.

use std::ops::Range;

/// How the mappings that overlap a range are backed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Backing {
    /// Bytes of the mappings.
    pub(crate) mapped: usize,
    /// Bytes of them in transparent huge pages of all kinds.
    pub(crate) huge: usize,
}

/// Sums all mappings in `text` that overlap `range`, each as a whole: smaps has no finer detail.
pub(crate) fn backing(text: &str, range: Range<usize>) -> Backing {
    let mut sum = Backing::default();
    let mut inside = false;
    for line in text.lines() {
        if let Some(mapping) = mapping_of(line) {
            inside = mapping.start < range.end && range.start < mapping.end;
            if inside {
                sum.mapped += mapping.len();
            }
        } else if inside && let Some(bytes) = huge_bytes_of(line) {
            sum.huge += bytes;
        }
    }
    sum
}

/// `7f1c2a000000-7f1c2b000000 rw-p …` begins a mapping.
fn mapping_of(line: &str) -> Option<Range<usize>> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// `AnonHugePages:     2048 kB` is one of its properties.
fn huge_bytes_of(line: &str) -> Option<usize> {
    let (key, value) = line.split_once(':')?;
    if !matches!(key, "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped") {
        return None;
    }
    let kilobytes: usize = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0
Size:               2048 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:        0 kB
VmFlags: rd wr mr mw me dc ac hg
7f0000200000-7f0000600000 rw-s 00000000 00:01 2051       /memfd:rpcrdma-region (deleted)
Size:               4096 kB
AnonHugePages:         0 kB
ShmemPmdMapped:     2048 kB
";

    #[test]
    fn only_overlapping_mappings_count() {
        let first = backing(TEXT, 0x7f00_0000_0000..0x7f00_0020_0000);
        assert_eq!(first, Backing { mapped: 2 << 20, huge: 2 << 20 });
        let none = backing(TEXT, 0x7f00_0060_0000..0x7f00_0080_0000);
        assert_eq!(none, Backing::default());
    }

    #[test]
    fn a_range_over_two_mappings_adds_both() {
        let both = backing(TEXT, 0x7f00_001f_f000..0x7f00_0020_1000);
        assert_eq!(both, Backing { mapped: 6 << 20, huge: 4 << 20 });
    }
}
