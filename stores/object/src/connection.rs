//! The way to a bucket: whose credentials, which endpoint, and one request at a time.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{Certificate, ClientOptions, ObjectStore, RetryConfig};

use super::STORE;
use super::settings::{ObjectSettings, Provider, URL};
use tenure_store::StoreError;

/// A variable of the environment, by its name.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The client of a bucket. Nothing is connected, and the network is asked for credentials only if the URL or the environment
/// says so.
pub(super) fn open(settings: &ObjectSettings) -> Result<Arc<dyn ObjectStore>, StoreError> {
    open_with(settings, &|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

fn open_with(
    settings: &ObjectSettings,
    environment: Environment<'_>,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    tenure_store::kit::crypto::provide();
    let client = client_options(settings)?;
    match settings.provider {
        Provider::S3 => amazon(settings, environment, client),
        Provider::Google => google(settings, environment, client),
        Provider::Azure => azure(settings, environment, client),
    }
}

/// Nothing is tried twice: whether a put that was not answered may be repeated is for the engine to know.
fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: Duration::ZERO, ..RetryConfig::default() }
}

fn client_options(settings: &ObjectSettings) -> Result<ClientOptions, StoreError> {
    let plain = settings.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let mut options = ClientOptions::new()
        .with_allow_http(plain)
        .with_timeout(settings.timeout)
        .with_connect_timeout(settings.timeout)
        .with_http1_only();
    let Some(ca) = &settings.ca else { return Ok(options) };
    let cannot =
        |why: &dyn std::fmt::Display| URL.refuse(format!("cannot read the authorities in {ca}: {why}"));
    let pem = std::fs::read(ca).map_err(|error| cannot(&error))?;
    let found = Certificate::from_pem_bundle(&pem).map_err(|error| cannot(&error))?;
    if found.is_empty() {
        return Err(URL.refuse(format!("{ca} holds no certificate in PEM form")));
    }
    for certificate in found {
        options = options.with_root_certificate(certificate);
    }
    Ok(options.with_no_system_certificates(true))
}

/// What commands that a node runs do not inherit. A key without its secret would be of no use to them.
pub(super) const SECRETS: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_CLIENT_SECRET",
];

/// What AWS calls a thing in the environment, and the library in its builder.
const AMAZON: &[(&str, AmazonS3ConfigKey)] = &[
    ("AWS_ACCESS_KEY_ID", AmazonS3ConfigKey::AccessKeyId),
    ("AWS_SECRET_ACCESS_KEY", AmazonS3ConfigKey::SecretAccessKey),
    ("AWS_SESSION_TOKEN", AmazonS3ConfigKey::Token),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", AmazonS3ConfigKey::WebIdentityTokenFile),
    ("AWS_ROLE_ARN", AmazonS3ConfigKey::RoleArn),
    ("AWS_ROLE_SESSION_NAME", AmazonS3ConfigKey::RoleSessionName),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", AmazonS3ConfigKey::ContainerCredentialsRelativeUri),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", AmazonS3ConfigKey::ContainerCredentialsFullUri),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", AmazonS3ConfigKey::ContainerAuthorizationTokenFile),
];

