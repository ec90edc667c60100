//! A stand-in for an NFSv3 server: a directory of the host, served without care for speed.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::{List, Opaque, Pack, Unpack};
use rpcrdma_engine::ulb::{CallHeader, Items, nfs3};
use rpcrdma_engine::{Answer, Call, Handler, Loan, Reply, Turn};

pub struct StandIn {
    root: PathBuf,
    /// Where each handle is.
    paths: HashMap<u64, PathBuf>,
    verifiers: HashMap<PathBuf, createverf3>,
    stock: Vec<Loan>,
}

/// Results, and data behind them.
struct Outcome(Vec<u8>, Option<Vec<u8>>);

impl StandIn {
    pub fn new(root: &Path) -> StandIn {
        let paths = HashMap::from([(ino(root), root.to_owned())]);
        StandIn { root: root.to_owned(), paths, verifiers: HashMap::new(), stock: Vec::new() }
    }

    pub fn handle_of(root: &Path) -> nfs_fh3 {
        nfs_fh3 { data: Opaque::owned(ino(root).to_be_bytes().to_vec()) }
    }

    fn handle(&mut self, path: &Path) -> nfs_fh3 {
        let number = ino(path);
        self.paths.insert(number, path.to_owned());
        nfs_fh3 { data: Opaque::owned(number.to_be_bytes().to_vec()) }
    }

    fn path(&self, handle: &nfs_fh3) -> Result<PathBuf, nfsstat3> {
        let number = handle.data.as_ref().try_into().map_err(|_| nfsstat3::NFS3ERR_BADHANDLE)?;
        let path = self.paths.get(&u64::from_be_bytes(number)).cloned();
        path.filter(|path| path.symlink_metadata().is_ok()).ok_or(nfsstat3::NFS3ERR_STALE)
    }

    fn name(&self, at: &diropargs3<'_>) -> Result<PathBuf, nfsstat3> {
        let dir = self.path(&at.dir)?;
        let name = at.name.as_ref();
        match name {
            b"." => Ok(dir),
            b".." if dir == self.root => Ok(dir),
            b".." => Ok(dir.parent().expect("below the root").to_owned()),
            name if name.len() > 255 => Err(nfsstat3::NFS3ERR_NAMETOOLONG),
            name => Ok(dir.join(std::ffi::OsStr::from_bytes(name))),
        }
    }

    fn run(&mut self, procedure: u32, items: &mut Items<'_>) -> Result<Outcome, nfsstat3> {
        if procedure == nfs3::NULL {
            return Ok(Outcome(Vec::new(), None));
        }
        let mut words = Vec::new();
        let mut data = Vec::new();
        if let nfs3::WRITE | nfs3::SYMLINK = procedure {
            // Up to the data.
            let fixed = if procedure == nfs3::WRITE { 16 } else { 0 };
            opaque(items, &mut words);
            if procedure == nfs3::SYMLINK {
                opaque(items, &mut words);
                for words_of in [1, 1, 1, 2, 2, 2] {
                    let set = word(items, &mut words);
                    let is_long = words_of == 2;
                    for _ in 0..if set == 0 || (set == 1 && is_long) { 0 } else { words_of } {
                        word(items, &mut words);
                    }
                }
            }
            for _ in 0..fixed / 4 {
                word(items, &mut words);
            }
            let item = items.data().expect("data");
            data.extend(item.slices().flatten());
            words.extend([0; 4]);
        } else {
            while let Ok(slice) = items.reader().some(usize::MAX) {
                words.extend(slice);
            }
        }
        items.end().expect("nothing else was placed");
        self.execute(procedure, &words, &data)
    }

