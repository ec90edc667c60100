//! NFS version 3: a typed function for each procedure.

use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack, Void};
use rpcrdma::ulb::nfs3;
use rpcrdma::{Address, Client, Provider, SetupError};

use super::rpc::{Caller, Failure, Give, Reply, Request, Take};

/// A client of one server.
pub struct Nfs<P: Provider> {
    /// The connection.
    pub rpc: Caller<P>,
    /// The server may answer a READ whose data are longer than its Write chunk with SYSTEM_ERR, and
    /// not with ERR_CHUNK: Linux 6.12 does, and 6.1 does not.
    pub may_answer_system_error: bool,
}

/// The position where a list continues; the default is its start.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListFrom {
    /// After the entry with this cookie.
    pub cookie: u64,
    /// The verifier of the cookie.
    pub cookieverf: cookieverf3,
}

/// The data of a READ, and how they were moved.
#[derive(Debug)]
pub struct Read {
    /// The bytes.
    pub data: Vec<u8>,
    /// Whether they are the last of the file.
    pub eof: bool,
    /// Whether they were moved by DDP.
    pub placed: bool,
    /// Whether the program's result buffer was returned.
    pub sink: bool,
}

impl<P: Provider> Nfs<P> {
    /// Connects to a server.
    ///
    /// # Errors
    /// Why the connection failed.
    pub fn connect(client: Client<P>, to: impl Into<Address>) -> Result<Nfs<P>, SetupError> {
        let rpc = Caller::connect(client, to.into())?;
        Ok(Nfs { rpc, may_answer_system_error: false })
    }

