//! How things are written down, on the wire and in the log: fixed, little-endian, without names.

use tenure_core::Token;

use super::STORE;
use tenure_store::{Entry, Epoch, Fate, Key, Kind, Name, Outcome, Query, StoreError, Value, Version, Write};

/// Bytes that no member of this version wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("garbled bytes: no {0} can be read")]
pub(super) struct Garbled(pub(super) &'static str);

/// What can be written down and read again.
pub(super) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(from: &mut &[u8]) -> Result<Self, Garbled>;

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// All of `bytes` as one thing.
    fn from_bytes(mut bytes: &[u8]) -> Result<Self, Garbled> {
        let found = Self::get(&mut bytes)?;
        if bytes.is_empty() { Ok(found) } else { Err(Garbled("end")) }
    }
}

/// Bytes as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Blob(pub(super) Vec<u8>);

fn take<'a>(from: &mut &'a [u8], count: usize) -> Result<&'a [u8], Garbled> {
    let (head, rest) = from.split_at_checked(count).ok_or(Garbled("whole field"))?;
    *from = rest;
    Ok(head)
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
                let bytes = take(from, size_of::<Self>())?;
                bytes.try_into().map(Self::from_le_bytes).map_err(|_| Garbled("number"))
            }
        }
    )* };
}

numbers!(u8, u32, u64, u128);

/// A structure is its fields, one after the other.
macro_rules! fields {
    ($name:ident { $($field:ident),* }) => {
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
                Ok(Self { $($field: Wire::get(from)?),* })
            }
        }
    };
}
pub(super) use fields;

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        match u8::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbled("flag")),
        }
    }
}

impl Wire for Blob {
    fn put(&self, out: &mut Vec<u8>) {
        length(self.0.len()).put(out);
        out.extend_from_slice(&self.0);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        let count = u32::get(from)? as usize;
        Ok(Self(take(from, count)?.to_vec()))
    }
}

fn length(count: usize) -> u32 {
    u32::try_from(count).expect("nothing here is so long")
}

fn text_of<'a>(from: &mut &'a [u8]) -> Result<&'a str, Garbled> {
    let count = u32::get(from)? as usize;
    std::str::from_utf8(take(from, count)?).map_err(|_| Garbled("text"))
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    length(text.len()).put(out);
    out.extend_from_slice(text.as_bytes());
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(self, out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        text_of(from).map(ToOwned::to_owned)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(some) = self {
            some.put(out);
        }
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        if bool::get(from)? { T::get(from).map(Some) } else { Ok(None) }
    }
}

/// The count is not believed: memory is taken as items are found.
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        length(self.len()).put(out);
        self.iter().for_each(|item| item.put(out));
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        let count = u32::get(from)?;
        (0..count).map(|_| T::get(from)).collect()
    }
}

/// So are several things together.
macro_rules! tuples {
    ($(($($index:tt $item:ident),*))*) => { $(
        impl<$($item: Wire),*> Wire for ($($item,)*) {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$index.put(out);)*
            }
            fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
                Ok(($($item::get(from)?,)*))
            }
        }
    )* };
}

tuples!((0 A, 1 B) (0 A, 1 B, 2 C));

impl Wire for Name {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(self.as_str(), out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        Self::new(text_of(from)?).map_err(|_| Garbled("name"))
    }
}

impl Wire for Kind {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(self.as_str(), out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        text_of(from)?.parse().map_err(|_| Garbled("kind"))
    }
}

impl Wire for Epoch {
    fn put(&self, out: &mut Vec<u8>) {
        self.get().put(out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        u64::get(from).map(Self::new)
    }
}

impl Wire for Key {
    fn put(&self, out: &mut Vec<u8>) {
        self.epoch().put(out);
        self.kind().put(out);
        put_text(&self.name(), out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        let (epoch, kind) = Wire::get(from)?;
        let name = text_of(from)?;
        let key = Self::from_parts(epoch, kind, name).map_err(|_| Garbled("key"))?;
        // One register has one spelling.
        if key.epoch() == epoch && key.name() == name { Ok(key) } else { Err(Garbled("key")) }
    }
}

impl Wire for Version {
    fn put(&self, out: &mut Vec<u8>) {
        self.get().put(out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        u128::get(from).map(Self::new)
    }
}

impl Wire for Value {
    fn put(&self, out: &mut Vec<u8>) {
        self.token.map(Token::get).put(out);
        put_text(&self.json, out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        let token = Option::<u64>::get(from)?.map(Token::new);
        Ok(Self { token, json: text_of(from)?.into() })
    }
}

fields!(Write { key, expect, put, notify, requires_lock });
fields!(Entry { key, version, value });
fields!(Query { keys, kinds });

impl Wire for Fate {
    fn put(&self, out: &mut Vec<u8>) {
        let number: u8 = match self {
            Self::NotApplied => 0,
            Self::Unknown => 1,
            Self::Severed => 2,
        };
        number.put(out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        match u8::get(from)? {
            0 => Ok(Self::NotApplied),
            1 => Ok(Self::Unknown),
            2 => Ok(Self::Severed),
            _ => Err(Garbled("fate")),
        }
    }
}

impl Wire for StoreError {
    fn put(&self, out: &mut Vec<u8>) {
        self.fate().put(out);
        (self.retry() == tenure_store::Retry::Never).put(out);
        // What is severed has one message.
        put_text(if self.fate() == Fate::Severed { "" } else { self.message() }, out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        let (fate, permanent, message): (_, bool, String) = Wire::get(from)?;
        let error = match fate {
            Fate::NotApplied => Self::not_applied(STORE, message),
            Fate::Unknown => Self::unknown(STORE, message),
            Fate::Severed if message.is_empty() => Self::severed(STORE),
            Fate::Severed => return Err(Garbled("error")),
        };
        Ok(error.permanent_if(permanent))
    }
}

impl Wire for Outcome {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Applied => 0_u8.put(out),
            Self::Conflict(found) => {
                1_u8.put(out);
                found.put(out);
            }
            Self::Failed(error) => {
                2_u8.put(out);
                error.put(out);
            }
        }
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        match u8::get(from)? {
            0 => Ok(Self::Applied),
            1 => Wire::get(from).map(Self::Conflict),
            2 => Wire::get(from).map(Self::Failed),
            _ => Err(Garbled("outcome")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_nothing_shorter_is() {
        let key = Key::Named(Epoch::new(7), Kind::Role, Name::new("r").unwrap());
        let value = Value { token: Some(Token::new(3)), json: "{\"a\":1}".into() };
        let put = Some((Version::new(9), value));
        let write = Write { key, expect: Some(Version::new(8)), put, notify: true, requires_lock: false };
        let bytes = write.to_bytes();
        assert_eq!(Write::from_bytes(&bytes).unwrap(), write);
        for end in 0..bytes.len() {
            assert!(Write::from_bytes(&bytes[..end]).is_err(), "{end}");
        }
        assert_eq!(Write::from_bytes(&[&bytes[..], &[0]].concat()), Err(Garbled("end")));
    }

    #[test]
    fn a_count_that_lies_takes_no_memory() {
        assert!(Vec::<u64>::from_bytes(&u32::MAX.to_le_bytes()).is_err());
        assert!(Blob::from_bytes(&u32::MAX.to_le_bytes()).is_err());
    }
}