    fn execute(&mut self, procedure: u32, words: &[u8], data: &[u8]) -> Result<Outcome, nfsstat3> {
        match procedure {
            nfs3::GETATTR => {
                let path = self.path(&args::<GETATTR3args>(words).object)?;
                ok(&GETATTR3resok { obj_attributes: attributes(&path)? })
            }
            nfs3::SETATTR => {
                let SETATTR3args { object, new_attributes, .. } = args(words);
                self.set(&self.path(&object)?, &new_attributes)?;
                ok(&SETATTR3resok { obj_wcc: wcc_data::default() })
            }
            nfs3::LOOKUP => {
                let path = self.name(&args::<LOOKUP3args>(words).what)?;
                let found = attributes(&path)?;
                let object = self.handle(&path);
                ok(&LOOKUP3resok {
                    object,
                    obj_attributes: post_op_attr::Some(found),
                    dir_attributes: post_op_attr::None,
                })
            }
            nfs3::ACCESS => {
                let ACCESS3args { access, .. } = args(words);
                ok(&ACCESS3resok { obj_attributes: post_op_attr::None, access })
            }
            nfs3::READLINK => {
                let path = self.path(&args::<READLINK3args>(words).symlink)?;
                let target = fs::read_link(&path).map_err(status)?.into_os_string().into_vec();
                Ok(Outcome(vec![0, 0, 0, 0, 0, 0, 0, 0], Some(target)))
            }
            nfs3::READ => self.read(args(words)),
            nfs3::WRITE => {
                let WRITE3args { file, offset, stable, .. } = args(words);
                let file =
                    OpenOptions::new().write(true).open(self.path(&file)?).map_err(status)?;
                file.write_all_at(data, offset).map_err(status)?;
                ok(&WRITE3resok {
                    file_wcc: wcc_data::default(),
                    count: data.len() as u32,
                    committed: stable,
                    verf: writeverf3(*b"standing"),
                })
            }
            nfs3::CREATE => self.create(args(words)),
            nfs3::MKDIR => {
                let MKDIR3args { where_, attributes } = args(words);
                let path = self.name(&where_)?;
                fs::create_dir(&path).map_err(status)?;
                self.set(&path, &attributes)?;
                self.made(&path)
            }
            nfs3::SYMLINK => {
                let path = self.name(&args::<SYMLINK3args>(words).where_)?;
                symlink(std::ffi::OsStr::from_bytes(data), &path).map_err(status)?;
                self.made(&path)
            }
            nfs3::MKNOD => {
                let path = self.name(&args::<MKNOD3args>(words).where_)?;
                let done = std::process::Command::new("mkfifo").arg(&path).status();
                done.map_err(status)?;
                self.made(&path)
            }
            nfs3::REMOVE => {
                fs::remove_file(self.name(&args::<REMOVE3args>(words).object)?).map_err(status)?;
                ok(&wcc_data::default())
            }
            nfs3::RMDIR => {
                fs::remove_dir(self.name(&args::<RMDIR3args>(words).object)?).map_err(status)?;
                ok(&wcc_data::default())
            }
            nfs3::RENAME => {
                let RENAME3args { from, to } = args(words);
                fs::rename(self.name(&from)?, self.name(&to)?).map_err(status)?;
                ok(&RENAME3resok {
                    fromdir_wcc: wcc_data::default(),
                    todir_wcc: wcc_data::default(),
                })
            }
            nfs3::LINK => {
                let LINK3args { file, link } = args(words);
                fs::hard_link(self.path(&file)?, self.name(&link)?).map_err(status)?;
                ok(&LINK3resok {
                    file_attributes: post_op_attr::None,
                    linkdir_wcc: wcc_data::default(),
                })
            }
            nfs3::READDIR | nfs3::READDIRPLUS => self.list(procedure, words),
            nfs3::FSSTAT => ok(&FSSTAT3resok {
                obj_attributes: post_op_attr::None,
                tbytes: 3,
                fbytes: 2,
                abytes: 1,
                tfiles: 3,
                ffiles: 2,
                afiles: 1,
                invarsec: 0,
            }),
            nfs3::FSINFO => ok(&FSINFO3resok {
                obj_attributes: post_op_attr::None,
                rtmax: 256 << 10,
                rtpref: 4096,
                rtmult: 1,
                wtmax: 256 << 10,
                wtpref: 4096,
                wtmult: 1,
                dtpref: 4096,
                maxfilesize: 1 << 40,
                time_delta: nfstime3::default(),
                properties: 0,
            }),
            nfs3::PATHCONF => ok(&PATHCONF3resok {
                obj_attributes: post_op_attr::None,
                linkmax: 100,
                name_max: 255,
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            }),
            nfs3::COMMIT => {
                ok(&COMMIT3resok { file_wcc: wcc_data::default(), verf: writeverf3(*b"standing") })
            }
            _ => Err(nfsstat3::NFS3ERR_NOTSUPP),
        }
    }

