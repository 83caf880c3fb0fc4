//! How much is enough: in every run, and with `TENURE_LONG=1`.

/// Whether the full counts are asked for.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TENURE_LONG").is_some()
}

/// So often all candidates start at one barrier.
pub(crate) fn barriers() -> usize {
    if is_long() { 100 } else { 10 }
}

/// So many candidates start at one barrier.
pub(crate) const CANDIDATES: usize = 50;
/// So many wait for one leader to go.
pub(crate) fn standbys() -> usize {
    if is_long() { 100 } else { 40 }
}

/// So many roles cost what one costs. (Claiming ten thousand takes a debug build on a busy machine a minute.)
pub(crate) fn roles() -> usize {
    if is_long() { 10_000 } else { 2_000 }
}

/// For so many beats an idle node is looked at.
pub(crate) const BEATS: u64 = 25;
