//! Numbers of locks: nodes of every version, in every language, have to agree on them.

use tenure_core::hash::{START, fnv1a};

/// A stable number of some texts, for advisory locks: FNV-1a over their bytes, each text followed by a zero byte.
#[must_use]
pub fn hash(texts: &[&str]) -> i64 {
    fnv1a(START, texts.iter().flat_map(|text| text.bytes().chain([0]))).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_never_change() {
        assert_eq!(hash(&[]).cast_unsigned(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(&["tenure schema"]).cast_unsigned(), 0x66b5_1047_2736_f6f3);
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    }
}