    /// A procedure whose results are words and attributes.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn plain<T: Unpack, E: Unpack>(
        &mut self,
        procedure: u32,
        arguments: &impl Pack,
    ) -> Result<T, Failure> {
        let reply = self.rpc.call(&Request::new(procedure, arguments))?;
        results::<T, E>(&reply)
    }

    /// NULL.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn null(&mut self) -> Result<(), Failure> {
        let reply = self.rpc.call(&Request::new(nfs3::NULL, &Void))?;
        decoded::<Void>(&reply).map(drop)
    }

    /// Attributes of an object.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn getattr(&mut self, object: &nfs_fh3) -> Result<fattr3, Failure> {
        let arguments = GETATTR3args { object: object.clone() };
        let found = self.plain::<GETATTR3resok, Void>(nfs3::GETATTR, &arguments)?;
        Ok(found.obj_attributes)
    }

    /// Changes attributes of an object.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn setattr(&mut self, object: &nfs_fh3, new: sattr3) -> Result<wcc_data, Failure> {
        let arguments =
            SETATTR3args { object: object.clone(), new_attributes: new, guard: sattrguard3::None };
        let done = self.plain::<SETATTR3resok, SETATTR3resfail>(nfs3::SETATTR, &arguments)?;
        Ok(done.obj_wcc)
    }

    /// The handle of a name in a directory.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn lookup(&mut self, dir: &nfs_fh3, name: &[u8]) -> Result<LOOKUP3resok, Failure> {
        let arguments = LOOKUP3args { what: at(dir, name) };
        self.plain::<LOOKUP3resok, LOOKUP3resfail>(nfs3::LOOKUP, &arguments)
    }

    /// Those of the requested rights that the caller has.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn access(&mut self, object: &nfs_fh3, access: u32) -> Result<u32, Failure> {
        let arguments = ACCESS3args { object: object.clone(), access };
        let found = self.plain::<ACCESS3resok, ACCESS3resfail>(nfs3::ACCESS, &arguments)?;
        Ok(found.access)
    }

    /// The target of a link, and whether it was moved by DDP.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn readlink(
        &mut self,
        symlink: &nfs_fh3,
        len_max: u32,
        how: Take,
    ) -> Result<(Vec<u8>, bool), Failure> {
        let arguments = READLINK3args { symlink: symlink.clone() };
        let request = Request::new(nfs3::READLINK, &arguments).taking(len_max, how);
        let reply = self.rpc.call(&request)?;
        let found = results::<READLINK3resok<'static>, READLINK3resfail>(&reply)?;
        Ok((found.data.0.into_owned(), reply.placed))
    }

    /// Bytes of a file.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn read(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        count: u32,
        how: Take,
    ) -> Result<Read, Failure> {
        let reply = self.rpc.call(&read_request(file, offset, count, how))?;
        read_results(&reply)
    }

    /// Writes bytes to a file.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
        how: Give,
    ) -> Result<WRITE3resok, Failure> {
        let reply = self.rpc.call(&write_request(file, offset, data, stable, how))?;
        results::<WRITE3resok, WRITE3resfail>(&reply)
    }

    /// Makes a file.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn create(&mut self, dir: &nfs_fh3, name: &[u8]) -> Result<nfs_fh3, Failure> {
        let attributes = sattr3 { mode: set_mode3::Some(0o644), ..sattr3::default() };
        self.create_as(dir, name, createhow3::UNCHECKED(attributes))
    }

    /// Makes a file in one of the three ways.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn create_as(
        &mut self,
        dir: &nfs_fh3,
        name: &[u8],
        how: createhow3,
    ) -> Result<nfs_fh3, Failure> {
        let arguments = CREATE3args { where_: at(dir, name), how };
        let made = self.plain::<CREATE3resok, CREATE3resfail>(nfs3::CREATE, &arguments)?;
        handle(made.obj)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn mkdir(&mut self, dir: &nfs_fh3, name: &[u8]) -> Result<nfs_fh3, Failure> {
        let attributes = sattr3 { mode: set_mode3::Some(0o755), ..sattr3::default() };
        let arguments = MKDIR3args { where_: at(dir, name), attributes };
        let made = self.plain::<MKDIR3resok, MKDIR3resfail>(nfs3::MKDIR, &arguments)?;
        handle(made.obj)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn symlink(
        &mut self,
        dir: &nfs_fh3,
        name: &[u8],
        target: &[u8],
        how: Give,
    ) -> Result<nfs_fh3, Failure> {
        let arguments = SYMLINK3args {
            where_: at(dir, name),
            symlink: symlinkdata3 {
                symlink_attributes: sattr3::default(),
                symlink_data: nfspath3(Opaque::borrowed(&[])),
            },
        };
        let request = Request::new(nfs3::SYMLINK, &arguments).giving(target, how);
        let reply = self.rpc.call(&request)?;
        let made = results::<SYMLINK3resok, SYMLINK3resfail>(&reply)?;
        handle(made.obj)
    }

    /// Makes a named pipe.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn mkfifo(&mut self, dir: &nfs_fh3, name: &[u8]) -> Result<nfs_fh3, Failure> {
        let attributes = sattr3 { mode: set_mode3::Some(0o600), ..sattr3::default() };
        let arguments = MKNOD3args { where_: at(dir, name), what: mknoddata3::NF3FIFO(attributes) };
        let made = self.plain::<MKNOD3resok, MKNOD3resfail>(nfs3::MKNOD, &arguments)?;
        handle(made.obj)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn remove(&mut self, dir: &nfs_fh3, name: &[u8]) -> Result<(), Failure> {
        let arguments = REMOVE3args { object: at(dir, name) };
        self.plain::<REMOVE3resok, REMOVE3resfail>(nfs3::REMOVE, &arguments).map(drop)
    }

    /// Removes a directory.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn rmdir(&mut self, dir: &nfs_fh3, name: &[u8]) -> Result<(), Failure> {
        let arguments = RMDIR3args { object: at(dir, name) };
        self.plain::<RMDIR3resok, RMDIR3resfail>(nfs3::RMDIR, &arguments).map(drop)
    }

    /// Renames.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn rename(&mut self, from: diropargs3<'_>, to: diropargs3<'_>) -> Result<(), Failure> {
        let arguments = RENAME3args { from, to };
        self.plain::<RENAME3resok, RENAME3resfail>(nfs3::RENAME, &arguments).map(drop)
    }

    /// Makes a hard link.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn link(&mut self, file: &nfs_fh3, dir: &nfs_fh3, name: &[u8]) -> Result<(), Failure> {
        let arguments = LINK3args { file: file.clone(), link: at(dir, name) };
        self.plain::<LINK3resok, LINK3resfail>(nfs3::LINK, &arguments).map(drop)
    }

    /// Entries of a directory after a cookie; at most `count` bytes of them.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn readdir(
        &mut self,
        dir: &nfs_fh3,
        from: ListFrom,
        count: u32,
    ) -> Result<READDIR3resok<'static>, Failure> {
        let ListFrom { cookie, cookieverf } = from;
        let arguments = READDIR3args { dir: dir.clone(), cookie, cookieverf, count };
        let reply = self.rpc.call(&Request::new(nfs3::READDIR, &arguments).asking(count))?;
        results::<READDIR3resok<'static>, READDIR3resfail>(&reply)
    }

    /// Entries of a directory with attributes and handles, after a cookie; a reply of at most
    /// `maxcount` bytes.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn readdirplus(
        &mut self,
        dir: &nfs_fh3,
        from: ListFrom,
        maxcount: u32,
    ) -> Result<READDIRPLUS3resok<'static>, Failure> {
        self.readdirplus_in(dir, from, maxcount, maxcount)
    }

    /// As [`Nfs::readdirplus`], with memory for a reply of `room` bytes.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn readdirplus_in(
        &mut self,
        dir: &nfs_fh3,
        from: ListFrom,
        maxcount: u32,
        room: u32,
    ) -> Result<READDIRPLUS3resok<'static>, Failure> {
        let ListFrom { cookie, cookieverf } = from;
        let arguments =
            READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount: maxcount, maxcount };
        let reply = self.rpc.call(&Request::new(nfs3::READDIRPLUS, &arguments).asking(room))?;
        results::<READDIRPLUS3resok<'static>, READDIRPLUS3resfail>(&reply)
    }

    /// The state of a file system.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn fsstat(&mut self, root: &nfs_fh3) -> Result<FSSTAT3resok, Failure> {
        let arguments = FSSTAT3args { fsroot: root.clone() };
        self.plain::<FSSTAT3resok, FSSTAT3resfail>(nfs3::FSSTAT, &arguments)
    }

    /// The capabilities of a file system.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn fsinfo(&mut self, root: &nfs_fh3) -> Result<FSINFO3resok, Failure> {
        let arguments = FSINFO3args { fsroot: root.clone() };
        self.plain::<FSINFO3resok, FSINFO3resfail>(nfs3::FSINFO, &arguments)
    }

    /// Limits of paths.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn pathconf(&mut self, object: &nfs_fh3) -> Result<PATHCONF3resok, Failure> {
        let arguments = PATHCONF3args { object: object.clone() };
        self.plain::<PATHCONF3resok, PATHCONF3resfail>(nfs3::PATHCONF, &arguments)
    }

    /// Commits a file to stable storage.
    ///
    /// # Errors
    /// Why the call failed.
    pub fn commit(&mut self, file: &nfs_fh3) -> Result<writeverf3, Failure> {
        let arguments = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        let done = self.plain::<COMMIT3resok, COMMIT3resfail>(nfs3::COMMIT, &arguments)?;
        Ok(done.verf)
    }
}

