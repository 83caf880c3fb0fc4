//! What `check()` costs, next to one read of the lease clock. Run with `cargo bench -p tenure --bench check`.

use tenure::clock::{Clock, LeaseClock};

fn main() {
    divan::main();
}

#[divan::bench]
fn lease_clock(bencher: divan::Bencher<'_, '_>) {
    let clock: std::sync::Arc<dyn Clock> = std::sync::Arc::new(LeaseClock::new());
    bencher.bench(|| clock.now());
}

#[divan::bench]
fn check(bencher: divan::Bencher<'_, '_>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (node, tenure) = runtime.block_on(async {
        let node = tenure::testing::node("bench").await;
        let candidate = node.candidate("role").await.expect("a valid name");
        let tenure = candidate.elected().await.expect("elected");
        (node, tenure)
    });
    bencher.bench(|| tenure.check());
    drop((tenure, node));
}
