//! What one look at the lease clock costs. Run with `cargo bench -p tenure --bench clock`.

use std::time::Instant;

use tenure::clock::{Clock, LeaseClock};

fn main() {
    divan::main();
}

#[divan::bench]
fn lease_clock(bencher: divan::Bencher<'_, '_>) {
    let clock = LeaseClock::new();
    bencher.bench_local(|| clock.now());
}

/// For comparison: the standard library's clock, which stops in suspend and may be slewed.
#[divan::bench]
fn instant() -> Instant {
    Instant::now()
}
