//! Tests with one more row: the table is the only source of everything that enumerates properties.

use super::*;
use known::{Known, PropId, PropVal, Property};
use set::{NewValueError, PropIds, PropValues, decode_set};
use std::vec::Vec;

#[path = "set.rs"]
#[expect(clippy::duplicate_mod, reason = "it is compiled for another table")]
#[expect(dead_code, reason = "not all of it is called here")]
mod set;

mod known {
    use super::super::table::MayChange;
    use super::super::value::{
        BackwardSupport, Bits, Bool, Codec, Level, RtrSupport, Structure, Word,
    };
    use crate::cursor::{Reader, Writer};
    use crate::error::{DecodeError, NoRoom};
    use crate::numbers::{default, limit};
    use crate::rtr::structure::{RecvStructure, StructureError};

    /// Eight bytes, where every other property that may change has four.
    struct Hyper;

    impl Codec for Hyper {
        type Value = u64;

        const LENS: [usize; 2] = [8; 2];

        fn decode(reader: &mut Reader<'_>) -> Result<Result<u64, StructureError>, DecodeError> {
            reader.u64().map(Ok)
        }

        fn encode(value: &u64, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
            writer.put_u64(*value)
        }
    }

    table! { properties
        /// In the range for experiments.
        4_294_967_040 CLOCK "clock": Clock(u64) as Hyper, Some(7), Both;
    }
}

const BYTES: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const VALUE: PropVal<'_> = PropVal { id: PropId::CLOCK, data: &BYTES };
const PROPERTY: Property<'_> = Property::Clock(0x0102_0304_0506_0708);

fn set(values: &[PropVal<'_>]) -> Vec<u8> {
    let mut buffer = [0; 64];
    let mut writer = Writer::new(&mut buffer);
    Array::from_slice(values).encode(&mut writer).unwrap();
    writer.written().to_vec()
}

#[test]
fn a_row_makes_a_property_known() {
    assert_eq!(Known::COUNT, super::Known::COUNT + 1);
    assert_eq!(Known::of(PropId::CLOCK), Some(Known::Clock));
    assert!(Known::ALL.into_iter().all(|known| Known::of(known.id()) == Some(known)));
    assert_eq!((Known::Clock.id(), Known::Clock.name()), (PropId::CLOCK, "clock"));
    assert_eq!(Property::Default(PropId::CLOCK).in_effect(), Property::Clock(7));
    assert_eq!(super::Known::of(super::PropId(PropId::CLOCK.0)), None);
    #[cfg(feature = "text")]
    assert_eq!(std::format!("{}", Property::Clock(9).shown().unwrap()), "9");
}

#[test]
fn a_row_defines_the_codec_and_its_bounds() {
    let mut buffer = [0; Property::LEN_MAX];
    assert_eq!(PROPERTY.encode(&mut buffer), Ok(VALUE));
    assert_eq!(Property::decode(VALUE), Ok(PROPERTY));
    let (short, long) = (PropVal { data: &[0; 4], ..VALUE }, PropVal { data: &[0; 12], ..VALUE });
    assert_eq!(Property::decode(short), Err(DecodeError::Truncated { at: 0 }));
    assert_eq!(Property::decode(long), Err(DecodeError::Trailing { at: 8, extra: 4 }));
    let empty = PropVal { data: &[], ..VALUE };
    assert_eq!(Property::decode(empty), Ok(Property::Default(PropId::CLOCK)));
    assert!(decode_set(&mut Reader::new(&set(&[VALUE]))).is_ok());
    assert!(decode_set(&mut Reader::new(&set(&[short]))).is_err());
}

#[test]
fn a_property_of_the_row_stands_once_in_a_set() {
    let twice = set(&[VALUE, PropVal { id: PropId::RTR_SUPPORT, data: &[] }, VALUE]);
    let error = DecodeError::DuplicateProperty { id: PropId::CLOCK.0 };
    assert_eq!(decode_set(&mut Reader::new(&twice)), Err(error));
    assert!(super::decode_set(&mut Reader::new(&twice)).is_ok(), "unknown to the other table");
}

#[test]
fn every_property_has_a_bit_of_its_own() {
    let mut ids = PropIds::NONE;
    for (known, index) in Known::ALL.into_iter().zip(0..) {
        assert!(!ids.contains(known.id()));
        ids.insert(known.id());
        assert!(ids.contains(known.id()));
        assert_eq!(ids.bits(), u32::MAX >> (31 - index));
    }
    assert!(ids.iter().eq(Known::ALL.map(Known::id)));
    assert!(!PropIds::OWN_FIXED.contains(PropId::CLOCK));
}

#[test]
fn every_property_that_may_change_keeps_its_new_value() {
    let mut values = PropValues::NONE;
    for known in Known::ALL {
        let value = if known == Known::Clock { PROPERTY } else { known.default() };
        let taken = values.insert(&value);
        match known.may_change() {
            MayChange::Neither => assert_eq!(taken, Err(NewValueError::Fixed)),
            MayChange::Peer | MayChange::Both => {
                assert_eq!(taken, Ok(()));
                assert_eq!(values.value(known.id()), Some(value));
            }
        }
    }
    assert_eq!(values.encoded().last(), Some(VALUE));
    assert!(
        values
            .encoded()
            .all(|value| Some(Property::decode(value).unwrap()) == values.value(value.id))
    );
    assert_eq!(values.insert(&PROPERTY), Err(NewValueError::Twice));
}
