//! A storage by a ring, by threads, and with faults.

mod by_seed;

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rpcrdma_mempool::{
    Access, BulkPool, Keys, Loan, PageSize, PoolSpec, Region, RegionSpec, RegisterError,
    Registered, Registrar, Rights,
};
use rpcrdma_testing::denied::{Denied, Watched};

use super::*;
use crate::faults::Faults;
use crate::way::Way;

/// A device that accepts every region.
struct Device;

impl Registrar for Device {
    fn register(&self, _: &Region, _: Rights) -> Result<Keys, RegisterError> {
        Ok(Keys { lkey: 1, rkey: 2 })
    }

    fn deregister(&self, _: Keys) -> io::Result<()> {
        Ok(())
    }
}

/// Blocks of 8 KiB.
struct Memory {
    pool: BulkPool,
    memory: Registered,
}

const BLOCK: usize = 8192;

impl Memory {
    fn new(blocks: u32) -> Memory {
        let spec = PoolSpec { slots: blocks, slot_len: BLOCK, align: 4096 };
        let bytes = spec.bulk_region_len().expect("small");
        let pages = PageSize::Base4K;
        let region = RegionSpec { pages, lock: false, ..RegionSpec::new(bytes) };
        let region = Region::map(&region).expect("memory");
        let rights = Rights::own(Access::LOCAL_WRITE);
        let mut memory = Registered::new(region, Arc::new(Device), rights).expect("accepted");
        Memory { pool: BulkPool::new(&mut memory, &spec).expect("room"), memory }
    }

    fn block(&mut self, len: usize, byte: impl Fn(usize) -> u8) -> Loan {
        let mut block = self.pool.take().expect("a block is free");
        block.truncate(len);
        block.iter_mut().enumerate().for_each(|(at, to)| *to = byte(at));
        block
    }

    /// All that were lent are back.
    fn assert_whole(&mut self) {
        self.pool.reclaim();
        assert_eq!(self.pool.free(), self.pool.capacity());
    }
}

/// A path of its own, where a file may be; it is removed.
struct Named(PathBuf);

impl Named {
    fn new() -> Named {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("rpcrdma-storage-test-{}-{number}", std::process::id());
        Named(std::env::temp_dir().join(name))
    }