fn amazon(
    settings: &ObjectSettings,
    environment: Environment<'_>,
    client: ClientOptions,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let region = settings.region.clone().or_else(|| environment("AWS_REGION"));
    let region = region.or_else(|| environment("AWS_DEFAULT_REGION"));
    let region = match (region, &settings.endpoint) {
        (Some(region), _) => region,
        (None, Some(_)) => "us-east-1".to_owned(),
        (None, None) => {
            return Err(URL.refuse(
                "the region of the bucket is not known: write region=REGION in the URL, or set AWS_REGION",
            ));
        }
    };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&settings.bucket)
        .with_region(region)
        .with_retry(once())
        .with_client_options(client)
        .with_disable_bulk_delete(true);
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some((key, secret)) = &settings.login {
        builder = builder.with_access_key_id(key).with_secret_access_key(secret);
    } else if !settings.from_instance {
        let set = |name: &str| environment(name).is_some();
        let keys = set("AWS_ACCESS_KEY_ID") && set("AWS_SECRET_ACCESS_KEY");
        let web = set("AWS_WEB_IDENTITY_TOKEN_FILE") && set("AWS_ROLE_ARN");
        let pod = set("AWS_CONTAINER_CREDENTIALS_FULL_URI") && set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        if !(keys || web || pod || set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")) {
            return Err(no_credentials("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
        }
        for (name, key) in AMAZON {
            if let Some(value) = environment(name) {
                builder = builder.with_config(*key, value);
            }
        }
    }
    Ok(Arc::new(builder.build().map_err(|error| unusable(&error))?))
}

fn google(
    settings: &ObjectSettings,
    environment: Environment<'_>,
    client: ClientOptions,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(&settings.bucket)
        .with_retry(once())
        .with_client_options(client);
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    if !settings.from_instance {
        let file = environment("GOOGLE_APPLICATION_CREDENTIALS");
        let local = settings.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        builder = match file {
            Some(file) => builder.with_application_credentials(file),
            // A server that speaks this interface without encryption is one for tests, and takes no credentials.
            None if local => builder.with_skip_signature(true),
            None => return Err(no_credentials("GOOGLE_APPLICATION_CREDENTIALS")),
        };
    }
    Ok(Arc::new(builder.build().map_err(|error| unusable(&error))?))
}

/// As for AWS.
const AZURE: &[(&str, AzureConfigKey)] = &[
    ("AZURE_STORAGE_ACCOUNT_KEY", AzureConfigKey::AccessKey),
    ("AZURE_CLIENT_ID", AzureConfigKey::ClientId),
    ("AZURE_CLIENT_SECRET", AzureConfigKey::ClientSecret),
    ("AZURE_TENANT_ID", AzureConfigKey::AuthorityId),
    ("AZURE_FEDERATED_TOKEN_FILE", AzureConfigKey::FederatedTokenFile),
];

fn azure(
    settings: &ObjectSettings,
    environment: Environment<'_>,
    client: ClientOptions,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let account = settings.account.clone().or_else(|| environment("AZURE_STORAGE_ACCOUNT_NAME"));
    let account = account.ok_or_else(|| {
        URL.refuse("the account of the container is not known: write account=ACCOUNT in the URL, or set AZURE_STORAGE_ACCOUNT_NAME")
    })?;
    let mut builder = MicrosoftAzureBuilder::new()
        .with_container_name(&settings.bucket)
        .with_account(account)
        .with_retry(once())
        .with_client_options(client);
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if let Some((_, key)) = &settings.login {
        builder = builder.with_access_key(key);
    } else if !settings.from_instance {
        let set = |name: &str| environment(name).is_some();
        let secret = set("AZURE_CLIENT_SECRET") || set("AZURE_FEDERATED_TOKEN_FILE");
        let client = set("AZURE_CLIENT_ID") && set("AZURE_TENANT_ID") && secret;
        if !(client || set("AZURE_STORAGE_ACCOUNT_KEY")) {
            return Err(no_credentials("AZURE_STORAGE_ACCOUNT_KEY"));
        }
        for (name, key) in AZURE {
            if let Some(value) = environment(name) {
                builder = builder.with_config(*key, value);
            }
        }
    }
    Ok(Arc::new(builder.build().map_err(|error| unusable(&error))?))
}

fn no_credentials(usual: &str) -> StoreError {
    let message = format!(
        "there are no credentials: set {usual} in the environment, or write credentials=instance in the URL to ask for the identity \
         of this machine"
    );
    StoreError::not_applied(STORE, message).permanent()
}

/// What the library does not take. It may repeat a value, so that its words are not shown.
fn unusable(error: &object_store::Error) -> StoreError {
    let what = match error {
        object_store::Error::Generic { store, .. } => *store,
        _ => "the client",
    };
    URL.refuse(format!(
        "{what} cannot use these settings: see the endpoint in the URL, and the files and keys that the environment names"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(url: &str, variables: &[(&str, &str)]) -> Result<(), String> {
        let settings = ObjectSettings::parse(url).unwrap();
        let environment = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        };
        open_with(&settings, &environment).map(drop).map_err(|error| error.to_string())
    }

    const KEYS: &[(&str, &str)] =
        &[("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "hunter2"), ("AWS_REGION", "r")];

    #[test]
    fn credentials_come_from_where_they_were_put_and_the_network_is_asked_only_on_request() {
        opened("s3://b", KEYS).unwrap();
        opened("s3://k:s@b?region=r", &[]).unwrap();
        opened("s3://b?region=r&credentials=instance", &[]).unwrap();
        opened("s3://b?region=r", &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x")]).unwrap();
        opened("az://me:aHVudGVyMg==@c", &[]).unwrap();
        opened("az://c?account=me", &[("AZURE_STORAGE_ACCOUNT_KEY", "aHVudGVyMg==")]).unwrap();
        opened("gs://b?credentials=instance", &[]).unwrap();
        for url in ["s3://b?region=r", "gs://b", "az://c?account=me", "s3://b?endpoint=http://localhost:1"] {
            let error = opened(url, &[]).unwrap_err();
            assert!(error.contains("credentials=instance"), "{url}: {error}");
        }
        let error = opened("s3://b?region=r", &KEYS[..1]).unwrap_err();
        assert!(error.contains("no credentials"), "half a login is none: {error}");
    }

    #[test]
    fn what_cannot_be_used_is_told_without_secrets() {
        let error = opened("s3://b", &KEYS[..2]).unwrap_err();
        assert!(error.contains("region=REGION"), "{error}");
        let error = opened("az://c", &[]).unwrap_err();
        assert!(error.contains("account=ACCOUNT"), "{error}");
        let error = opened("az://me:hunter2*@c", &[]).unwrap_err();
        assert!(error.contains("cannot use") && !error.contains("hunter2"), "{error}");
        let error = opened("s3://k:s@b?region=r&ca=/nowhere/ca.pem", &[]).unwrap_err();
        assert!(error.contains("/nowhere/ca.pem"), "{error}");
    }
}
