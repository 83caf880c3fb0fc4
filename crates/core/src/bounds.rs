//! The bounds of numbers and texts in a register. A client with access to the store can write anything: the parser rejects
//! what no configuration could have led to, so that a bad register harms nothing but itself.
//!
//! What only people read (wall-clock times, who and why) is cut to its bound instead: a record is not worth less
//! because a clock is wrong.

use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::{Epoch, Name, Timestamp, Timing, Token};

/// The largest number that every store and language can carry.
const LARGEST: u64 = Token::MAX.get();
/// The longest text that is kept of what people wrote, in characters.
pub const LONGEST_TEXT: usize = 1000;
/// The longest name of a liveness lock, in characters.
const LONGEST_ID: usize = 300;
/// The longest list of roles resigned lately. Generous: later versions may name more of them.
const LONGEST_LIST: usize = 64;

impl Timestamp {
    /// The last microsecond of the year 9999, the latest that calendars and languages agree on.
    pub const MAX: Self = Self::from_micros(253_402_300_799_999_999);
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::from_micros(u64::deserialize(from)?).min(Self::MAX))
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        count(from).map(Self::new)
    }
}

impl<'de> Deserialize<'de> for Epoch {
    /// Never zero: that is the epoch of the `cluster` register itself.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match count(from)? {
            0 => Err(D::Error::custom("an epoch of 0")),
            epoch => Ok(Self::new(epoch)),
        }
    }
}

/// A number that is counted up.
pub fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let count = u64::deserialize(from)?;
    if count > LARGEST { Err(D::Error::custom(format!("{count} is beyond {LARGEST}"))) } else { Ok(count) }
}

/// A lease in milliseconds: what the configuration accepts as a ttl.
pub(crate) fn lease<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let lease = span(from)?;
    if lease < Timing::MIN_TTL {
        return Err(D::Error::custom(format!("a lease of {lease:?} is below {:?}", Timing::MIN_TTL)));
    }
    Ok(lease)
}

/// The same where there may be none.
pub(crate) fn some_lease<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    lease(from).map(Some)
}

/// A time in milliseconds that is no longer than the longest lease.
pub(crate) fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let span = Duration::from_millis(u64::deserialize(from)?);
    if span > Timing::MAX_TTL {
        return Err(D::Error::custom(format!("{span:?} is beyond {:?}", Timing::MAX_TTL)));
    }
    Ok(span)
}

/// A few names.
pub(crate) fn few<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Name>, D::Error> {
    let names = Vec::deserialize(from)?;
    if names.len() > LONGEST_LIST {
        Err(D::Error::invalid_length(names.len(), &"a few names"))
    } else {
        Ok(names)
    }
}

/// The name of a liveness lock.
pub(crate) fn id<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let id = String::deserialize(from)?;
    if id.len() > LONGEST_ID { Err(D::Error::invalid_length(id.len(), &"a short name")) } else { Ok(id) }
}

/// What people wrote, for people.
pub fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| truncate(&text))
}

/// The same where there may be none.
pub(crate) fn some_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(|text| truncate(&text)))
}

/// As much of a text as is kept.
#[must_use]
pub fn truncate(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use crate::record::{Cluster, Session};

    fn session(field: &str, value: &str) -> Result<Session, serde_json::Error> {
        let sound = r#"{"node":"a","beat":1,"freed":0,"ttl":5000,"takeover":"strict","grace":2500,"state":"live","beat_at":1}"#;
        let mut json: serde_json::Value = serde_json::from_str(sound).unwrap();
        json[field] = serde_json::from_str(value).unwrap();
        serde_json::from_value(json)
    }

    #[test]
    fn what_no_configuration_leads_to_is_refused() {
        for (field, value) in
            [("ttl", "100"), ("ttl", "86400000"), ("grace", "0"), ("beat", "9007199254740991")]
        {
            assert!(session(field, value).is_ok(), "{field} {value}");
        }
        let long = format!("[{}]", vec!["\"r\""; 65].join(","));
        for (field, value) in [
            ("ttl", "0"),
            ("ttl", "99"),
            ("ttl", "86400001"),
            ("ttl", "18446744073709551615"),
            ("grace", "86400001"),
            ("beat", "9007199254740992"),
            ("freed", "-1"),
            ("node_writes", "1e300"),
            ("freed_lately", &long),
        ] {
            assert!(session(field, value).is_err(), "{field} {value}");
        }
        for cluster in
            [r#"{"epoch":0,"max_ttl":5000,"protocol":1}"#, r#"{"epoch":7,"max_ttl":1,"protocol":1}"#]
        {
            assert!(serde_json::from_str::<Cluster>(cluster).is_err(), "{cluster}");
        }
    }

    #[test]
    fn what_people_read_is_cut() {
        assert_eq!(session("beat_at", "18446744073709551615").unwrap().beat_at, crate::Timestamp::MAX);
        let cluster = Cluster {
            epoch: crate::Epoch::new(7),
            max_ttl: crate::Timing::DEFAULT_TTL,
            falling: Some(crate::Timing::FAST_TTL),
            protocol: 1,
            floor: crate::Token::new(9),
            renewed: true,
        };
        let text = serde_json::to_string(&cluster).unwrap();
        assert_eq!(serde_json::from_str::<Cluster>(&text).unwrap(), cluster);
        let plain = Cluster { falling: None, floor: crate::Token::new(0), renewed: false, ..cluster };
        assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"epoch":7,"max_ttl":5000,"protocol":1}"#);
    }
}
