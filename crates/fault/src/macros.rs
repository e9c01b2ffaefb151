//! Two shapes that recur: a value that travels through JSON as the string it prints, and an enum
//! of plain words. A replay line, a flag and a field of an event are then spelled alike.

/// Implements `Serialize`, `Deserialize` and, in tests, the JSON schema of a type through its
/// `Display` and `FromStr`.
macro_rules! string_in_json {
    ($type:ty, $what:literal, $pattern:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(any(test, feature = "schema"))]
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $what.into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": $what, "pattern": $pattern })
            }
        }
    };
}

/// Defines an enum whose members are words, with `ALL`, `word`, `from_word`, `Display` and JSON.
/// The word stands beside its meaning, and help texts, parsers and files share it.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])+ $(#[$attr:ident])? $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
        pub enum $name { $($(#[doc = $doc])+ $(#[$attr])? #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// Every member.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word by which it is written.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The member of this word.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }

            /// One line about it, for help texts and manuals.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii()),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}
