//! Enums of the API that keep values unknown to this version.

/// Defines a string enumeration with a lossless `Other` variant.
///
/// The generated CRD allows only the named values, in declaration order. Deserialization accepts any string, so
/// that an object with a value of a newer release does not break a watch. Serialization returns the original
/// string.
macro_rules! open_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$value_meta:meta])* $value:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum $name {
            $($(#[$value_meta])* $value,)+
            /// Value unknown to this version, as read from the API.
            Other(String),
        }

        impl $name {
            /// Returns the value on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$value => stringify!($value),)+
                    Self::Other(value) => value,
                }
            }
        }

        impl From<String> for $name {
            fn from(value: String) -> Self {
                match value.as_str() {
                    $(stringify!($value) => Self::$value,)+
                    _ => Self::Other(value),
                }
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.as_str().to_owned()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "enum": [$(stringify!($value)),+]})
            }
        }
    };
}

pub(crate) use open_enum;
