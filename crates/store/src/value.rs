//! The content of a register as a store keeps it: JSON, and the one field that stores know.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::record::PROTOCOL;
use tenure_core::{Key, Kind, Record, Token};

use crate::MAX_VALUE;

/// The content of a register: JSON text, and its token beside it so that guards, triggers and views can use it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Value {
    /// The token in the record, if it has one.
    pub token: Option<Token>,
    /// The record.
    pub json: Arc<str>,
}

impl Value {
    /// What stands for a value that a store cannot take apart: it is there, and no record. Its version is one that no node ever
    /// drew, so that no compare-and-set is made on it by accident.
    #[must_use]
    pub fn unreadable() -> (tenure_core::Version, Self) {
        (tenure_core::Version::new(0), Self { token: None, json: "".into() })
    }

    /// A value from what serialises to JSON.
    ///
    /// # Panics
    /// If it does not serialise, which is a mistake in the type.
    #[must_use]
    pub fn of(content: &impl Serialize, token: Option<Token>) -> Self {
        let json = serde_json::to_string(content).expect("records serialise");
        Self { token, json: json.into() }
    }

    /// Reads the JSON, unless it is longer than any that a store takes: another program wrote it.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        if self.json.len() > MAX_VALUE {
            return Err(serde::de::Error::custom(format!("{} bytes are too many", self.json.len())));
        }
        serde_json::from_str(&self.json)
    }

    /// The value of a record of the engine.
    ///
    /// # Panics
    /// If the record is [`Record::Foreign`] or [`Record::Newer`], which no node ever writes.
    #[must_use]
    pub fn of_record(record: &Record) -> Self {
        let token = record.token();
        match record {
            Record::Cluster(content) => Self::of(content, token),
            Record::Session(content) => Self::of(content, token),
            Record::Node(content) => Self::of(content, token),
            Record::Role(content) => Self::of(content, token),
            Record::RoleControl(content) => Self::of(content, token),
            Record::NodeControl(content) => Self::of(content, token),
            Record::Newer(_) | Record::Foreign => panic!("a foreign record is never written"),
        }
    }

    /// The protocol that a `cluster` register names, if it is newer than this version's. Nothing else in the record counts: a
    /// newer protocol may have changed it.
    #[must_use]
    pub fn newer_protocol(&self, key: &Key) -> Option<u32> {
        #[derive(serde::Deserialize)]
        struct Spoken {
            protocol: u32,
        }
        let spoken = (*key == Key::Cluster).then(|| self.parse::<Spoken>().ok())??;
        Some(spoken.protocol).filter(|protocol| *protocol > PROTOCOL)
    }

    /// The record of the engine that a register of this key holds; [`Record::Foreign`] if it cannot be read, or if the token
    /// beside it is not the one in it: the store would refuse what should come next.
    #[must_use]
    pub fn to_record(&self, key: &Key) -> Record {
        if let Some(protocol) = self.newer_protocol(key) {
            return Record::Newer(protocol);
        }
        let record = match key.kind() {
            Kind::Cluster => self.parse().map(Record::Cluster),
            Kind::Session => self.parse().map(Record::Session),
            Kind::Node => self.parse().map(Record::Node),
            Kind::Role => self.parse().map(Record::Role),
            Kind::RoleControl => self.parse().map(Record::RoleControl),
            Kind::NodeControl => self.parse().map(Record::NodeControl),
            Kind::Task | Kind::History | Kind::Audit | Kind::Alert => return Record::Foreign,
        };
        record.ok().filter(|record| record.token() == self.token).unwrap_or(Record::Foreign)
    }
}
