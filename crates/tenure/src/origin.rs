//! The host and the version of a node. Its record keeps them as labels of reserved names, which every version of the protocol
//! can read; operators see them as fields.

use std::collections::BTreeMap;

const HOST: &str = "tenure.host";
const VERSION: &str = "tenure.version";

/// These labels, with the host and the version of this process.
pub(crate) fn with_origin(mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.insert(HOST.to_owned(), host());
    labels.insert(VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    labels
}

/// The labels that the user gave, the host and the version.
pub(crate) fn split_origin(
    labels: &BTreeMap<String, String>,
) -> (BTreeMap<String, String>, Option<String>, Option<String>) {
    let mut labels = labels.clone();
    let (host, version) = (labels.remove(HOST), labels.remove(VERSION));
    (labels, host, version)
}

/// The name of this host, as the kernel knows it, cut to 80 characters.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().chars().take(80).collect()
}