    fn read(&mut self, READ3args { file, offset, count }: READ3args) -> Result<Outcome, nfsstat3> {
        let path = self.path(&file)?;
        let size = attributes(&path)?.size;
        if path.is_dir() {
            return Err(nfsstat3::NFS3ERR_ISDIR);
        }
        let end = size.min(offset + u64::from(count));
        let mut data = vec![0; end.saturating_sub(offset) as usize];
        File::open(path).map_err(status)?.read_exact_at(&mut data, offset).map_err(status)?;
        let mut head = packed(&(nfsstat3::NFS3_OK as u32));
        head.extend(packed(&post_op_attr::None));
        head.extend(packed(&(data.len() as u32)));
        head.extend(packed(&(end >= size)));
        Ok(Outcome(head, Some(data)))
    }

    fn create(
        &mut self,
        CREATE3args { where_, how }: CREATE3args<'_>,
    ) -> Result<Outcome, nfsstat3> {
        let path = self.name(&where_)?;
        match how {
            createhow3::UNCHECKED(new) => {
                OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(&path)
                    .map_err(status)?;
                self.set(&path, &new)?;
            }
            createhow3::GUARDED(new) => {
                File::create_new(&path).map_err(status)?;
                self.set(&path, &new)?;
            }
            createhow3::EXCLUSIVE(verifier) => {
                if self.verifiers.get(&path) != Some(&verifier) {
                    File::create_new(&path).map_err(status)?;
                    self.verifiers.insert(path.clone(), verifier);
                }
            }
        }
        self.made(&path)
    }

    fn set(&self, path: &Path, new: &sattr3) -> Result<(), nfsstat3> {
        if let set_mode3::Some(mode) = new.mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(status)?;
        }
        if let set_size3::Some(size) = new.size {
            let file = OpenOptions::new().write(true).open(path).map_err(status)?;
            file.set_len(size).map_err(status)?;
        }
        if let set_mtime::SET_TO_CLIENT_TIME(time) = new.mtime {
            File::open(path).map_err(status)?.set_modified(time.into()).map_err(status)?;
        }
        Ok(())
    }

    fn made(&mut self, path: &Path) -> Result<Outcome, nfsstat3> {
        let obj = post_op_fh3::Some(self.handle(path));
        let obj_attributes = post_op_attr::Some(attributes(path)?);
        ok(&MKDIR3resok { obj, obj_attributes, dir_wcc: wcc_data::default() })
    }

    fn list(&mut self, procedure: u32, words: &[u8]) -> Result<Outcome, nfsstat3> {
        let is_plus = procedure == nfs3::READDIRPLUS;
        let (dir, cookie, max) = if is_plus {
            let READDIRPLUS3args { dir, cookie, maxcount, .. } = args(words);
            (dir, cookie, maxcount)
        } else {
            let READDIR3args { dir, cookie, count, .. } = args(words);
            (dir, cookie, count)
        };
        let path = self.path(&dir)?;
        let names: Result<Vec<_>, _> = fs::read_dir(&path).map_err(status)?.collect();
        let mut names = names.map_err(status)?;
        names.sort_unstable_by_key(fs::DirEntry::file_name);
        let (mut entries, mut plus, mut len, mut eof) = (Vec::new(), Vec::new(), 104, true);
        for (index, entry) in names.into_iter().enumerate().skip(cookie as usize) {
            let name: filename3<'static> = entry.file_name().into_vec().into();
            let (fileid, cookie) = (ino(&entry.path()), index as u64 + 1);
            len += if is_plus {
                plus.push(entryplus3 {
                    fileid,
                    name,
                    cookie,
                    name_attributes: post_op_attr::Some(attributes(&entry.path())?),
                    name_handle: post_op_fh3::Some(self.handle(&entry.path())),
                });
                plus.last().map_or(0, |entry| entry.packed_size() + 4)
            } else {
                entries.push(entry3 { fileid, name, cookie });
                entries.last().map_or(0, |entry| entry.packed_size() + 4)
            };
            if len > max as usize {
                entries.pop();
                plus.pop();
                eof = false;
                break;
            }
        }
        if is_plus {
            return ok(&READDIRPLUS3resok {
                dir_attributes: post_op_attr::Some(attributes(&path)?),
                cookieverf: cookieverf3::default(),
                reply: dirlistplus3 { entries: List(plus), eof },
            });
        }
        ok(&READDIR3resok {
            dir_attributes: post_op_attr::Some(attributes(&path)?),
            cookieverf: cookieverf3::default(),
            reply: dirlist3 { entries: List(entries), eof },
        })
    }
}

