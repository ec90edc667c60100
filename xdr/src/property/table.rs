//! What is derived from the rows of a table of properties: numbers, names, values and codecs.

/// Whether a property may change while a connection is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayChange {
    /// Neither the peer's nor ours (wire.md E21).
    Neither,
    /// The peer's. Ours stays as it was stated (wire.md P11).
    Peer,
    /// The peer's and ours.
    Both,
}

/// Defines `PropId`, `Known`, `Property` and `PropVal`. A row is
///
/// ```text
///   /// Documentation.
///   number NAME "text": Variant(type of the value) as codec, default, may change;
/// ```
/// The default is an `Option`: none where it depends on other properties.
macro_rules! properties {
    ($(
        $(#[doc = $doc:expr])*
        $number:literal $NAME:ident $text:literal: $Name:ident($value:ty) as $codec:ty,
        $default:expr, $may_change:ident;
    )*) => {
        /// Which property (`propid`, \[XCHAR\] 2.1; numbered as wire.md N2 says).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct PropId(pub u32);

        impl PropId {
            $($(#[doc = $doc])* pub const $NAME: Self = Self($number);)*
        }

        /// A property that we know: a row of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Known {
            $($(#[doc = $doc])* $Name,)*
        }

        impl Known {
            /// All of them, in the order of the table.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$Name),*];

            /// How many there are.
            pub const COUNT: usize = [$(PropId::$NAME),*].len();

            /// The property with this number, if we know it.
            #[must_use]
            pub const fn of(id: PropId) -> Option<Self> {
                match id {
                    $(PropId::$NAME => Some(Self::$Name),)*
                    PropId(_) => None,
                }
            }

            /// Its number.
            #[must_use]
            pub const fn id(self) -> PropId {
                match self { $(Self::$Name => PropId::$NAME,)* }
            }

            /// Its name in logs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Name => $text,)* }
            }

            /// Whether it may change while a connection is up.
            #[must_use]
            pub const fn may_change(self) -> MayChange {
                match self { $(Self::$Name => MayChange::$may_change,)* }
            }

            /// Bytes of the shortest value and of the longest, without the padding.
            pub(crate) const fn lens(self) -> [usize; 2] {
                match self { $(Self::$Name => <$codec as Codec>::LENS,)* }
            }

            /// What holds of a peer that does not state it: [`Property::Default`] if that depends on
            /// other properties.
            #[must_use]
            pub const fn default(self) -> Property<'static> {
                match self {
                    $(Self::$Name => {
                        const DEFAULT: Option<$value> = $default;
                        match DEFAULT {
                            Some(value) => Property::$Name(value),
                            None => Property::Default(PropId::$NAME),
                        }
                    })*
                }
            }

            /// Takes a value that has bytes.
            pub(super) fn decode(self, reader: &mut Reader<'_>) -> Result<Property<'static>, DecodeError> {
                Ok(match self {
                    $(Self::$Name => match <$codec as Codec>::decode(reader)? {
                        Ok(value) => Property::$Name(value),
                        Err(why) => Property::Unusable(PropId::$NAME, why),
                    },)*
                })
            }
        }

        /// One value, still as bytes (`propval`, \[XCHAR\] 2.1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct PropVal<'a> {
            /// Which property (`pv_which`).
            pub id: PropId,
            /// The XDR of the value, or nothing for the default (`pv_data`; wire.md P3).
            pub data: &'a [u8],
        }

        /// A value, understood.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Property<'a> {
            $($(#[doc = $doc])* $Name($value),)*
            /// A known property at its default: the value had no bytes (wire.md P3).
            Default(PropId),
            /// A value that cannot be used, to be ignored and counted (wire.md E19, E20).
            Unusable(PropId, StructureError),
            /// A property that we do not know, to be skipped (wire.md P4).
            Unknown(PropVal<'a>),
        }

        impl Property<'_> {
            /// Which property this is.
            #[must_use]
            pub const fn id(&self) -> PropId {
                match self {
                    $(Self::$Name(_) => PropId::$NAME,)*
                    Self::Default(id) | Self::Unusable(id, _) => *id,
                    Self::Unknown(value) => value.id,
                }
            }

            /// Puts the bytes of the value; none for a default and for a value that cannot be used.
            pub(super) fn encode_data(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                match self {
                    $(Self::$Name(value) => <$codec as Codec>::encode(value, writer),)*
                    Self::Default(_) | Self::Unusable(..) => Ok(()),
                    Self::Unknown(value) => writer.put_fixed(value.data),
                }
            }

            /// The value, for people; none where there are only bytes or not even these.
            #[cfg(feature = "text")]
            pub(crate) fn shown(&self) -> Option<&dyn core::fmt::Display> {
                match self {
                    $(Self::$Name(value) => Some(value),)*
                    Self::Default(_) | Self::Unusable(..) | Self::Unknown(_) => None,
                }
            }
        }
    };
}
