//! Operations on files of a directory that the server exports as its root.

use rpcrdma::Provider;

use super::compound::{Op, Open};
use super::results::{Delegation, Done, Failure};
use super::session::Session;
use super::words::{FileHandle, StateId};
use crate::nfs::{Give, Take};

/// A file that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Its name in the root directory.
    pub name: String,
    /// The open.
    pub state: StateId,
    /// The delegation that came with it.
    pub delegation: Delegation,
    /// The file.
    pub handle: FileHandle,
}

impl<P: Provider> Session<P> {
    /// The operations that open a file of the root directory.
    pub fn opening(&self, name: &str, access: u32) -> [Op; 3] {
        let open = Open {
            client: self.client,
            owner: b"a program".to_vec(),
            access,
            deny: 0,
            name: name.into(),
        };
        [Op::PutRootFh, Op::Open(open), Op::GetFh]
    }

    /// Opens a file of the root directory.
    ///
    /// # Errors
    /// Why it is not open.
    pub fn open_file(&mut self, name: &str, access: u32) -> Result<Opened, Failure> {
        let results = self.call(&self.opening(name, access))?;
        opened(name, results)
    }

    /// Ends an open.
    ///
    /// # Errors
    /// Why it failed.
    pub fn close_file(&mut self, file: &Opened) -> Result<(), Failure> {
        self.call(&[Op::PutFh(file.handle.clone()), Op::Close(file.state)]).map(drop)
    }

    /// Returns a delegation.
    ///
    /// # Errors
    /// Why it failed.
    pub fn give_back(&mut self, handle: &FileHandle, state: StateId) -> Result<(), Failure> {
        self.call(&[Op::PutFh(handle.clone()), Op::DelegReturn(state)]).map(drop)
    }

    /// Reads; also returns whether the data were moved by DDP.
    ///
    /// # Errors
    /// Why it failed.
    pub fn read(
        &mut self,
        handle: &FileHandle,
        state: StateId,
        (offset, count): (u64, u32),
        take: Take,
    ) -> Result<(Vec<u8>, bool), Failure> {
        let results = self.call(&reading(handle, state, (offset, count), take))?;
        was_read(results)
    }

    /// Writes to stable storage.
    ///
    /// # Errors
    /// Why it failed.
    pub fn write(
        &mut self,
        file: &Opened,
        offset: u64,
        data: &[u8],
        give: Give,
    ) -> Result<u32, Failure> {
        let (state, data) = (file.state, data.to_vec());
        let results =
            self.call(&[Op::PutFh(file.handle.clone()), Op::Write { state, offset, data, give }])?;
        match results[..] {
            [Done::Nothing, Done::Written(count)] => Ok(count),
            _ => Err(unexpected(&results)),
        }
    }

    /// The size of a file.
    ///
    /// # Errors
    /// Why it failed.
    pub fn size(&mut self, handle: &FileHandle) -> Result<u64, Failure> {
        let results = self.call(&[Op::PutFh(handle.clone()), Op::Size])?;
        match results[..] {
            [Done::Nothing, Done::Size(size)] => Ok(size),
            _ => Err(unexpected(&results)),
        }
    }
}

/// The operations that read a file.
pub fn reading(
    handle: &FileHandle,
    state: StateId,
    (offset, count): (u64, u32),
    take: Take,
) -> [Op; 2] {
    [Op::PutFh(handle.clone()), Op::Read { state, offset, count, take }]
}

/// What [`reading`] has read, and whether the data were moved by DDP.
///
/// # Errors
/// If the results are others.
pub fn was_read(results: Vec<Done>) -> Result<(Vec<u8>, bool), Failure> {
    match <[Done; 2]>::try_from(results) {
        Ok([Done::Nothing, Done::Read { data, placed, .. }]) => Ok((data, placed)),
        Ok(results) => Err(unexpected(&results)),
        Err(results) => Err(unexpected(&results)),
    }
}

/// What [`Session::opening`] has opened.
///
/// # Errors
/// If the results are others.
pub fn opened(name: &str, results: Vec<Done>) -> Result<Opened, Failure> {
    match <[Done; 3]>::try_from(results) {
        Ok([Done::Nothing, Done::Open { state, delegation }, Done::Handle(handle)]) => {
            Ok(Opened { name: name.into(), state, delegation, handle })
        }
        Ok(results) => Err(unexpected(&results)),
        Err(results) => Err(unexpected(&results)),
    }
}

fn unexpected(results: &[Done]) -> Failure {
    Failure::Unexpected(format!("{results:?}"))
}
