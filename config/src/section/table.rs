//! The macro that derives from the rows of a table both forms of a section: as a file has it, and
//! checked.

/// Declares a section and what a file has of it, with every option once.
///
/// ```text
/// section! {
///     /// What it is about.
///     "path" Section from RawSection(raw, what it needs of other sections) {
///         /// What it means.
///         name in a file: its type there = default value => field: its type, check;
///     }
///     file { options that make no field of their own }
///     fields { fields that are made of other options: how }
/// }
/// ```
///
/// A check takes the path of the option and what was given.
macro_rules! section {
    (
        $(#[$about:meta])*
        $path:literal $section:ident from $raw:ident ($this:ident $(, $with:ident: $with_type:ty)*) {
            $(
                $(#[$doc:meta])*
                $name:ident: $given:ty = $default:expr => $field:ident: $value:ty, $check:expr;
            )*
        }
        $(file {
            $($(#[$other_doc:meta])* $other:ident: $other_given:ty = $other_default:expr;)*
        })?
        $(fields {
            $($(#[$made_doc:meta])* $made:ident: $made_value:ty = $how:expr;)*
        })?
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $section {
            $($(#[$doc])* pub $field: $value,)*
            $($($(#[$made_doc])* pub $made: $made_value,)*)?
        }

        #[doc = concat!("`[", $path, "]`, before values are checked.")]
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $raw {
            $($(#[$doc])* pub $name: $given,)*
            $($($(#[$other_doc])* pub $other: $other_given,)*)?
        }

        impl Default for $raw {
            fn default() -> Self {
                Self {
                    $($name: $default.into(),)*
                    $($($other: $other_default.into(),)*)?
                }
            }
        }

        impl $raw {
            pub(crate) fn check(
                &self,
                $($with: $with_type,)*
            ) -> Result<$section, crate::error::ConfigError> {
                let $this = self;
                Ok($section {
                    $($field: $check(concat!($path, ".", stringify!($name)), &$this.$name)?,)*
                    $($($made: $how?,)*)?
                })
            }
        }
    };
}
pub(crate) use section;
