//! Conditions of alerts: a small part of PromQL, read once when the agent starts.
//!
//! ```text
//! condition  = comparison { "or" comparison }
//! comparison = value ( "==" | "!=" | ">" | ">=" | "<" | "<=" ) number
//! value      = series | aggregate [ by ] "(" series ")" | aggregate "(" series ")" by
//! aggregate  = "sum" | "min" | "max" | "avg" | "count"
//! by         = "by" "(" label { "," label } ")"
//! series     = metric | ( "rate" | "increase" ) "(" metric "[" duration "]" ")"
//! metric     = name [ "{" label ( "=" | "!=" ) string { "," … } "}" ]
//! ```
//!
//! Everything else is refused: a rule that silently means something else is worse than none. The names of metrics may
//! have the configured prefix, `tenure_` or FORGE's `forge_leader_`; inside they have none.

use std::time::Duration;

use super::samples::{is_known, known};
use crate::nearest::nearest;

/// What to do about a condition that is refused.
const SUBSET: &str = "a condition compares a metric, its rate(…[5m]) or increase(…[5m]), or the sum, min, max, avg or count \
                      of one of these by (labels), with a number; `or` joins comparisons (docs/guides/alerts.md). For all of \
                      PromQL use Prometheus, with the rules in deploy/prometheus-rules.yml";

/// A condition that can be evaluated.
#[derive(Debug, Clone)]
pub struct Condition {
    /// As it was written.
    pub text: String,
    /// It holds for every series that one of these leaves.
    pub any: Vec<Comparison>,
    /// What people should know about it.
    pub notices: Vec<String>,
}

/// Series compared with a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// How the series are aggregated, and by which labels; by none of them: all together.
    pub aggregate: Option<(Aggregate, Vec<String>)>,
    /// Which series.
    pub selector: Selector,
    /// How much a counter rose, instead of its value: over which time.
    pub rise: Option<(Rise, Duration)>,
    /// How they are compared.
    pub operator: Operator,
    /// With which number.
    pub limit: f64,
}

/// Which series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The metric, without a prefix.
    pub metric: String,
    /// Label, whether it must be equal (or must not), value. An absent label is an empty one.
    pub matchers: Vec<(String, bool, String)>,
}

/// A function of a counter over a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rise {
    /// Per second.
    Rate,
    /// In all.
    Increase,
}

/// How series are aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Aggregate {
    Sum,
    Min,
    Max,
    Avg,
    Count,
}

/// How a value is compared with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// The longer ones first, so that `>` is not found in `>=`.
pub(super) const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessEqual),
    (">=", Operator::GreaterEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// `ms` before `m`, for the same reason.
const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

impl Selector {
    /// Whether a series with these labels is meant.
    pub(super) fn fits(&self, labels: &super::samples::Labels) -> bool {
        let value = |name: &str| labels.get(name).map_or("", String::as_str);
        self.matchers.iter().all(|(name, equal, wanted)| (value(name) == wanted) == *equal)
    }
}

impl Condition {
    /// Reads a condition. `prefix` is what the names of metrics begin with here.
    ///
    /// # Errors
    /// What is wrong with it, and what is supported.
    pub fn read(text: &str, prefix: &str) -> Result<Self, String> {
        let prefixes = [prefix, "tenure", "forge_leader"];
        let mut parser = Parser { text, rest: text, prefixes, notices: Vec::new() };
        let mut any = vec![parser.comparison()?];
        while parser.keyword("or") {
            any.push(parser.comparison()?);
        }
        if !parser.rest.is_empty() {
            return Err(parser.expected("`or` or the end"));
        }
        Ok(Self { text: text.to_owned(), any, notices: parser.notices })
    }

    /// Every metric that it asks for, with how far back.
    #[must_use]
    pub fn wanted(&self) -> Vec<(String, Duration)> {
        let each = |one: &Comparison| {
            (one.selector.metric.clone(), one.rise.map_or(Duration::ZERO, |(_, range)| range))
        };
        self.any.iter().map(each).collect()
    }
}

/// The name of a metric without the prefix that it has.
pub(super) fn bare<'a>(name: &'a str, prefixes: &[&str]) -> Option<&'a str> {
    prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)?.strip_prefix('_'))
}

