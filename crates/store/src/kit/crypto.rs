//! The provider of cryptography for clients that take the one of the process.

/// The process may have chosen its provider already; then that one is used.
pub fn provide() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
