//! The content of a register as a store keeps it: JSON, and the one field that stores know.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::{Key, Kind, Record, Token};

/// The content of a register: JSON text, and its token beside it so that guards, triggers and views can use it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Value {
    /// The token in the record, if it has one.
    pub token: Option<Token>,
    /// The record.
    pub json: Arc<str>,
}

impl Value {
    /// A value from what serialises to JSON.
    ///
    /// # Panics
    /// If it does not serialise, which is a mistake in the type.
    #[must_use]
    pub fn of(content: &impl Serialize, token: Option<Token>) -> Self {
        let json = serde_json::to_string(content).expect("records serialise");
        Self { token, json: json.into() }
    }

    /// Reads the JSON.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.json)
    }

    /// The value of a record of the engine.
    ///
    /// # Panics
    /// If the record is [`Record::Foreign`], which nobody ever writes.
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
            Record::Foreign => panic!("a foreign record is never written"),
        }
    }

    /// The record of the engine that a register of this key holds; [`Record::Foreign`] if it cannot be read.
    #[must_use]
    pub fn to_record(&self, key: &Key) -> Record {
        let record = match key.kind() {
            Kind::Cluster => self.parse().map(Record::Cluster),
            Kind::Session => self.parse().map(Record::Session),
            Kind::Node => self.parse().map(Record::Node),
            Kind::Role => self.parse().map(Record::Role),
            Kind::RoleControl => self.parse().map(Record::RoleControl),
            Kind::NodeControl => self.parse().map(Record::NodeControl),
            Kind::Task | Kind::History | Kind::Audit | Kind::Alert => return Record::Foreign,
        };
        record.unwrap_or(Record::Foreign)
    }
}