/// One method for each rule of the grammar. None calls itself, so that no text is too deep.
struct Parser<'a> {
    text: &'a str,
    /// What has not been read yet, without blanks before it.
    rest: &'a str,
    prefixes: [&'a str; 3],
    notices: Vec<String>,
}

impl<'a> Parser<'a> {
    fn comparison(&mut self) -> Result<Comparison, String> {
        self.skip(0);
        let from = self.at();
        let (aggregate, selector, rise) = self.value()?;
        let operator = OPERATORS.iter().find(|(token, _)| self.eat(token)).map(|(_, operator)| *operator);
        let operator = operator.ok_or_else(|| self.expected("a comparison, such as `> 5`,"))?;
        let limit = self.number()?;
        if let Some((Rise::Rate, range)) = rise.filter(|_| limit >= 1.0) {
            let text = self.text[from..self.at()].trim_end().to_owned();
            self.explain(&text, limit, range);
        }
        Ok(Comparison { aggregate, selector, rise, operator, limit })
    }

    #[allow(clippy::type_complexity)]
    fn value(
        &mut self,
    ) -> Result<(Option<(Aggregate, Vec<String>)>, Selector, Option<(Rise, Duration)>), String> {
        let name = self.name("a metric")?;
        let aggregate = match name {
            "sum" => Aggregate::Sum,
            "min" => Aggregate::Min,
            "max" => Aggregate::Max,
            "avg" => Aggregate::Avg,
            "count" => Aggregate::Count,
            _ => return self.series(name).map(|(selector, rise)| (None, selector, rise)),
        };
        let before = self.by()?;
        self.expect("(")?;
        let name = self.name("a metric")?;
        let (selector, rise) = self.series(name)?;
        self.expect(")")?;
        let by = if before.is_empty() { self.by()? } else { before };
        Ok((Some((aggregate, by)), selector, rise))
    }

    fn by(&mut self) -> Result<Vec<String>, String> {
        if !self.keyword("by") {
            return Ok(Vec::new());
        }
        self.expect("(")?;
        let mut labels = vec![self.name("a label")?.to_owned()];
        while self.eat(",") {
            labels.push(self.name("a label")?.to_owned());
        }
        self.expect(")")?;
        Ok(labels)
    }

    fn series(&mut self, name: &'a str) -> Result<(Selector, Option<(Rise, Duration)>), String> {
        let rise = match name {
            "rate" => Rise::Rate,
            "increase" => Rise::Increase,
            _ if self.rest.starts_with('(') || self.rest.starts_with("by") => {
                return Err(format!("{name} is not supported here, in `{}`: {SUBSET}", self.text));
            }
            _ => return self.metric(name).map(|selector| (selector, None)),
        };
        self.expect("(")?;
        let name = self.name("a metric")?;
        let selector = self.metric(name)?;
        self.expect("[")?;
        let range = self.duration()?;
        self.expect("]")?;
        self.expect(")")?;
        Ok((selector, Some((rise, range))))
    }

    fn metric(&mut self, name: &str) -> Result<Selector, String> {
        let metric = self.known(name)?;
        let mut matchers = Vec::new();
        if self.eat("{") {
            while !self.eat("}") {
                matchers.push(self.matcher()?);
                if !self.eat(",") && !self.rest.starts_with('}') {
                    return Err(self.expected("`,` or `}`"));
                }
            }
        }
        Ok(Selector { metric, matchers })
    }

