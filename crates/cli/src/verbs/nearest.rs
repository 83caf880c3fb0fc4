//! Which name may have been meant.

/// The known name that is nearest to what was typed, if one is close by.
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = typed.to_ascii_lowercase();
    let near = |name: &&str| distance(&lower, &name.to_ascii_lowercase());
    let limit = (typed.len() / 3).max(1);
    known
        .into_iter()
        .map(|name| (near(&name), name))
        .filter(|(far, _)| *far <= limit)
        .min()
        .map(|(_, name)| name)
}

/// How many characters to change, add, drop or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, far) | (far, 0) => far,
                _ => {
                    let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    let swap = if swapped { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                    change.min(swap).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1)
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_close_by_is_found_and_what_is_not_is_not() {
        let known = ["scheduler", "metrics", "a"];
        assert_eq!(nearest("shceduler", known), Some("scheduler"));
        assert_eq!(nearest("Metric", known), Some("metrics"));
        assert_eq!(nearest("b", known), Some("a"));
        assert_eq!(nearest("backup", known), None);
    }
}
