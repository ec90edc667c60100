//! The macro that derives types, names and codecs from the table of properties.

/// Whether a property may change while a connection is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayChange {
    /// Neither the peer's nor the own value (wire.md E21).
    Neither,
    /// The peer's value; the own value stays as stated (wire.md P11).
    Peer,
    /// The peer's and the own value.
    Both,
}

/// Defines `PropId`, `Known`, `Property` and `PropVal`. A row is
///
/// ```text
///   /// Documentation.
///   number NAME "text": Variant(type of the value) as codec, default, may change;
/// ```
/// The default is an `Option`: `None` if it depends on other properties.
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

        /// A known property: a row of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Known {
            $($(#[doc = $doc])* $Name,)*
        }

        impl Known {
            /// All properties, in the order of the table.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$Name),*];

            /// The number of known properties.
            pub const COUNT: usize = [$(PropId::$NAME),*].len();

            /// The property with this number, if it is known.
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

            /// The default value: [`Property::Default`] if it depends on other properties.
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

            /// Decodes a value that is not empty.
            pub(super) fn decode(self, reader: &mut Reader<'_>) -> Result<Property<'static>, DecodeError> {
                Ok(match self {
                    $(Self::$Name => match <$codec as Codec>::decode(reader)? {
                        Ok(value) => Property::$Name(value),
                        Err(why) => Property::Unusable(PropId::$NAME, why),
                    },)*
                })
            }
        }

        /// One encoded value (`propval`, \[XCHAR\] 2.1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct PropVal<'a> {
            /// The property (`pv_which`).
            pub id: PropId,
            /// The XDR of the value, or nothing for the default (`pv_data`; wire.md P3).
            pub data: &'a [u8],
        }

        /// A decoded value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Property<'a> {
            $($(#[doc = $doc])* $Name($value),)*
            /// A known property with an empty value, which means its default (wire.md P3).
            Default(PropId),
            /// An unusable value, which is ignored and counted (wire.md E19, E20).
            Unusable(PropId, StructureError),
            /// An unknown property, which is skipped (wire.md P4).
            Unknown(PropVal<'a>),
        }

        impl Property<'_> {
            /// The property.
            #[must_use]
            pub const fn id(&self) -> PropId {
                match self {
                    $(Self::$Name(_) => PropId::$NAME,)*
                    Self::Default(id) | Self::Unusable(id, _) => *id,
                    Self::Unknown(value) => value.id,
                }
            }

            /// Encodes the value; a default and an unusable value are empty.
            pub(super) fn encode_data(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                match self {
                    $(Self::$Name(value) => <$codec as Codec>::encode(value, writer),)*
                    Self::Default(_) | Self::Unusable(..) => Ok(()),
                    Self::Unknown(value) => writer.put_fixed(value.data),
                }
            }

            /// The value as text; `None` for defaults, unusable and unknown values.
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