    fn matcher(&mut self) -> Result<(String, bool, String), String> {
        let label = self.name("a label")?.to_owned();
        let equal = match () {
            () if self.rest.starts_with("=~") || self.rest.starts_with("!~") => {
                return Err(format!(
                    "{} is not supported here, in `{}`: {SUBSET}",
                    &self.rest[..2],
                    self.text
                ));
            }
            () if self.eat("!=") => false,
            () if self.eat("=") => true,
            () => return Err(self.expected("`=` or `!=`")),
        };
        Ok((label, equal, self.string()?))
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = self.rest.chars().next().filter(|c| ['\'', '"'].contains(c));
        let quote = quote.ok_or_else(|| self.expected("a text in quotes"))?;
        let (mut value, mut chars) = (String::new(), self.rest.char_indices().skip(1));
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.skip(at + 1);
                    return Ok(value);
                }
                '\\' => match chars.next() {
                    Some((_, escaped @ ('\\' | '\'' | '"'))) => value.push(escaped),
                    _ => return Err(self.expected("no escapes but \\\\, \\' and \\\" in a text")),
                },
                c => value.push(c),
            }
        }
        Err(self.expected("a closing quote of"))
    }

    fn number(&mut self) -> Result<f64, String> {
        let length = self.run(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        let number = self.rest[..length].parse().ok().filter(|number: &f64| number.is_finite());
        let number = number.ok_or_else(|| self.expected("a number"))?;
        self.skip(length);
        Ok(number)
    }

    /// Such as `5m` or `1h30m`.
    fn duration(&mut self) -> Result<Duration, String> {
        let mut millis: u64 = 0;
        loop {
            let length = self.run(|c| c.is_ascii_digit());
            let (digits, after) = self.rest.split_at(length);
            let unit = UNITS.iter().find(|(unit, _)| after.starts_with(unit));
            let more = unit.and_then(|(_, scale)| digits.parse::<u64>().ok()?.checked_mul(*scale));
            let total = more.and_then(|more| millis.checked_add(more)).filter(|total| *total > 0);
            let (Some(total), Some((unit, _))) = (total, unit) else {
                return Err(self.expected("a duration, such as `5m`,"));
            };
            millis = total;
            self.skip(length + unit.len());
            if self.rest.starts_with(']') {
                return Ok(Duration::from_millis(millis));
            }
        }
    }

    fn name(&mut self, what: &str) -> Result<&'a str, String> {
        let digit = self.rest.starts_with(|c: char| c.is_ascii_digit());
        let length = self.run(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        if length == 0 || digit {
            return Err(self.expected(what));
        }
        let name = &self.rest[..length];
        self.skip(length);
        Ok(name)
    }

    fn known(&mut self, name: &str) -> Result<String, String> {
        let here = self.prefixes[0];
        if let Some(bare) = bare(name, &self.prefixes).filter(|bare| is_known(bare)) {
            if name.starts_with("forge_leader_") && here != "forge_leader" {
                self.notices.push(format!("{name} (FORGE) is {here}_{bare} here"));
            }
            return Ok(bare.to_owned());
        }
        let known: Vec<String> = known().map(|known| format!("{here}_{known}")).collect();
        let meant = nearest(name, known.iter().map(String::as_str));
        let hint = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        Err(format!("unknown metric {name}{hint}"))
    }

    /// A rate is per second, which those who compare it with a small number of events rarely mean.
    fn explain(&mut self, text: &str, limit: f64, range: Duration) {
        let shown = humantime::format_duration(range);
        let many = limit * range.as_secs_f64();
        self.notices.push(format!(
            "`{text}` compares with {many} in {shown}, because a rate is per second; for {limit} in {shown} write \
             increase(…) instead of rate(…)"
        ));
    }

    /// Reads a word that is not the beginning of a longer one.
    fn keyword(&mut self, word: &str) -> bool {
        let after = self.rest.strip_prefix(word);
        let whole =
            after.is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
        whole && self.eat(word)
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest.starts_with(token);
        if found {
            self.skip(token.len());
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) { Ok(()) } else { Err(self.expected(&format!("`{token}`"))) }
    }

    /// Goes on behind so many bytes and the blanks after them.
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }

    /// How many bytes fit from here on.
    fn run(&self, fits: impl Fn(char) -> bool) -> usize {
        self.rest.find(|c| !fits(c)).unwrap_or(self.rest.len())
    }

    fn at(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    fn expected(&self, what: &str) -> String {
        let place =
            if self.rest.is_empty() { "at its end".to_owned() } else { format!("before `{}`", self.rest) };
        format!("expected {what} {place}, in `{}`: {SUBSET}", self.text)
    }
}
