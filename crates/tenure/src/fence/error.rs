//! Why a fence was not passed, each with what to do.

use crate::{Name, Token};

/// What a driver has to say.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a fence was not passed. Whichever it is: roll back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// Somebody who was elected later has been there.
    #[error(
        "{resource} was fenced by token {newer}, which is newer than token {token}: another leader is at work; roll back, \
         and stand for the role again"
    )]
    Fenced {
        /// What is protected.
        resource: String,
        /// The token that was refused.
        token: Token,
        /// The one that was seen.
        newer: Token,
    },
    /// The fence belongs to another role, whose tokens cannot be compared with these.
    #[error(
        "{resource} is fenced by role {owner}, not by {role}: roll back, and give each role resources of its own"
    )]
    OtherRole {
        /// What is protected.
        resource: String,
        /// Who asked.
        role: Name,
        /// Whose it is.
        owner: String,
    },
    /// The tenure is over by its own clock.
    #[error("the tenure of {role} with token {token} is over: roll back, and stand for the role again")]
    Over {
        /// The role.
        role: Name,
        /// The token.
        token: Token,
    },
    /// The name of the resource cannot be used.
    #[error(
        "{0:?} cannot name a resource: take 1 to {max} characters, without control characters, and without spaces at \
         either end",
        max = super::LONGEST_RESOURCE
    )]
    BadResource(String),
    /// The database failed, or the fence could not be had in the time that was left.
    #[error("the fence of {resource} was not raised: {message}; roll back, and try again while you lead")]
    Database {
        /// What is protected.
        resource: String,
        /// What the driver said, with its causes.
        message: String,
        /// What the driver said.
        source: Cause,
    },
}

impl FenceError {
    /// What the driver said, with the one piece of advice that is always the same.
    pub(super) fn database(resource: &str, source: Cause) -> Self {
        let mut message = source.to_string();
        let mut deeper = source.source();
        while let Some(cause) = deeper {
            let text = cause.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            deeper = cause.source();
        }
        if message.contains("tenure_fence") {
            message.push_str(" (`tenure schema --fence` prints the table and the rights)");
        }
        Self::Database { resource: resource.to_owned(), message, source }
    }
}
