//! The limit of descriptors of the process, and what each cache of open files may have of it.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Raises the limit to the largest that the process may set, and returns the limit that holds now.
/// Caches may have their share of it; connections and MOUNT need the rest.
pub fn raise() -> u64 {
    // getrlimit(2) of rustix panics where a filter of system calls refuses it.
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let Some((current, maximum)) = limits(&text) else { return USUAL };
    let raised = Rlimit { current: Some(maximum), maximum: Some(maximum) };
    if setrlimit(Resource::Nofile, raised).is_ok() { maximum } else { current }
}

/// The soft and the hard limit, from /proc/PID/limits.
fn limits(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line.split_whitespace().map(|word| word.parse().ok());
    Some((words.next()??, words.next()??))
}

/// The usual soft limit.
const USUAL: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_read_and_the_soft_one_is_raised() {
        let text = "Limit          Soft Limit   Hard Limit   Units\n\
                    Max processes  1            2            processes\n\
                    Max open files 256          4096         files\n";
        assert_eq!(limits(text), Some((256, 4096)));
        assert_eq!(limits(""), None);
        let before = rustix::process::getrlimit(Resource::Nofile);
        let maximum = before.maximum.expect("the kernel has one");
        // One less does no harm to the other tests of this process.
        let lower = Rlimit { current: Some(maximum - 1), maximum: before.maximum };
        setrlimit(Resource::Nofile, lower).expect("it is allowed");
        assert_eq!(raise(), maximum);
        assert_eq!(rustix::process::getrlimit(Resource::Nofile).current, Some(maximum));
    }
}
