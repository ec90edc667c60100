//! Requests by threads, where there is no ring: each waits for one request at a time.
#![expect(unsafe_code, reason = "requests name memory by its address")]

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use rpcrdma_mempool::file_size;

use crate::request::Request;

/// What wakes the thread that polls.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

/// The threads of a storage. They end with it.
pub(crate) struct Threads {
    /// `None` once they are to end.
    requests: Option<SyncSender<(u32, Request)>>,
    answers: Receiver<(u32, i32)>,
    /// An answer that was waited for.
    next: Option<(u32, i32)>,
    wake: Arc<OnceLock<Wake>>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts threads for so many requests at a time.
    pub fn start(count: u32, depth: u32) -> io::Result<Threads> {
        let (requests, queue) = sync_channel::<(u32, Request)>(depth as usize);
        let (done, answers) = sync_channel(depth as usize);
        let (queue, wake) = (Arc::new(Mutex::new(queue)), Arc::new(OnceLock::<Wake>::new()));
        let mut all = Threads {
            requests: Some(requests),
            answers,
            next: None,
            wake: wake.clone(),
            threads: Vec::new(),
        };
        for _ in 0..count.max(1) {
            let (queue, done, wake) = (queue.clone(), done.clone(), wake.clone());
            let work = move || {
                // A write beyond the limit of file sizes is an error, and ends no process.
                file_size::block_signal();
                let next = || queue.lock().ok()?.recv().ok();
                while let Some((slot, request)) = next() {
                    // SAFETY: who has pushed the request keeps what it points to valid and untouched
                    // until its answer is read.
                    let result = unsafe { request.perform() };
                    // There is a place for each request; the receiver ends after the threads.
                    let _ = done.send((slot, result));
                    wake.get().into_iter().for_each(|wake| wake());
                }
            };
            let thread = std::thread::Builder::new().name("rpcrdma-storage".into());
            all.threads.push(thread.spawn(work)?);
        }
        Ok(all)
    }

    /// # Safety
    /// What the request points to stays valid and untouched until [`Threads::reap`] has returned its
    /// slot. At most `depth` are under way.
    pub unsafe fn push(&mut self, slot: u32, request: Request) {
        let requests = self.requests.as_ref().expect("the threads end with this value");
        requests.try_send((slot, request)).expect("there is a place for each request");
    }

    /// The slot and the result of a request that is done.
    pub fn reap(&mut self) -> Option<(u32, i32)> {
        self.next.take().or_else(|| self.answers.try_recv().ok())
    }

    /// Sleeps until a request is done.
    pub fn wait(&mut self) -> io::Result<()> {
        if self.next.is_none() {
            let answer = self.answers.recv();
            self.next = Some(answer.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?);
        }
        Ok(())
    }

    /// Sets what is called behind each answer, once.
    pub fn wake_by(&mut self, wake: Wake) {
        let _ = self.wake.set(wake);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.requests = None;
        for thread in self.threads.drain(..) {
            // It has panicked: there is nothing left to end.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.threads.len())
    }
}
