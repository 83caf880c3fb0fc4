//! Nonces: versions and ids that no other process draws.

use tenure_core::Entropy;

/// Nonces from the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelEntropy;

impl Entropy for KernelEntropy {
    /// # Panics
    /// If the kernel has no randomness, without which nothing here is safe.
    fn nonce(&mut self) -> u128 {
        nonce()
    }
}

/// A nonce from the kernel.
#[must_use]
pub fn nonce() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    u128::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_differ() {
        assert_ne!(KernelEntropy.nonce(), KernelEntropy.nonce());
    }
}
