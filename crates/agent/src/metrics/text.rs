//! The two forms of the text: OpenMetrics, and the older Prometheus text.

/// Which form was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Prometheus,
}

impl ExpositionFormat {
    /// What an `Accept` header wants.
    #[must_use]
    pub fn wanted(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// Its media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// OpenMetrics in this form. In the older one a counter's description has the name that its samples have, and there
    /// is no end mark.
    pub(super) fn of(self, text: String) -> String {
        if self == Self::OpenMetrics {
            return text;
        }
        let counters: Vec<&str> = text.lines().filter_map(counter).collect();
        let mut older = String::with_capacity(text.len());
        for line in text.lines().filter(|line| !line.starts_with("# EOF") && !line.starts_with("# UNIT")) {
            older.push_str(&described(line, &counters));
            older.push('\n');
        }
        older
    }
}

/// The counter that a line declares.
fn counter(line: &str) -> Option<&str> {
    line.strip_prefix("# TYPE ")?.strip_suffix(" counter")
}

fn described(line: &str, counters: &[&str]) -> String {
    let Some(rest) = line.strip_prefix("# ") else { return line.to_owned() };
    let mut words = rest.splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some(what), Some(name), Some(said)) if counters.contains(&name) => {
            format!("# {what} {name}_total {said}")
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_form_names_counters_as_their_samples() {
        let text =
            "# HELP a_b What.\n# TYPE a_b counter\na_b_total 1\n# HELP g G\n# TYPE g gauge\ng 2\n# EOF\n";
        let older = "# HELP a_b_total What.\n# TYPE a_b_total counter\na_b_total 1\n# HELP g G\n# TYPE g gauge\ng 2\n";
        assert_eq!(ExpositionFormat::Prometheus.of(text.to_owned()), older);
        assert_eq!(ExpositionFormat::OpenMetrics.of(text.to_owned()), text);
        assert_eq!(
            ExpositionFormat::wanted(Some("application/openmetrics-text;version=1.0.0")),
            ExpositionFormat::OpenMetrics
        );
        assert_eq!(ExpositionFormat::wanted(None), ExpositionFormat::Prometheus);
    }
}
