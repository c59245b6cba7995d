//! Serde for OS strings and paths, which need not be UTF-8: text becomes a string, anything else an array of bytes.
//!
//! For `#[serde(with = "os_text")]` on an `OsString` or `PathBuf`, or a `Vec`, `Option` or pair of them. Serde itself
//! refuses such paths, and writes every byte of an `OsString` as a number.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn serialize<T: OsText, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.write(serializer)
}

pub(super) fn deserialize<'de, T: OsText, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    T::read(deserializer)
}

/// What this module can serialize.
pub(super) trait OsText: Sized {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

fn write<S: Serializer>(text: &OsStr, serializer: S) -> Result<S::Ok, S::Error> {
    match text.to_str() {
        Some(text) => serializer.serialize_str(text),
        None => serializer.collect_seq(text.as_bytes()),
    }
}

impl OsText for OsString {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self, serializer)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OsString, D::Error> {
        deserializer.deserialize_any(OsTextVisitor)
    }
}

impl OsText for PathBuf {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self.as_os_str(), serializer)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        OsString::read(deserializer).map(PathBuf::from)
    }
}

impl<T: OsText> OsText for Vec<T> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Borrowed))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
        let all = Vec::<Owned<T>>::deserialize(deserializer)?;
        Ok(all.into_iter().map(|Owned(one)| one).collect())
    }
}

impl<T: OsText> OsText for Option<T> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_ref().map(Borrowed).serialize(serializer)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
        Ok(Option::<Owned<T>>::deserialize(deserializer)?.map(|Owned(one)| one))
    }
}

impl<A: OsText, B: OsText> OsText for (A, B) {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (Borrowed(&self.0), Borrowed(&self.1)).serialize(serializer)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(A, B), D::Error> {
        let (Owned(one), Owned(other)) = <(Owned<A>, Owned<B>)>::deserialize(deserializer)?;
        Ok((one, other))
    }
}

struct Borrowed<'a, T>(&'a T);

impl<T: OsText> Serialize for Borrowed<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.write(serializer)
    }
}

struct Owned<T>(T);

impl<'de, T: OsText> Deserialize<'de> for Owned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Owned<T>, D::Error> {
        T::read(deserializer).map(Owned)
    }
}

struct OsTextVisitor;

impl<'de> Visitor<'de> for OsTextVisitor {
    type Value = OsString;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or an array of bytes")
    }

    fn visit_str<E>(self, text: &str) -> Result<OsString, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, bytes: A) -> Result<OsString, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(bytes)).map(OsString::from_vec)
    }
}
