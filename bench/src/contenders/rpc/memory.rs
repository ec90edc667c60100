//! The resident memory of this process.

use std::fs;

/// Resident bytes that no file is behind; 0 where the kernel does not say.
pub fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kib(&status, "RssAnon:").map_or(0, |kib| kib << 10)
}

fn kib(status: &str, word: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(word))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read_and_others_are_not() {
        let status = "VmRSS:\t    5120 kB\nRssAnon:\t     132 kB\nRssFile:\t  2 kB\n";
        assert_eq!(kib(status, "RssAnon:"), Some(132));
        assert_eq!(kib(status, "RssShmem:"), None);
        assert_eq!(kib("RssAnon:\t many kB", "RssAnon:"), None);
    }

    #[test]
    fn memory_that_is_written_is_resident() {
        let memory = vec![1_u8; 64 << 20];
        let resident = resident();
        assert!(memory.iter().all(|byte| *byte == 1));
        assert!(resident == 0 || resident >= 64 << 20, "{resident}");
    }
}
