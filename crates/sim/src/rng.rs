//! Randomness from one seed, in the shapes that the simulator draws.

/// All chance in a world; two worlds of one seed draw the same.
#[derive(Debug, Clone)]
pub struct Rng(fastrand::Rng);

/// One in a million, the unit of every probability here.
pub type Ppm = u32;

impl Rng {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// True so many times in a million.
    pub fn chance(&mut self, ppm: Ppm) -> bool {
        ppm > 0 && self.0.u32(0..1_000_000) < ppm
    }

    /// True every second time.
    pub fn coin(&mut self) -> bool {
        self.0.bool()
    }

    /// At least `low`, at most `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        if low >= high { low } else { self.0.u64(low..=high) }
    }

    /// At least `low`, at most `high`.
    pub fn signed(&mut self, low: i64, high: i64) -> i64 {
        if low >= high { low } else { self.0.i64(low..=high) }
    }

    /// An index below `len`, which is not zero.
    pub fn index(&mut self, len: usize) -> usize {
        self.0.usize(0..len)
    }

    /// One of these, which are not none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// An index into these weights, each as often as it weighs; none if nothing weighs anything.
    pub fn weighed(&mut self, weights: &[u64]) -> Option<usize> {
        let total: u64 = weights.iter().sum();
        if total == 0 {
            return None;
        }
        let mut draw = self.between(1, total);
        weights.iter().position(|weight| {
            let found = draw <= *weight;
            draw = draw.saturating_sub(*weight);
            found
        })
    }

    /// Between `low` and `high`, every order of magnitude equally often.
    pub fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1) as f64, high.max(1) as f64);
        (low * (high / low).powf(self.0.f64())) as u64
    }

    /// A waiting time of this mean, without memory.
    pub fn wait(&mut self, mean: u64) -> u64 {
        let draw = 1.0 - self.0.f64();
        (-(draw.ln()) * mean as f64).min(20.0 * mean as f64) as u64
    }

    /// A number that is never drawn again.
    pub fn nonce(&mut self) -> u128 {
        self.0.u128(1..)
    }
}
