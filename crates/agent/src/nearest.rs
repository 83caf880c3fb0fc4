//! Which name may have been meant.

use strsim::osa_distance;

/// The known name that is nearest to what was typed, if one is close by.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = typed.to_ascii_lowercase();
    let near = |name: &&str| osa_distance(&lower, &name.to_ascii_lowercase());
    let limit = (typed.len() / 3).max(1);
    known
        .into_iter()
        .map(|name| (near(&name), name))
        .filter(|(far, _)| *far <= limit)
        .min()
        .map(|(_, name)| name)
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