    fn create(&self) -> File {
        let mut how = File::options();
        how.read(true).write(true).create_new(true).open(&self.0).expect("a new file")
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const OPTIONS: StorageOptions =
    StorageOptions { depth: 4, waiting: 60, files: 4, ring: true, threads: 2 };

/// One by a ring, one by threads.
fn each_way<T>() -> [Storage<T>; 2] {
    let made = [true, false]
        .map(|ring| Storage::new(&StorageOptions { ring, ..OPTIONS }).expect("a ring or threads"));
    assert_eq!(made.each_ref().map(Storage::has_ring), [true, false], "{:?}", made[0].notes());
    made
}

/// One by a ring: threads in its place would wait for ever for what cannot be cancelled.
fn by_ring<T>(options: &StorageOptions) -> Storage<T> {
    let storage = Storage::new(options).expect("a ring");
    assert!(storage.has_ring(), "{:?}", storage.notes());
    storage
}

/// Waits for one operation.
fn next<T>(storage: &mut Storage<T>) -> Done<T> {
    storage.flush();
    loop {
        if let Some(done) = storage.completed() {
            return done;
        }
        storage.flush();
        storage.wait().expect("the system waits");
    }
}

/// Does one operation.
fn run(storage: &mut Storage<u32>, operation: Operation) -> Done<u32> {
    let id = storage.submit(operation, 7).expect("room");
    let done = next(storage);
    assert_eq!(done.tag, 7);
    assert!(!storage.cancel(id), "it is done");
    done
}

fn bytes(done: Done<u32>) -> Vec<u8> {
    let moved = done.result.expect("it succeeds").bytes() as usize;
    let all: Vec<u8> = done.operation.into_pieces().iter().flat_map(|it| it.to_vec()).collect();
    all[..moved].to_vec()
}

fn error(done: &Done<u32>) -> Option<i32> {
    done.result.as_ref().err().and_then(io::Error::raw_os_error)
}

#[test]
fn pieces_of_any_length_at_any_offset_come_back_as_they_were() {
    for mut storage in each_way() {
        let (mut memory, path) = (Memory::new(8), Named::new());
        storage.register([memory.memory.hold()]);
        assert!(storage.notes().is_empty(), "{:?}", storage.notes());
        for caching in [Caching::Direct, Caching::Buffered] {
            let _ = fs::remove_file(&path.0);
            let file = storage.add(path.create(), caching).expect("room");
            for (offset, lens) in [
                (0, &[BLOCK][..]),
                (BLOCK as u64, &[4096, BLOCK, 4096]),
                (100, &[1]),
                (4095, &[4096, 1, 4097]),
                (8192, &[5000]),
                (4096, &[]),
            ] {
                let byte = |at: usize| (at * 7 + lens.len()) as u8;
                let from: Pieces = lens.iter().map(|len| memory.block(*len, byte)).collect();
                let wanted: Vec<u8> = from.iter().flat_map(|piece| piece.to_vec()).collect();
                let wrote = run(&mut storage, Operation::Write { file, offset, from });
                assert_eq!(wrote.result.expect("written").bytes(), wanted.len() as u64);
                drop(wrote.operation);
                let into = lens.iter().map(|len| memory.block(*len, |_| 0)).collect();
                let read = run(&mut storage, Operation::Read { file, offset, into });
                assert!(bytes(read) == wanted, "{lens:?} at {offset}, {caching:?}");
                memory.assert_whole();
            }
            // Behind the end, which is at 24576, is nothing.
            for (offset, len) in [(24_576 - 4096, 4096), (24_000, 576), (30_000, 0)] {
                let into = Pieces::from_iter([memory.block(BLOCK, |_| 0)]);
                let read = run(&mut storage, Operation::Read { file, offset, into });
                assert_eq!(bytes(read).len(), len, "{offset}");
            }
            assert!(run(&mut storage, Operation::Close { file }).result.is_ok());
        }
    }
}

#[test]
fn pieces_of_different_regions_and_of_none_that_is_registered_do_as_well() {
    let mut storage = by_ring(&OPTIONS);
    let (mut one, mut other, mut third) = (Memory::new(2), Memory::new(1), Memory::new(1));
    storage.register([one.memory.hold(), other.memory.hold()]);
    storage.register([third.memory.hold()]);
    let path = Named::new();
    let file = storage.add(path.create(), Caching::Direct).expect("room");
    for blocks in [
        [one.block(BLOCK, |_| 1), other.block(BLOCK, |_| 2)],
        [one.block(BLOCK, |_| 3), third.block(BLOCK, |_| 4)],
    ] {
        let wanted = blocks.iter().flat_map(|it| it.to_vec()).collect::<Vec<u8>>();
        let from = Pieces::from_iter(blocks);
        run(&mut storage, Operation::Write { file, offset: 0, from }).result.expect("written");
        assert!(fs::read(&path.0).expect("there") == wanted);
    }
}

#[test]
fn files_are_opened_changed_looked_at_and_closed() {
    for mut storage in each_way() {
        let path = Named::new();
        let name = CString::new(path.0.to_str().expect("text")).expect("without a zero");
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let open =
            |path, flags| Operation::Open { path, flags, mode: 0o600, caching: Caching::Direct };
        let opened = run(&mut storage, open(name.clone(), flags)).result.expect("opened");
        let Output::File(file) = opened else { panic!("{opened:?}") };
        assert_eq!(error(&run(&mut storage, open(name, flags))), Some(libc::EEXIST));
        for operation in [
            Operation::Allocate { file, offset: 4096, len: 4096 },
            Operation::SetLen { file, len: 5000 },
            Operation::Sync { file, level: SyncLevel::Data },
            Operation::Sync { file, level: SyncLevel::All },
        ] {
            assert_eq!(run(&mut storage, operation).result.expect("done"), Output::Nothing);
        }
        let into = Box::default();
        let looked = run(&mut storage, Operation::Stat { file, into });
        let Operation::Stat { into, .. } = looked.operation else { panic!("it comes back") };
        assert_eq!((into.len(), into.0.stx_mode & 0o777), (5000, 0o600));
        let (offset, len) = (u64::MAX, 1);
        let operation = Operation::Allocate { file, offset, len };
        assert!(!storage.flush());
        storage.submit(operation, 7).expect("room");
        assert!(storage.flush(), "it is done without the system");
        assert_eq!(error(&next(&mut storage)), Some(libc::EINVAL));
        assert!(!storage.flush());
        assert!(run(&mut storage, Operation::Close { file }).result.is_ok());
        let refused = storage.submit(Operation::Close { file }, 1).expect_err("it is closed");
        assert_eq!((refused.why, refused.tag), (Refusal::NotOpen, 1));
        let next = storage.add(File::open(&path.0).expect("there"), Caching::Direct);
        assert_ne!(next.expect("room"), file, "its number is not used again");
    }
}

#[test]
fn what_exceeds_the_sizes_is_refused_and_given_back() {
    for mut storage in each_way() {
        let (mut memory, path) = (Memory::new(65), Named::new());
        let file = storage.add(path.create(), Caching::Buffered).expect("room");
        for at in 0..64 {
            let from = Pieces::from_iter([memory.block(BLOCK, |_| at as u8)]);
            let write = Operation::Write { file, offset: at * BLOCK as u64, from };
            storage.submit(write, at as u32).expect("room for 4 and 60");
        }
        assert_eq!(storage.open(), (4, 60));
        let from = Pieces::from_iter([memory.block(BLOCK, |_| 99)]);
        let write = Operation::Write { file, offset: 0, from };
        let refused = storage.submit(write, 64).expect_err("there is no room");
        assert_eq!((refused.why, refused.tag), (Refusal::Full, 64));
        assert_eq!(refused.operation.into_pieces()[0][..], [99; BLOCK][..]);
        for left in (0..64).rev() {
            drop(next(&mut storage));
            let (under_way, waiting) = storage.open();
            assert_eq!((under_way, under_way + waiting), (left.min(4), left));
        }
        assert!(storage.completed().is_none());
        memory.assert_whole();
        let stored = fs::read(&path.0).expect("there");
        assert!((0..64).all(|at| stored[at * BLOCK..][..BLOCK] == [at as u8; BLOCK]));
        for _ in 1..4 {
            let file = File::open(&path.0).expect("there");
            storage.add(file, Caching::Buffered).expect("four files");
        }
        let more = storage.add(File::open(&path.0).expect("there"), Caching::Buffered);
        assert_eq!(more.expect_err("a fifth").raw_os_error(), Some(libc::ENFILE));
    }
}

#[test]
fn a_file_in_use_is_not_closed() {
    let mut storage = by_ring(&OPTIONS);
    let path = Named::new();
    let file = storage.add(path.create(), Caching::Buffered).expect("room");
    storage.submit(Operation::Sync { file, level: SyncLevel::All }, 1).expect("room");
    let refused = storage.submit(Operation::Close { file }, 2).expect_err("it is in use");
    assert_eq!((refused.why, refused.tag), (Refusal::InUse, 2));
    assert!(next(&mut storage).result.is_ok());
    assert!(run(&mut storage, Operation::Close { file }).result.is_ok());
}

#[test]
fn one_system_call_begins_what_a_turn_has() {
    let calls = [libc::SYS_io_uring_enter, libc::SYS_getppid];
    let ((), made) = Watched { calls: &calls }.run(|| {
        let options = StorageOptions { depth: 64, ..OPTIONS };
        let mut storage = by_ring(&options);
        let path = Named::new();
        let file = storage.add(path.create(), Caching::Buffered).expect("room");
        storage.flush();
        for at in 0..32 {
            storage.submit(Operation::SetLen { file, len: at }, at).expect("room");
        }
        storage.flush();
        storage.flush();
        let _ = rustix::process::getppid();
        assert!(storage.take_worked() && !storage.take_worked());
        while storage.open().0 > 0 {
            drop(storage.completed());
        }
        assert!(storage.take_worked());
    });
    let begins = made.iter().take_while(|made| made.call != libc::SYS_getppid);
    assert_eq!(begins.count(), 1);
}

#[test]
fn an_operation_that_waits_is_cancelled_with_its_memory() {
    for mut storage in each_way() {
        let (mut memory, path) = (Memory::new(8), Named::new());
        let file = storage.add(path.create(), Caching::Buffered).expect("room");
        let mut ids = Vec::new();
        for at in 0..8 {
            let from = Pieces::from_iter([memory.block(BLOCK, |_| 1)]);
            let write = Operation::Write { file, offset: at * BLOCK as u64, from };
            ids.push(storage.submit(write, at as u32).expect("room"));
        }
        assert!(storage.cancel(ids[7]) && !storage.cancel(ids[7]), "once");
        let first = storage.completed().expect("nothing is asked of the system");
        assert_eq!((first.tag, error(&first)), (7, Some(libc::ECANCELED)));
        drop(first);
        (0..7).for_each(|_| assert_eq!(error(&next(&mut storage)), None));
        assert_eq!(fs::metadata(&path.0).expect("there").len(), 7 * BLOCK as u64);
        memory.assert_whole();
    }
}

#[test]
fn a_read_under_way_is_cancelled() {
    let mut storage = by_ring(&OPTIONS);
    let mut memory = Memory::new(1);
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let file = storage.add(reader, Caching::Buffered).expect("room");
    let into = Pieces::from_iter([memory.block(BLOCK, |_| 0)]);
    let id = storage.submit(Operation::Read { file, offset: 0, into }, 1).expect("room");
    storage.flush();
    assert!(storage.completed().is_none(), "the pipe is empty");
    assert!(storage.cancel(id));
    let done = next(&mut storage);
    assert_eq!(error(&done), Some(libc::ECANCELED));
    drop(done);
    memory.assert_whole();
    // One that is done before the kernel is asked to end it.
    writer.write_all(&[1; BLOCK]).expect("the pipe is open");
    let into = Pieces::from_iter([memory.block(BLOCK, |_| 0)]);
    let id = storage.submit(Operation::Read { file, offset: 0, into }, 2).expect("room");
    storage.flush();
    assert!(storage.cancel(id));
    drop(next(&mut storage));
    storage.flush();
    // Nothing is left in the queue that a sleeping thread would be woken for.
    assert!(storage.completed().is_none());
    let mut is_left = true;
    let look = |ring: BorrowedFd<'_>| {
        is_left = is_readable(ring);
        Ok(())
    };
    storage.join(look, || {});
    assert!(!is_left);
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Default::default())).expect("polled") == 1
}

