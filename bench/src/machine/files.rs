//! The files below `/proc` and `/sys`, of this machine or of a copy of another's.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    /// The files that begin at `root`: `/`, or a copy of another's.
    pub fn new(root: &Path) -> Files {
        Files { root: root.to_owned() }
    }

    /// What is in a file, without the space at its ends; `None` if it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a folder, sorted; none if it is not there.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The value of the first `name: value` line.
    pub fn field(&self, path: &str, name: &str) -> Option<String> {
        field(&self.text(path)?, name).map(str::to_owned)
    }

    /// The word in brackets, as in `always [madvise] never`.
    pub fn chosen(&self, path: &str) -> Option<String> {
        chosen(&self.text(path)?).map(str::to_owned)
    }

    pub fn kernel(&self) -> String {
        self.text("proc/sys/kernel/osrelease").unwrap_or_default()
    }

    pub fn is_virtual(&self) -> bool {
        self.field("proc/cpuinfo", "flags").is_some_and(|flags| is_virtual(&flags))
    }

    /// The frequency governor of a core, where it has one.
    pub fn governor(&self, core: u32) -> Option<String> {
        self.text(&format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"))
    }

    /// The soft and the hard limit on the bytes that this program may lock; `None` is without limit.
    pub fn memlock(&self) -> [Option<u64>; 2] {
        self.limit("Max locked memory")
    }

    /// The same of any limit, by its name in the kernel's table.
    pub fn limit(&self, name: &str) -> [Option<u64>; 2] {
        limit(&self.text("proc/self/limits").unwrap_or_default(), name)
    }
}

/// The value of the first `name: value` line of a text.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

/// The bytes of a `name: 123 kB` line.
pub(crate) fn kib(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Resident bytes of this process without files; 0 where the kernel does not say.
pub(crate) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kib(&status, "RssAnon").unwrap_or(0)
}

fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

fn is_virtual(flags: &str) -> bool {
    flags.split(' ').any(|flag| flag == "hypervisor")
}

fn limit(limits: &str, name: &str) -> [Option<u64>; 2] {
    let line = limits.lines().find_map(|line| line.strip_prefix(name));
    let mut words = line.unwrap_or_default().split_whitespace().map(|word| word.parse().ok());
    [words.next().flatten(), words.next().flatten()]
}

/// Open descriptors of this process, without the one that looks; 0 where the kernel does not
/// report them.
pub fn descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_more_is_one_more() {
        let before = descriptors();
        let files: Vec<fs::File> =
            (0..40).map(|_| fs::File::open("/proc/self/status").expect("a file")).collect();
        // Other tests of this process open and close some meanwhile.
        assert!(descriptors() >= before + 30, "{before}");
        drop(files);
    }

    #[test]
    fn a_field_is_what_stands_behind_its_whole_name() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor sse\n";
        assert_eq!(field(text, "model name"), Some("AMD EPYC"));
        assert_eq!(field(text, "model"), None);
        assert_eq!(field("", "model name"), None);
    }

    #[test]
    fn the_kernels_line_is_read_and_others_are_not() {
        let status = "VmRSS:\t    5120 kB\nRssAnon:\t     132 kB\nRssFile:\t  2 kB\n";
        assert_eq!(kib(status, "RssAnon"), Some(132 << 10));
        assert_eq!(kib(status, "RssShmem"), None);
        assert_eq!(kib("RssAnon:\t many kB", "RssAnon"), None);
    }

    #[test]
    fn memory_that_is_written_is_resident() {
        let memory = vec![1_u8; 64 << 20];
        let resident = resident();
        assert!(memory.iter().all(|byte| *byte == 1));
        assert!(resident == 0 || resident >= 64 << 20, "{resident}");
    }

    #[test]
    fn only_the_whole_flag_says_that_the_processor_is_virtual() {
        assert!(is_virtual("fpu hypervisor sse"));
        assert!(!is_virtual("fpu hypervisorx"));
    }

    #[test]
    fn the_kernels_choice_is_the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen(""), None);
    }

    #[test]
    fn the_limits_of_locked_memory_are_the_first_two_numbers() {
        let line = "Max locked memory         8388608              9999999              bytes\n";
        assert_eq!(limit(line, "Max locked memory"), [Some(8_388_608), Some(9_999_999)]);
        let line = "Max locked memory         unlimited  unlimited  bytes\n";
        assert_eq!(limit(line, "Max locked memory"), [None; 2]);
        assert_eq!(limit("", "Max locked memory"), [None; 2]);
    }
}
