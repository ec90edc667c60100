//! Which files were looked for in vain, and how often the export is searched for such.
//!
//! A search looks at every directory. Whoever has many handles of files that are gone could have
//! nothing else done: so a search answers for every file that was looked for before it began, what
//! was removed by this server is known to be gone without one, and searches that take long take a
//! tenth of the time at most. Meanwhile clients are told to ask again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::handles::FileId;
use crate::status::Status;

/// What is known of files that are not where they were seen last.
#[derive(Debug, Default)]
pub struct Searches {
    missing: HashMap<FileId, Missing>,
    last: Option<Search>,
}

/// A search that is over.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// Since when.
    pub began: Instant,
    /// Until when.
    pub ended: Instant,
    /// Whether all files that are there were taken note of.
    pub is_whole: bool,
}

#[derive(Debug, Clone, Copy)]
enum Missing {
    /// Its last name was taken away by this server.
    Removed,
    /// Looked for since then.
    Since(Instant),
    /// It was searched for.
    Vain(Instant),
}

impl Searches {
    /// Whether the export is to be searched for a file that is not where it was seen last.
    ///
    /// # Errors
    /// `NFS3ERR_STALE` if it is known to be gone, `NFS3ERR_JUKEBOX` if it is too early for a search.
    pub fn judge(&mut self, id: FileId, now: Instant) -> Result<(), Status> {
        let since = match self.missing.get(&id) {
            Some(Missing::Removed) => return Err(Status::NFS3ERR_STALE),
            Some(Missing::Vain(at)) if now.saturating_duration_since(*at) < GONE_FOR => {
                return Err(Status::NFS3ERR_STALE);
            }
            Some(Missing::Since(at) | Missing::Vain(at)) => *at,
            None => {
                self.remember(id, Missing::Since(now));
                now
            }
        };
        let Some(last) = self.last else { return Ok(()) };
        let ago = now.saturating_duration_since(last.ended);
        if last.is_whole && last.began >= since && ago < GONE_FOR {
            return Err(Status::NFS3ERR_STALE);
        }
        let took = last.ended.saturating_duration_since(last.began);
        if took >= LONG && ago < took * PAUSE { Err(Status::NFS3ERR_JUKEBOX) } else { Ok(()) }
    }

    /// Takes note of a search.
    pub fn end(&mut self, search: Search) {
        self.last = Some(search);
    }

    /// Takes note that a file was not found by a search for it.
    pub fn was_in_vain(&mut self, id: FileId, now: Instant) {
        self.remember(id, Missing::Vain(now));
    }

    /// Takes note that a file has lost its last name.
    pub fn was_removed(&mut self, id: FileId) {
        self.remember(id, Missing::Removed);
    }

    /// Takes note that a file is there.
    pub fn was_found(&mut self, id: FileId) {
        self.missing.remove(&id);
    }

    fn remember(&mut self, id: FileId, missing: Missing) {
        if self.missing.len() >= MISSING_MAX && !self.missing.contains_key(&id) {
            self.missing.clear();
        }
        self.missing.insert(id, missing);
    }
}

/// Files remembered as missing.
const MISSING_MAX: usize = 16 << 10;
/// How long a search in vain answers: a file may come back, moved by somebody on the server.
const GONE_FOR: Duration = Duration::from_secs(30);
/// A search that takes less may follow another at once.
const LONG: Duration = Duration::from_millis(20);
/// After one that takes longer there is none for so many times as long.
const PAUSE: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> FileId {
        FileId { inode, birth: 1 }
    }

    /// A clock, and searches of which one of so many milliseconds began at 0.
    fn after_one_of(ms: u64, is_whole: bool) -> (impl Fn(u64) -> Instant, Searches) {
        let start = Instant::now();
        let at = move |ms| start + Duration::from_millis(ms);
        let mut searches = Searches::default();
        searches.end(Search { began: at(0), ended: at(ms), is_whole });
        (at, searches)
    }

    const STALE: Result<(), Status> = Err(Status::NFS3ERR_STALE);
    const LATER: Result<(), Status> = Err(Status::NFS3ERR_JUKEBOX);

    #[test]
    fn what_is_missing_is_searched_for_once() {
        let (at, mut searches) = after_one_of(1, true);
        assert_eq!(searches.judge(file(1), at(2)), Ok(()));
        searches.was_in_vain(file(1), at(3));
        assert_eq!(searches.judge(file(1), at(30_002)), STALE);
        assert_eq!(searches.judge(file(1), at(30_003)), Ok(()));
        searches.was_found(file(1));
        assert_eq!(searches.judge(file(1), at(30_004)), Ok(()));
    }

    #[test]
    fn what_was_removed_is_never_searched_for() {
        let mut searches = Searches::default();
        searches.was_removed(file(1));
        assert_eq!(searches.judge(file(1), Instant::now()), STALE);
        assert_eq!(searches.judge(file(2), Instant::now()), Ok(()));
    }

    #[test]
    fn long_searches_take_a_tenth_of_the_time() {
        let (at, mut searches) = after_one_of(100, true);
        assert_eq!(searches.judge(file(1), at(999)), LATER);
        assert_eq!(searches.judge(file(1), at(1000)), Ok(()));
    }

    #[test]
    fn a_search_answers_for_all_that_were_looked_for_before() {
        for is_whole in [true, false] {
            let (at, mut searches) = after_one_of(100, true);
            assert_eq!(searches.judge(file(1), at(500)), LATER);
            searches.end(Search { began: at(1000), ended: at(1100), is_whole });
            let answer = searches.judge(file(1), at(1200));
            assert_eq!(answer, if is_whole { STALE } else { LATER });
            assert_eq!(searches.judge(file(2), at(1200)), LATER, "it may have come since");
        }
    }
}
