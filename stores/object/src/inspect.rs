//! What the bucket is, and what it can promise.

use super::bucket::Bucket;
use super::settings::ObjectSettings;
use tenure_store::{Class, Description, StoreError};

/// Tries the endpoint.
pub(super) async fn describe(bucket: &Bucket) -> Result<Description, StoreError> {
    let findings = bucket.examined().await?;
    let settings = &bucket.settings;
    let class = class(settings);
    let mut remarks = Vec::new();
    if class == Class::B {
        remarks.push(
            "class B, because the endpoint is not of the provider itself: what an acknowledged write survives is for those \
             who run it to know; its conditional puts were tried, and hold"
                .to_owned(),
        );
    }
    if findings.keeps_versions {
        remarks.push(
            "the bucket keeps what is replaced, and every beat replaces an object: add the lifecycle rule that \
             `tenure schema --for object` prints, or the bill grows for ever"
                .to_owned(),
        );
    }
    remarks.extend(settings.warning().map(str::to_owned));
    let service = match &settings.endpoint {
        Some(_) if class == Class::B => {
            format!("a server that speaks the interface of {}", settings.provider.service())
        }
        _ => settings.provider.service().to_owned(),
    };
    let mut described =
        Description::new(class, format!("object:{settings}"), format!("{service}, {settings}"));
    described.remarks = remarks;
    Ok(described)
}

/// What an acknowledged write survives.
fn class(settings: &ObjectSettings) -> Class {
    if settings.is_provider_itself() { Class::A } else { Class::B }
}
