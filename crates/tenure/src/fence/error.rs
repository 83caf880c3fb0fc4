//! Why a fence was not passed, each with what to do.

use crate::{Name, Token};

/// The error of a database driver.
pub type DatabaseError = Box<dyn std::error::Error + Send + Sync>;

/// Why the fence was not raised. Roll the transaction back in every case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum FenceError {
    /// A later leader has raised the fence.
    #[error(
        "{resource} was fenced by token {newer}, which is newer than token {token}: another leader is at work; roll back, \
         and stand for the role again"
    )]
    Fenced {
        /// The resource that the fence protects.
        resource: String,
        /// The token that was refused.
        token: Token,
        /// The token in the fence.
        newer: Token,
    },
    /// The fence belongs to another role, whose tokens cannot be compared with these.
    #[error(
        "{resource} is fenced by role {owner}, not by {role}: roll back, and give each role resources of its own"
    )]
    OtherRole {
        /// The resource that the fence protects.
        resource: String,
        /// The role of this leader.
        role: Name,
        /// The role that the fence belongs to.
        owner: String,
    },
    /// The tenure is over by its own clock.
    #[error("the tenure of {role} with token {token} is over: roll back, and campaign for the role again")]
    Over { role: Name, token: Token },
    /// The name of the resource cannot be used.
    #[error(
        "{0:?} cannot name a resource: take 1 to {max} characters, without control characters, and without spaces at \
         either end",
        max = super::MAX_RESOURCE_LEN
    )]
    BadResource(String),
    /// The database failed, or the fence could not be had in the time that was left.
    #[error("the fence of {resource} was not raised: {message}; roll back, and try again while you lead")]
    Database {
        /// The resource that the fence protects.
        resource: String,
        /// The driver's error and its causes, as text.
        message: String,
        /// The driver's error.
        source: DatabaseError,
    },
}

impl FenceError {
    /// The driver's error, with advice if the table is missing.
    pub(super) fn database(resource: &str, source: DatabaseError) -> Self {
        let mut message = crate::store::with_causes(&*source);
        if message.contains("tenure_fence") {
            message.push_str(" (`fence::create_table` makes the table; the login needs rights on it)");
        }
        Self::Database { resource: resource.to_owned(), message, source }
    }
}