impl Handler for StandIn {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let mut reader = call.reader();
        let header = CallHeader::read(&mut reader).expect("a header");
        let bound = nfs3::BINDING.bind(header.procedure, header.protection).expect("a procedure");
        let mut items = bound.arguments(&call, reader);
        let outcome = self.run(header.procedure, &mut items);
        for word in [0, 0, 0, 0] {
            reply.payload().put_u32(word);
        }
        let mut reply = bound.reply(reply);
        match outcome {
            Ok(Outcome(words, None)) => reply.payload().put_fixed(&words),
            Ok(Outcome(words, Some(data))) => {
                reply.payload().put_fixed(&words);
                let mut loan = self.stock.pop().expect("a buffer");
                loan[..data.len()].copy_from_slice(&data);
                loan.truncate(data.len());
                reply.result(loan).expect("it may be placed");
            }
            Err(status) => {
                reply.payload().put_u32(status as u32);
                let words = match header.procedure {
                    nfs3::GETATTR => 0,
                    nfs3::WRITE
                    | nfs3::SETATTR
                    | nfs3::COMMIT
                    | nfs3::CREATE
                    | nfs3::MKDIR
                    | nfs3::SYMLINK
                    | nfs3::MKNOD
                    | nfs3::REMOVE
                    | nfs3::RMDIR => 2,
                    nfs3::LINK => 3,
                    nfs3::RENAME => 4,
                    _ => 1,
                };
                for _ in 0..words {
                    reply.payload().put_bool(false);
                }
            }
        }
        reply.send()
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        while self.stock.len() < 40
            && let Some(buffer) = turn.buffer()
        {
            self.stock.push(buffer);
        }
    }
}

fn word(items: &mut Items<'_>, words: &mut Vec<u8>) -> u32 {
    let word = items.reader().u32().expect("a word");
    words.extend(word.to_be_bytes());
    word
}

fn opaque(items: &mut Items<'_>, words: &mut Vec<u8>) {
    let len = word(items, words);
    for _ in 0..len.div_ceil(4) {
        word(items, words);
    }
}

fn args<T: Unpack>(words: &[u8]) -> T {
    T::unpack(&mut &*words).expect("arguments").0
}

fn packed(value: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.pack(&mut bytes).expect("an XDR");
    bytes
}

fn ok(value: &impl Pack) -> Result<Outcome, nfsstat3> {
    let mut bytes = vec![0; 4];
    value.pack(&mut bytes).expect("an XDR");
    Ok(Outcome(bytes, None))
}

fn ino(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |is| is.ino())
}

fn attributes(path: &Path) -> Result<fattr3, nfsstat3> {
    let is = fs::symlink_metadata(path).map_err(status)?;
    let kind = match is.mode() & 0o170_000 {
        0o040_000 => ftype3::NF3DIR,
        0o120_000 => ftype3::NF3LNK,
        0o010_000 => ftype3::NF3FIFO,
        _ => ftype3::NF3REG,
    };
    let time = |seconds: i64, nanoseconds: i64| nfstime3 {
        seconds: seconds as u32,
        nseconds: nanoseconds as u32,
    };
    Ok(fattr3 {
        type_: kind,
        mode: is.mode() & 0o7777,
        nlink: is.nlink() as u32,
        uid: is.uid(),
        gid: is.gid(),
        size: is.size(),
        used: is.blocks() * 512,
        rdev: specdata3::default(),
        fsid: is.dev(),
        fileid: is.ino(),
        atime: time(is.atime(), is.atime_nsec()),
        mtime: time(is.mtime(), is.mtime_nsec()),
        ctime: time(is.ctime(), is.ctime_nsec()),
    })
}

fn status(error: io::Error) -> nfsstat3 {
    match error.raw_os_error() {
        Some(2) => nfsstat3::NFS3ERR_NOENT,
        Some(17) => nfsstat3::NFS3ERR_EXIST,
        Some(39) => nfsstat3::NFS3ERR_NOTEMPTY,
        Some(22) => nfsstat3::NFS3ERR_INVAL,
        _ => nfsstat3::NFS3ERR_IO,
    }
}