/// Says when it is dropped how many requests the system has then.
struct Last(Arc<AtomicU32>, Arc<AtomicU32>);

impl Drop for Last {
    fn drop(&mut self) {
        self.1.fetch_add(self.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[test]
fn what_the_program_wanted_back_is_dropped_when_nothing_is_under_way() {
    // It may panic, which must not free memory that the system still writes to.
    let faults = Faults::new(1, 12);
    let (open, seen) = (faults.open.clone(), Arc::new(AtomicU32::new(0)));
    let mut storage = Storage::by(Way::Faults(faults), 4, &OPTIONS);
    let file = storage.add(Named::new().create(), Caching::Buffered).expect("room");
    for len in 0..4 {
        let last = Last(open.clone(), seen.clone());
        assert!(storage.submit(Operation::SetLen { file, len }, last).is_ok());
    }
    assert_eq!(open.load(Ordering::Relaxed), 4);
    drop(storage);
    assert_eq!((open.load(Ordering::Relaxed), seen.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn a_storage_that_is_dropped_waits_for_what_is_under_way() {
    let mut memory = Memory::new(1);
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let mut storage = by_ring(&OPTIONS);
    let file = storage.add(reader, Caching::Buffered).expect("room");
    let into = Pieces::from_iter([memory.block(BLOCK, |_| 0)]);
    storage.submit(Operation::Read { file, offset: 0, into }, ()).expect("room");
    storage.flush();
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&[5; BLOCK]));
        drop(storage);
    });
    assert_eq!(memory.pool.take().expect("it is back")[..], [5; BLOCK], "it was read before");
}

#[test]
fn threads_take_the_place_of_a_ring_that_is_refused() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        Denied { calls: &[libc::SYS_io_uring_setup], errno }.run(|| {
            let mut storage = Storage::new(&OPTIONS).expect("threads");
            let [Note::NoRing { source }] = storage.notes() else {
                panic!("{:?}", storage.notes())
            };
            assert_eq!((source.raw_os_error(), storage.has_ring()), (Some(errno), false));
            let (wake, woken) = std::sync::mpsc::channel();
            let wake = move || wake.send(()).expect("the test waits for it");
            storage.join(|_| panic!("there is no ring"), wake);
            let path = Named::new();
            let file = storage.add(path.create(), Caching::Direct).expect("room");
            storage.submit(Operation::SetLen { file, len: 4096 }, ()).expect("room");
            woken.recv().expect("the thread calls");
            assert!(storage.completed().expect("it is done").result.is_ok());
            assert_eq!(fs::metadata(&path.0).expect("there").len(), 4096);
        });
    }
}

#[test]
fn a_table_without_places_takes_no_file() {
    let mut storage = by_ring(&StorageOptions { files: 0, ..OPTIONS });
    assert!(matches!(storage.notes(), [Note::NoFileTable { .. }]), "{:?}", storage.notes());
    let path = Named::new();
    assert!(storage.add(path.create(), Caching::Direct).is_err(), "there is room for none");
    assert!(storage.submit(Operation::Sync { file: lost(), level: SyncLevel::All }, ()).is_err());
}

/// A file of another storage.
fn lost() -> FileId {
    let mut other = by_ring::<()>(&OPTIONS);
    other.add(Named::new().create(), Caching::Buffered).expect("room")
}
