//! Credentials and verifiers of RPC headers (RFC 5531 8.2), and the body of AUTH_SYS.

use crate::array::Array;
use crate::cursor::{Reader, Writer, pad_len};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::limit::{AUTH_BODY_MAX, AUTH_SYS_GROUPS_MAX, AUTH_SYS_MACHINE_MAX};
use crate::numbers::onc::auth_flavor;

/// Credentials or a verifier (`opaque_auth`, RFC 5531 8.2): of at most 400 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    flavor: u32,
    body: &'a [u8],
}

impl<'a> Auth<'a> {
    /// AUTH_NONE: without content.
    pub const NONE: Self = Self { flavor: auth_flavor::NONE, body: &[] };

    /// The longest encoding in bytes.
    pub const LEN_MAX: usize = 8 + AUTH_BODY_MAX as usize;

    /// Credentials or a verifier of this flavor; `None` if the body has more than 400 bytes.
    #[must_use]
    pub const fn new(flavor: u32, body: &'a [u8]) -> Option<Self> {
        if body.len() <= AUTH_BODY_MAX as usize { Some(Self { flavor, body }) } else { None }
    }

    /// The flavor (`flavor`).
    #[must_use]
    pub const fn flavor(&self) -> u32 {
        self.flavor
    }

    /// The body (`body`).
    #[must_use]
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let flavor = reader.u32()?;
        let body = opaque(reader, AUTH_BODY_MAX)?;
        Ok(Self { flavor, body })
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.flavor)?;
        writer.put_opaque(self.body)
    }

    /// The service that RPCSEC_GSS credentials name, behind version, procedure and sequence number
    /// (`rpc_gss_service_t`, RFC 2203 5). `None` if they are cut off.
    #[must_use]
    pub fn gss_service(&self) -> Option<u32> {
        self.body.get(12..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
    }
}

/// The body of AUTH_SYS credentials (`authsys_parms`, RFC 5531, Appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// An arbitrary number (`stamp`).
    pub stamp: u32,
    /// The name of the caller's machine (`machinename`): at most 255 bytes.
    pub machine: &'a [u8],
    /// The user (`uid`).
    pub uid: u32,
    /// The user's first group (`gid`).
    pub gid: u32,
    /// Further groups of the user (`gids`): at most 16.
    pub groups: Array<'a, u32>,
}

impl<'a> AuthSys<'a> {
    /// Decodes the body of credentials. Bytes after it are ignored.
    ///
    /// # Errors
    /// [`DecodeError`] if it is truncated, or the name or the groups exceed their limits.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let stamp = reader.u32()?;
        let machine = opaque(&mut reader, AUTH_SYS_MACHINE_MAX)?;
        let [uid, gid] = reader.words()?;
        let groups = Array::decode(&mut reader, AUTH_SYS_GROUPS_MAX)?;
        Ok(Self { stamp, machine, uid, gid, groups })
    }

    /// Puts the body of credentials.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.stamp)?;
        writer.put_opaque(self.machine)?;
        writer.put_words::<2, 8>([self.uid, self.gid])?;
        self.groups.encode(writer)
    }
}

/// Takes a counted opaque and its padding, which may contain any bytes: libtirpc's `xdr_callmsg`
/// does not clear it.
#[inline]
fn opaque<'a>(reader: &mut Reader<'a>, max: u32) -> Result<&'a [u8], DecodeError> {
    let count = reader.u32()?;
    if count > max {
        return Err(DecodeError::TooMany { at: reader.at_last_word(), count, max });
    }
    let data = reader.inner(count as usize)?.rest();
    reader.inner(pad_len(data.len()))?;
    Ok(data)
}
