//! XDR that is written before it is sent: short in place, longer in memory of its own.

use core::ops::Deref;

use arrayvec::ArrayVec;

use super::values::put_values;

/// XDR of any length. The first `N` bytes need no allocation.
///
/// ```
/// use rpcrdma::Finished;
///
/// let mut finished = Finished::default();
/// finished.head.put_bool(true);
/// finished.head.put_string("a name");
/// assert_eq!(finished.head.len(), 4 + 4 + 8);
/// ```
#[derive(Debug, Clone)]
pub struct XdrBytes<const N: usize>(Place<N>);

#[derive(Debug, Clone)]
enum Place<const N: usize> {
    Here(ArrayVec<u8, N>),
    Apart(Vec<u8>),
}

impl<const N: usize> XdrBytes<N> {
    put_values!();

    /// Writes fixed-length opaque data: bytes, padding.
    pub fn put_fixed(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
        self.extend_from_slice(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
    }

    /// Adds bytes without padding.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let bytes = match &mut self.0 {
            Place::Here(here) => match here.try_extend_from_slice(bytes) {
                Ok(()) => return,
                Err(_) => [&here[..], bytes].concat(),
            },
            Place::Apart(apart) => return apart.extend_from_slice(bytes),
        };
        self.0 = Place::Apart(bytes);
    }
}

impl<const N: usize> Default for XdrBytes<N> {
    fn default() -> XdrBytes<N> {
        XdrBytes(Place::Here(ArrayVec::new()))
    }
}

impl<const N: usize> Deref for XdrBytes<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Here(here) => here,
            Place::Apart(apart) => apart,
        }
    }
}

/// Bytes without padding.
impl<const N: usize> Extend<u8> for XdrBytes<N> {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        bytes.into_iter().for_each(|byte| self.extend_from_slice(&[byte]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PayloadReader;

    #[test]
    fn what_does_not_fit_in_its_place_goes_on_beside_it() {
        let mut bytes = XdrBytes::<8>::default();
        let mut all = Vec::new();
        for at in 0_u32..20 {
            bytes.extend(at.to_be_bytes());
            all.extend(at.to_be_bytes());
            assert_eq!(bytes[..], all);
            assert_eq!(matches!(bytes.0, Place::Here(_)), all.len() <= 8, "{}", all.len());
        }
        bytes.put_fixed(&[7; 5]);
        all.extend([7, 7, 7, 7, 7, 0, 0, 0]);
        assert_eq!(bytes[..], all);
    }

    #[test]
    fn every_value_is_read_as_it_was_written() {
        let mut bytes = XdrBytes::<16>::default();
        bytes.put_i32(-2);
        bytes.put_i64(i64::MIN);
        bytes.put_u64(u64::MAX - 1);
        bytes.put_bool(true);
        bytes.put_string("été");
        bytes.put_optional(Some(9), XdrBytes::put_u32);
        bytes.put_optional(None, XdrBytes::put_u32);
        bytes.put_fixed(b"fixed");
        bytes.put_opaque(b"opaque");
        bytes.put_u32(5);
        let mut reader = PayloadReader::of(&bytes);
        assert_eq!((reader.i32(), reader.i64()), (Ok(-2), Ok(i64::MIN)));
        assert_eq!((reader.u64(), reader.bool()), (Ok(u64::MAX - 1), Ok(true)));
        assert_eq!(reader.string(5).as_deref(), Ok("été"));
        assert_eq!(reader.optional(PayloadReader::u32), Ok(Some(9)));
        assert_eq!(reader.optional(PayloadReader::u32), Ok(None));
        let mut fixed = [0; 5];
        assert_eq!(reader.fixed_into(&mut fixed), Ok(()));
        assert_eq!(&fixed, b"fixed");
        assert_eq!(reader.opaque_vec(6), Ok(b"opaque".to_vec()));
        assert_eq!((reader.u32(), reader.position()), (Ok(5), bytes.len()));
    }
}
