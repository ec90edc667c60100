//! Several threads that work on one list.

use std::sync::{Mutex, PoisonError, mpsc};

/// Does the work on each item, so many at one time, and passes each result on as it comes.
pub fn run<T: Send + Copy, R: Send>(
    jobs: usize,
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
    mut done: impl FnMut(T, R),
) {
    let items = Mutex::new(items.into_iter());
    let (sender, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (sender, items, work) = (sender.clone(), &items, &work);
            scope.spawn(move || {
                let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(item) = next() {
                    if sender.send((item, work(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (item, result) in results {
            done(item, result);
        }
    });
}
