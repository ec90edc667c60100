//! Limits how often the export is searched for missing files.
//!
//! A search reads every directory. A client with many handles of removed files could keep the
//! server busy with searches. So one search answers for all files that were requested before it
//! began; files that this server removed need no search; and long searches take at most a tenth of
//! the time. Meanwhile calls are answered with NFS3ERR_JUKEBOX, and the clients repeat them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::handles::FileId;
use crate::status::Status;

/// The files that are not at their recorded place.
#[derive(Debug, Default)]
pub struct Searches {
    missing: HashMap<FileId, Missing>,
    /// The last search.
    pub last: Option<Search>,
}

/// A finished search.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// Its start.
    pub began: Instant,
    /// Its end.
    pub ended: Instant,
    /// Whether the places of all files were recorded.
    pub is_whole: bool,
}

#[derive(Debug, Clone, Copy)]
enum Missing {
    /// This server removed its last name.
    Removed,
    /// Requested since this time, not searched for yet.
    Since(Instant),
    /// A search at this time did not find it.
    NotFound(Instant),
}

impl Searches {
    /// Decides whether to search the export for a file that is not at its recorded place.
    ///
    /// # Errors
    /// `NFS3ERR_STALE` if the file is known to be removed, `NFS3ERR_JUKEBOX` if it is too early for
    /// another search.
    pub fn check(&mut self, id: FileId, now: Instant) -> Result<(), Status> {
        let since = match self.missing.get(&id) {
            Some(Missing::Removed) => return Err(Status::NFS3ERR_STALE),
            Some(Missing::NotFound(at)) if now.saturating_duration_since(*at) < GONE_FOR => {
                return Err(Status::NFS3ERR_STALE);
            }
            Some(Missing::Since(at) | Missing::NotFound(at)) => *at,
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

    /// Records a finished search.
    pub fn end(&mut self, search: Search) {
        self.last = Some(search);
    }

    /// Records that a search did not find a file.
    pub fn was_not_found(&mut self, id: FileId, now: Instant) {
        self.remember(id, Missing::NotFound(now));
    }

    /// Records that the last name of a file was removed.
    pub fn was_removed(&mut self, id: FileId) {
        self.remember(id, Missing::Removed);
    }

    /// Records that a file was found.
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

/// The maximum number of missing files that are recorded.
const MISSING_MAX: usize = 16 << 10;
/// How long the result of a search without success is used: a program on the server may move the
/// file back.
const GONE_FOR: Duration = Duration::from_secs(30);
/// A search that takes less time may be repeated at once.
const LONG: Duration = Duration::from_millis(20);
/// A longer search is followed by a pause of this many times its duration.
const PAUSE: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> FileId {
        FileId { inode, birth: 1 }
    }

    /// A clock, and the state after a search that began at 0 and took `ms` milliseconds.
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
    fn a_missing_file_is_searched_for_once() {
        let (at, mut searches) = after_one_of(1, true);
        assert_eq!(searches.check(file(1), at(2)), Ok(()));
        searches.was_not_found(file(1), at(3));
        assert_eq!(searches.check(file(1), at(30_002)), STALE);
        assert_eq!(searches.check(file(1), at(30_003)), Ok(()));
        searches.was_not_found(file(1), at(30_004));
        searches.was_found(file(1));
        assert_eq!(searches.check(file(1), at(30_005)), Ok(()), "what is known of it is forgotten");
    }

    #[test]
    fn a_removed_file_is_not_searched_for() {
        let mut searches = Searches::default();
        searches.was_removed(file(1));
        assert_eq!(searches.check(file(1), Instant::now()), STALE);
        assert_eq!(searches.check(file(2), Instant::now()), Ok(()));
    }

    #[test]
    fn long_searches_take_a_tenth_of_the_time() {
        let (at, mut searches) = after_one_of(100, true);
        assert_eq!(searches.check(file(1), at(999)), LATER);
        assert_eq!(searches.check(file(1), at(1000)), Ok(()));
    }

    #[test]
    fn a_search_answers_for_all_earlier_requests() {
        for is_whole in [true, false] {
            let (at, mut searches) = after_one_of(100, true);
            assert_eq!(searches.check(file(1), at(500)), LATER);
            searches.end(Search { began: at(1000), ended: at(1100), is_whole });
            let answer = searches.check(file(1), at(1200));
            assert_eq!(answer, if is_whole { STALE } else { LATER });
            assert_eq!(searches.check(file(2), at(1200)), LATER, "it may have come since");
        }
    }
}
