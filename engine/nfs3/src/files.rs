//! Procedures on files of every type: GETATTR, SETATTR, ACCESS, READLINK; and on the file system:
//! FSSTAT, FSINFO, PATHCONF.

use nfs3_types::nfs3::{
    ACCESS3_DELETE, ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ,
    ACCESS3args, ACCESS3resfail, ACCESS3resok, FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK,
    FSF3_SYMLINK, FSINFO3args, FSINFO3resfail, FSINFO3resok, FSSTAT3args, FSSTAT3resfail,
    FSSTAT3resok, GETATTR3args, GETATTR3resok, Nfs3Option, PATHCONF3args, PATHCONF3resfail,
    PATHCONF3resok, READLINK3args, READLINK3resfail, SETATTR3args, SETATTR3resfail, SETATTR3resok,
    nfs_fh3, nfstime3, post_op_attr,
};
use nfs3_types::xdr_codec::{Void, XdrCodec};
use rustix::fs::{FileType, fstatvfs, readlinkat_raw};

use crate::attributes::{Attributes, some};
use crate::changes::apply;
use crate::credentials::Identity;
use crate::export::{BLOCK, Export};
use crate::names::NAME_MAX;
use crate::ranges::SIZE_MAX;
use crate::rights::Rights;
use crate::status::{Results, Status, bare, status};

/// GETATTR
pub fn getattr(export: &Export, arguments: &GETATTR3args) -> Results<GETATTR3resok, Void> {
    let attributes = export.find(&arguments.object).and_then(|node| node.attributes());
    attributes_of(&attributes.map_err(|status| (status, Void))?)
}

/// The results of GETATTR.
pub fn attributes_of(attributes: &Attributes) -> Results<GETATTR3resok, Void> {
    Ok(GETATTR3resok { obj_attributes: attributes.fattr() })
}

/// SETATTR. The results have no `pre_op_attr`: a WRITE, or a LINK or REMOVE of a name of the file,
/// may change the file at the same time, and the client would take that change for its own.
pub fn setattr(
    export: &Export,
    who: &Identity,
    arguments: &SETATTR3args,
) -> Results<SETATTR3resok, SETATTR3resfail> {
    let node = export.find(&arguments.object).map_err(bare)?;
    let _alone = export.change(&node);
    let changed = node.attributes().and_then(|now| {
        if let Nfs3Option::Some(guard) = arguments.guard
            && guard != now.changed().1
        {
            return Err(Status::NFS3ERR_NOT_SYNC);
        }
        let storage = export.storage(&node)?;
        apply(export.nodes(), &node, &arguments.new_attributes, who)?;
        storage.persist()
    });
    let obj_wcc = node.wcc(some(None));
    match changed {
        Ok(()) => Ok(SETATTR3resok { obj_wcc }),
        Err(status) => Err((status, SETATTR3resfail { obj_wcc })),
    }
}

/// ACCESS
pub fn access(
    export: &Export,
    who: &Identity,
    arguments: &ACCESS3args,
) -> Results<ACCESS3resok, ACCESS3resfail> {
    let node = export.find(&arguments.object).map_err(bare)?;
    let now = node.attributes().map_err(bare)?;
    let failed = |status| (status, ACCESS3resfail { obj_attributes: some(Some(now.fattr())) });
    let rights = Rights::of(&node, who, &now).map_err(failed)?;
    granted(&now, rights, arguments.access)
}

/// The results of ACCESS: those of the requested rights that the caller has.
pub fn granted(
    attributes: &Attributes,
    rights: Rights,
    asked: u32,
) -> Results<ACCESS3resok, ACCESS3resfail> {
    let Rights { read, write, search } = rights;
    let changes = ACCESS3_MODIFY | ACCESS3_EXTEND;
    let (writing, searching) = match attributes.kind() {
        FileType::Directory => (changes | ACCESS3_DELETE, ACCESS3_LOOKUP),
        _ => (changes, ACCESS3_EXECUTE),
    };
    let answers = [(read, ACCESS3_READ), (write, writing), (search, searching)];
    let granted = answers.into_iter().filter(|(answer, _)| answer.is_ok());
    let granted = granted.fold(0, |all, (_, bits)| all | bits);
    Ok(ACCESS3resok { obj_attributes: some(Some(attributes.fattr())), access: granted & asked })
}

/// The results of READLINK in front of the path.
#[derive(Debug, XdrCodec)]
pub struct ReadlinkHead {
    /// The attributes of the link.
    pub symlink_attributes: post_op_attr,
}

/// READLINK: writes the path to `into`, and returns its length.
pub fn readlink(
    export: &Export,
    arguments: &READLINK3args,
    into: &mut [u8],
) -> Results<(ReadlinkHead, usize), READLINK3resfail> {
    let node = export.find(&arguments.symlink).map_err(bare)?;
    let read = match node.kind() {
        FileType::Symlink => readlinkat_raw(node.fd(), c"", into).map_err(status),
        _ => Err(Status::NFS3ERR_INVAL),
    };
    let symlink_attributes = node.after();
    match read {
        Ok(len) => Ok((ReadlinkHead { symlink_attributes }, len)),
        Err(status) => Err((status, READLINK3resfail { symlink_attributes })),
    }
}

/// FSSTAT
pub fn fsstat(export: &Export, arguments: &FSSTAT3args) -> Results<FSSTAT3resok, FSSTAT3resfail> {
    let obj_attributes = seen(export, &arguments.fsroot).map_err(bare)?;
    let state = fstatvfs(export.nodes().root().fd()).map_err(|error| bare(status(error)))?;
    let bytes = |blocks: u64| blocks.saturating_mul(state.f_frsize);
    Ok(FSSTAT3resok {
        obj_attributes,
        tbytes: bytes(state.f_blocks),
        fbytes: bytes(state.f_bfree),
        abytes: bytes(state.f_bavail),
        tfiles: state.f_files,
        ffiles: state.f_ffree,
        afiles: state.f_favail,
        invarsec: 0,
    })
}

/// FSINFO: the limits of data lengths follow from the engine's configuration.
pub fn fsinfo(export: &Export, arguments: &FSINFO3args) -> Results<FSINFO3resok, FSINFO3resfail> {
    let limits = export.limits();
    Ok(FSINFO3resok {
        obj_attributes: seen(export, &arguments.fsroot).map_err(bare)?,
        rtmax: limits.read_max,
        rtpref: limits.read_max,
        rtmult: BLOCK,
        wtmax: limits.write_max,
        wtpref: limits.write_max,
        wtmult: BLOCK,
        dtpref: limits.list_max,
        maxfilesize: SIZE_MAX,
        time_delta: nfstime3 { seconds: 0, nseconds: 1 },
        properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
    })
}

/// PATHCONF
pub fn pathconf(
    export: &Export,
    arguments: &PATHCONF3args,
) -> Results<PATHCONF3resok, PATHCONF3resfail> {
    Ok(PATHCONF3resok {
        obj_attributes: seen(export, &arguments.object).map_err(bare)?,
        linkmax: LINKS_MAX,
        name_max: NAME_MAX as u32,
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    })
}

fn seen(export: &Export, handle: &nfs_fh3) -> Result<post_op_attr, Status> {
    export.find(handle).map(|node| node.after())
}

/// The number of hard links that every file system supports.
const LINKS_MAX: u32 = 32_000;