/// A READ.
pub fn read_request(file: &nfs_fh3, offset: u64, count: u32, how: Take) -> Request {
    let arguments = READ3args { file: file.clone(), offset, count };
    Request::new(nfs3::READ, &arguments).taking(count, how)
}

/// The result of a READ.
///
/// # Errors
/// Why the call failed.
pub fn read_results(reply: &Reply) -> Result<Read, Failure> {
    let found = results::<READ3resok<'static>, READ3resfail>(reply)?;
    if found.count as usize != found.data.len() {
        return Err(Failure::Results(format!(
            "{} bytes, said to be {}",
            found.data.len(),
            found.count
        )));
    }
    let Reply { placed, sink, .. } = *reply;
    Ok(Read { data: found.data.into_owned(), eof: found.eof, placed, sink })
}

/// A WRITE.
pub fn write_request(
    file: &nfs_fh3,
    offset: u64,
    data: &[u8],
    stable: stable_how,
    how: Give,
) -> Request {
    let arguments = WRITE3args {
        file: file.clone(),
        offset,
        count: data.len() as u32,
        stable,
        data: Opaque::borrowed(&[]),
    };
    Request::new(nfs3::WRITE, &arguments).giving(data, how)
}

/// The successful results of a procedure.
///
/// # Errors
/// The status, or a decoding error.
pub fn results<T: Unpack, E: Unpack>(reply: &Reply) -> Result<T, Failure> {
    match decoded::<Nfs3Result<T, E>>(reply)? {
        Nfs3Result::Ok(results) => Ok(results),
        Nfs3Result::Err((status, _)) => Err(Failure::Status(status)),
    }
}

/// Results that are as long as the reply.
fn decoded<T: Unpack>(reply: &Reply) -> Result<T, Failure> {
    let (value, len) = T::unpack(&mut reply.results.as_slice())
        .map_err(|error| Failure::Results(error.to_string()))?;
    match reply.results.len().checked_sub(len) {
        Some(0) => Ok(value),
        more => Err(Failure::Results(format!("{more:?} bytes behind the results"))),
    }
}

/// A name in a directory.
pub fn at<'a>(dir: &nfs_fh3, name: &'a [u8]) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: name.into() }
}

fn handle(made: post_op_fh3) -> Result<nfs_fh3, Failure> {
    match made {
        post_op_fh3::Some(handle) => Ok(handle),
        post_op_fh3::None => Err(Failure::Results("no handle of what was made".into())),
    }
}
