//! The envelope of a sent object: `{"kind":"Node","version":"1.14","data":{…}}`.
//!
//! Kind and version come first, so that the newest version is read in one pass.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::Version;
use crate::object::Versioned;

/// An envelope around data that is JSON already.
pub(crate) fn wrap(kind: &str, version: Version, data: &str) -> String {
    // A text is always JSON.
    let kind = serde_json::Value::from(kind);
    format!(r#"{{"kind":{kind},"version":"{version}","data":{data}}}"#)
}

/// The same around an object, in one pass over it.
pub(crate) fn of<T: Versioned>(value: &T, room: usize) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Envelope<'a, T> {
        kind: &'static str,
        version: Version,
        data: &'a T,
    }
    let envelope = Envelope {
        kind: T::NAME,
        version: T::VERSION,
        data: value,
    };
    text(&envelope, room)
}

/// As JSON, in a text that has room for so many bytes from the start.
pub(crate) fn text<T: Serialize>(value: &T, room: usize) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::with_capacity(room);
    serde_json::to_writer(&mut bytes, value)?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// What an envelope holds.
pub(crate) struct Opened<T> {
    /// The kind, if it is not that of `T`.
    pub(crate) other_kind: Option<String>,
    /// The version.
    pub(crate) version: Version,
    /// The data.
    pub(crate) data: Data<T>,
}

/// The data in an envelope.
pub(crate) enum Data<T> {
    /// In the newest version, read already.
    Newest(T),
    /// In another, or of another kind.
    Raw(Box<RawValue>),
}

/// Opens an envelope.
pub(crate) fn open<T: Versioned>(text: &str) -> Result<Opened<T>, serde_json::Error> {
    // As it is written here, all between the label and the last brace is the object. Whatever is not so is read below.
    if let Some(value) = newest::<T>(text).and_then(|data| serde_json::from_str(data).ok()) {
        return Ok(Opened {
            other_kind: None,
            version: T::VERSION,
            data: Data::Newest(value),
        });
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let opened = Seed(PhantomData).deserialize(&mut reader)?;
    reader.end()?;
    Ok(opened)
}

/// What stands where [`of`] writes the data of the newest version.
fn newest<T: Versioned>(text: &str) -> Option<&str> {
    let kind = text.strip_prefix(r#"{"kind":""#)?.strip_prefix(T::NAME)?;
    let (version, data) = kind.strip_prefix(r#"","version":""#)?.split_once('"')?;
    let newest = version.parse() == Ok(T::VERSION);
    data.strip_prefix(r#","data":"#)?
        .strip_suffix('}')
        .filter(|_| newest)
}

/// The data of an envelope, as it stands there.
pub(crate) fn data(text: &str) -> Result<Box<RawValue>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Any {
        data: Box<RawValue>,
    }
    serde_json::from_str(text).map(|Any { data }| data)
}

/// The kind and the version of an envelope, whatever it holds.
pub(crate) fn label(text: &str) -> Result<(String, Version), serde_json::Error> {
    #[derive(Deserialize)]
    struct Label {
        kind: String,
        version: Version,
    }
    serde_json::from_str(text).map(|Label { kind, version }| (kind, version))
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Kind,
    Version,
    Data,
    // A later release may add to the envelope.
    #[serde(other)]
    Other,
}

/// Reads a text, and keeps it only if it is another than this one.
struct OtherThan(&'static str);

impl<'de> DeserializeSeed<'de> for OtherThan {
    type Value = Option<String>;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<String>, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for OtherThan {
    type Value = Option<String>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of an object")
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Option<String>, E> {
        Ok((text != self.0).then(|| text.to_owned()))
    }
}

struct Seed<T>(PhantomData<T>);

impl<'de, T: Versioned> DeserializeSeed<'de> for Seed<T> {
    type Value = Opened<T>;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Opened<T>, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, T: Versioned> Visitor<'de> for Seed<T> {
    type Value = Opened<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with `kind`, `version` and `data`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Opened<T>, A::Error> {
        use serde::de::Error as _;
        let mut kind: Option<Option<String>> = None;
        let mut version: Option<Version> = None;
        let mut data: Option<Data<T>> = None;
        while let Some(key) = map.next_key()? {
            match key {
                Key::Kind if kind.is_none() => kind = Some(map.next_value_seed(OtherThan(T::NAME))?),
                Key::Version if version.is_none() => version = Some(map.next_value()?),
                Key::Data if data.is_none() => {
                    let newest = kind == Some(None) && version == Some(T::VERSION);
                    data = Some(if newest {
                        Data::Newest(map.next_value()?)
                    } else {
                        Data::Raw(map.next_value()?)
                    });
                }
                Key::Kind => return Err(A::Error::duplicate_field("kind")),
                Key::Version => return Err(A::Error::duplicate_field("version")),
                Key::Data => return Err(A::Error::duplicate_field("data")),
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Opened {
            other_kind: kind.ok_or_else(|| A::Error::missing_field("kind"))?,
            version: version.ok_or_else(|| A::Error::missing_field("version"))?,
            data: data.ok_or_else(|| A::Error::missing_field("data"))?,
        })
    }
}
