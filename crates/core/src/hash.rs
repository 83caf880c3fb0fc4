//! A hash that is the same on every node, in every version and in every language.

/// Where a hash begins.
pub const START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a over bytes, from [`START`] or from an earlier hash on.
#[must_use]
pub fn fnv1a(start: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
