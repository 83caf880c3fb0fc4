//! Conditions: PromQL, read once and turned into a [`Plan`]. What cannot be evaluated here is refused by name.
//!
//! The names of metrics may have the configured prefix, `tenure_` or FORGE's `forge_leader_`; inside they have none.

use std::collections::BTreeMap;
use std::time::Duration;

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::token::{self, TokenType};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{
    AggregateExpr, BinaryExpr, Call, Expr, LabelModifier, VectorMatchCardinality, VectorSelector,
};

use super::keep::is_known;
use crate::verbs::nearest::nearest;

/// A condition that can be evaluated.
#[derive(Debug, Clone)]
pub struct Condition {
    /// As it was written.
    pub text: String,
    /// What is to be computed.
    pub plan: Plan,
    /// What people should know about it.
    pub notices: Vec<String>,
}

/// What is to be computed.
#[derive(Debug, Clone)]
pub enum Plan {
    /// A number.
    Number(f64),
    /// Now, in seconds since 1970.
    Time,
    /// The series as they are now.
    Select(Selector),
    /// A function of the samples of each series over a time.
    Over(Over, Selector, Duration),
    /// A function of each value.
    Each(Each, Box<Self>, Vec<f64>),
    /// The other sign.
    Negative(Box<Self>),
    /// Series gathered by some labels.
    Gather(Gather, Box<Self>, Grouping),
    /// Two sides.
    Two(Box<Two>),
    /// 1 if there is nothing.
    Absent(Box<Self>, BTreeMap<String, String>),
    /// The one value there is.
    Scalar(Box<Self>),
    /// A number as a series without labels.
    Vector(Box<Self>),
}

/// Which series.
#[derive(Debug, Clone)]
pub struct Selector {
    /// The metric, without a prefix.
    pub metric: String,
    /// What its labels must be.
    pub matchers: Vec<Matcher>,
}

/// A function of samples over a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// How fast a counter rises, per second.
    Rate,
    /// The same, from its last two samples.
    Irate,
    /// How much a counter rose.
    Increase,
    /// How much a gauge moved.
    Delta,
    /// How often the value changed.
    Changes,
    /// How often a counter began anew.
    Resets,
    /// The least.
    Min,
    /// The most.
    Max,
    /// The mean.
    Avg,
    /// All together.
    Sum,
    /// How many samples.
    Count,
    /// The newest.
    Last,
    /// 1 where there is any.
    Present,
}

/// A function of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Each {
    /// Without its sign.
    Abs,
    /// Rounded up.
    Ceil,
    /// Rounded down.
    Floor,
    /// Rounded to a multiple.
    Round,
    /// Within two bounds.
    Clamp,
    /// Not less.
    ClampMin,
    /// Not more.
    ClampMax,
}

/// How series are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gather {
    /// Added up.
    Sum,
    /// The least.
    Min,
    /// The most.
    Max,
    /// The mean.
    Avg,
    /// How many.
    Count,
    /// 1.
    Group,
}

/// By which labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grouping {
    /// By none: all together.
    All,
    /// By these.
    By(Vec<String>),
    /// By all but these.
    Without(Vec<String>),
}

/// Two sides.
#[derive(Debug, Clone)]
pub struct Two {
    /// What is done with them.
    pub op: Op,
    /// Left.
    pub left: Plan,
    /// Right.
    pub right: Plan,
    /// A comparison gives 0 or 1 instead of keeping what fits.
    pub truth: bool,
    /// Which labels tell that two series belong together.
    pub matching: Grouping,
}

/// What is done with two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// +
    Add,
    /// -
    Sub,
    /// *
    Mul,
    /// /
    Div,
    /// %
    Mod,
    /// ^
    Pow,
    /// ==
    Equal,
    /// !=
    NotEqual,
    /// <
    Less,
    /// <=
    LessEqual,
    /// >
    Greater,
    /// >=
    GreaterEqual,
    /// and
    And,
    /// or
    Or,
    /// unless
    Unless,
}

impl Op {
    /// Whether it compares.
    #[must_use]
    pub fn compares(self) -> bool {
        use Op::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
        matches!(self, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
    }
}

impl Condition {
    /// Reads a condition. `prefix` is what the names of metrics begin with here.
    ///
    /// # Errors
    /// What is wrong with it, or not supported.
    pub fn read(text: &str, prefix: &str) -> Result<Self, String> {
        let parsed = promql_parser::parser::parse(text).map_err(|why| format!("not PromQL: {why}"))?;
        if parsed.value_type() != ValueType::Vector {
            let kind = parsed.value_type();
            return Err(format!("{text} is a {kind}: a condition selects series, such as `x > 5`"));
        }
        let mut reader = Reader { prefixes: [prefix, "tenure", "forge_leader"], notices: Vec::new() };
        let plan = reader.plan(&parsed)?;
        Ok(Self { text: text.to_owned(), plan, notices: reader.notices })
    }

    /// Every metric that it asks for, with how far back.
    #[must_use]
    pub fn wanted(&self) -> Vec<(String, Duration)> {
        let mut found = Vec::new();
        wanted(&self.plan, &mut found);
        found
    }
}

fn wanted(plan: &Plan, found: &mut Vec<(String, Duration)>) {
    match plan {
        Plan::Number(_) | Plan::Time => {}
        Plan::Select(selector) => found.push((selector.metric.clone(), Duration::ZERO)),
        Plan::Over(_, selector, range) => found.push((selector.metric.clone(), *range)),
        Plan::Each(_, plan, _)
        | Plan::Negative(plan)
        | Plan::Gather(_, plan, _)
        | Plan::Absent(plan, _)
        | Plan::Scalar(plan)
        | Plan::Vector(plan) => wanted(plan, found),
        Plan::Two(two) => {
            wanted(&two.left, found);
            wanted(&two.right, found);
        }
    }
}

/// The name of a metric without the prefix that it has.
pub(super) fn bare<'a>(name: &'a str, prefixes: &[&str]) -> Option<&'a str> {
    prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)?.strip_prefix('_'))
}

struct Reader<'a> {
    prefixes: [&'a str; 3],
    notices: Vec<String>,
}

fn unsupported(what: &str, expr: &Expr) -> String {
    format!("{what} is not supported here, in `{expr}`; docs/alerts.md lists what is")
}

impl Reader<'_> {
    fn plan(&mut self, expr: &Expr) -> Result<Plan, String> {
        match expr {
            Expr::Paren(inner) => self.plan(&inner.expr),
            Expr::NumberLiteral(number) => Ok(Plan::Number(number.val)),
            Expr::Unary(inner) => Ok(Plan::Negative(Box::new(self.plan(&inner.expr)?))),
            Expr::VectorSelector(selector) => Ok(Plan::Select(self.selector(selector, expr)?)),
            Expr::Aggregate(gathering) => self.gathering(gathering, expr),
            Expr::Binary(two) => self.two(two, expr),
            Expr::Call(call) => self.call(call, expr),
            Expr::StringLiteral(_) => Err(unsupported("a text", expr)),
            Expr::MatrixSelector(_) => Err(unsupported("a range outside of a function", expr)),
            Expr::Subquery(_) => Err(unsupported("a subquery", expr)),
            Expr::Extension(_) => Err(unsupported("an extension", expr)),
        }
    }

    fn selector(&mut self, selector: &VectorSelector, expr: &Expr) -> Result<Selector, String> {
        if selector.offset.is_some() {
            return Err(unsupported("offset", expr));
        }
        if selector.at.is_some() {
            return Err(unsupported("@", expr));
        }
        if !selector.matchers.or_matchers.is_empty() {
            return Err(unsupported("or between labels", expr));
        }
        let by_name = |matcher: &&Matcher| matcher.name == "__name__" && matcher.op == MatchOp::Equal;
        let named = selector.matchers.matchers.iter().find(by_name).map(|matcher| matcher.value.clone());
        let Some(name) = selector.name.clone().or(named) else {
            return Err(format!("`{expr}` names no metric; write one before the braces"));
        };
        let metric = self.metric(&name)?;
        let others = selector.matchers.matchers.iter().filter(|matcher| matcher.name != "__name__");
        Ok(Selector { metric, matchers: others.cloned().collect() })
    }

    fn metric(&mut self, name: &str) -> Result<String, String> {
        if let Some(bare) = bare(name, &self.prefixes).filter(|bare| is_known(bare)) {
            if let (Some(_), false) = (name.strip_prefix("forge_leader_"), self.prefixes[0] == "forge_leader")
            {
                self.notices.push(format!("{name} (FORGE) is {}_{bare} here", self.prefixes[0]));
            }
            return Ok(bare.to_owned());
        }
        let known: Vec<String> =
            super::keep::known().map(|known| format!("{}_{known}", self.prefixes[0])).collect();
        let meant = nearest(name, known.iter().map(String::as_str));
        let hint = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        Err(format!("there is no metric {name}{hint}"))
    }

    fn gathering(&mut self, gathering: &AggregateExpr, expr: &Expr) -> Result<Plan, String> {
        let how = match gathering.op.id() {
            token::T_SUM => Gather::Sum,
            token::T_MIN => Gather::Min,
            token::T_MAX => Gather::Max,
            token::T_AVG => Gather::Avg,
            token::T_COUNT => Gather::Count,
            token::T_GROUP => Gather::Group,
            _ => return Err(unsupported(&gathering.op.to_string(), expr)),
        };
        let by = match &gathering.modifier {
            None => Grouping::All,
            Some(LabelModifier::Include(labels)) if labels.is_empty() => Grouping::All,
            Some(LabelModifier::Include(labels)) => Grouping::By(labels.labels.clone()),
            Some(LabelModifier::Exclude(labels)) => Grouping::Without(labels.labels.clone()),
        };
        Ok(Plan::Gather(how, Box::new(self.plan(&gathering.expr)?), by))
    }

    fn two(&mut self, two: &BinaryExpr, expr: &Expr) -> Result<Plan, String> {
        let op = operator(two.op).ok_or_else(|| unsupported(&two.op.to_string(), expr))?;
        let modifier = two.modifier.as_ref();
        match modifier.map(|modifier| &modifier.card) {
            Some(VectorMatchCardinality::ManyToOne(_)) => return Err(unsupported("group_left", expr)),
            Some(VectorMatchCardinality::OneToMany(_)) => return Err(unsupported("group_right", expr)),
            _ => {}
        }
        if modifier.is_some_and(|modifier| modifier.fill_values.lhs.or(modifier.fill_values.rhs).is_some()) {
            return Err(unsupported("fill", expr));
        }
        let matching = match modifier.and_then(|modifier| modifier.matching.as_ref()) {
            None => Grouping::Without(Vec::new()),
            Some(LabelModifier::Include(labels)) => Grouping::By(labels.labels.clone()),
            Some(LabelModifier::Exclude(labels)) => Grouping::Without(labels.labels.clone()),
        };
        let (left, right) = (self.plan(&two.lhs)?, self.plan(&two.rhs)?);
        self.explain(op, &left, &right, expr);
        let truth = modifier.is_some_and(|modifier| modifier.return_bool);
        Ok(Plan::Two(Box::new(Two { op, left, right, truth, matching })))
    }

    /// A rate is per second, which those who compare it with a small number of events rarely mean.
    fn explain(&mut self, op: Op, left: &Plan, right: &Plan, expr: &Expr) {
        let (rate, number) = match (left, right) {
            (rate, Plan::Number(number)) | (Plan::Number(number), rate) => (rate, *number),
            _ => return,
        };
        let Some(range) = range_of_rate(rate).filter(|_| op.compares() && number >= 1.0) else { return };
        let shown = humantime::format_duration(range);
        let many = number * range.as_secs_f64();
        self.notices.push(format!(
            "`{expr}` compares with {many} in {shown}, because a rate is per second; for {number} in {shown} write \
             increase(…) instead of rate(…)"
        ));
    }

    fn call(&mut self, call: &Call, expr: &Expr) -> Result<Plan, String> {
        let args = &call.args.args;
        let name = call.func.name;
        if let Some(over) = over(name) {
            let (selector, range) = self.range(args.first(), expr)?;
            return Ok(Plan::Over(over, selector, range));
        }
        if let Some(each) = each(name) {
            let (Some(first), rest) = (args.first(), args.iter().skip(1)) else {
                return Err(unsupported(name, expr));
            };
            let number = |arg: &Expr| match self.plan(arg)? {
                Plan::Number(number) => Ok(number),
                Plan::Negative(inner) if matches!(*inner, Plan::Number(_)) => match *inner {
                    Plan::Number(number) => Ok(-number),
                    _ => Err(unsupported(name, expr)),
                },
                _ => Err(unsupported("a bound that is not a number", expr)),
            };
            let rest: Result<Vec<f64>, String> = rest.map(AsRef::as_ref).map(number).collect();
            let rest = rest?;
            return Ok(Plan::Each(each, Box::new(self.plan(first)?), rest));
        }
        match (name, args.first()) {
            ("time", None) => Ok(Plan::Time),
            ("scalar", Some(arg)) => Ok(Plan::Scalar(Box::new(self.plan(arg)?))),
            ("vector", Some(arg)) => Ok(Plan::Vector(Box::new(self.plan(arg)?))),
            ("absent", Some(arg)) => {
                let plan = self.plan(arg)?;
                let labels = exact(&plan);
                Ok(Plan::Absent(Box::new(plan), labels))
            }
            ("absent_over_time", arg) => {
                let (selector, range) = self.range(arg, expr)?;
                let plan = Plan::Over(Over::Present, selector, range);
                let labels = exact(&plan);
                Ok(Plan::Absent(Box::new(plan), labels))
            }
            _ => Err(unsupported(&format!("{name}()"), expr)),
        }
    }

    #[allow(clippy::borrowed_box)]
    fn range(&mut self, arg: Option<&Box<Expr>>, expr: &Expr) -> Result<(Selector, Duration), String> {
        match arg.map(AsRef::as_ref) {
            Some(Expr::Paren(inner)) => self.range(Some(&inner.expr), expr),
            Some(Expr::MatrixSelector(matrix)) => Ok((self.selector(&matrix.vs, expr)?, matrix.range)),
            Some(Expr::Subquery(_)) => Err(unsupported("a subquery", expr)),
            _ => Err(unsupported("this argument", expr)),
        }
    }
}

/// The labels that an absent series would have: those that were asked for exactly.
fn exact(plan: &Plan) -> BTreeMap<String, String> {
    let (Plan::Select(selector) | Plan::Over(_, selector, _)) = plan else { return BTreeMap::new() };
    let mut labels = BTreeMap::new();
    for matcher in &selector.matchers {
        let twice = selector.matchers.iter().filter(|other| other.name == matcher.name).count() > 1;
        if matcher.op == MatchOp::Equal && !twice {
            labels.insert(matcher.name.clone(), matcher.value.clone());
        }
    }
    labels
}

fn range_of_rate(plan: &Plan) -> Option<Duration> {
    match plan {
        Plan::Over(Over::Rate | Over::Irate, _, range) => Some(*range),
        Plan::Gather(_, plan, _) => range_of_rate(plan),
        _ => None,
    }
}

fn operator(op: TokenType) -> Option<Op> {
    Some(match op.id() {
        token::T_ADD => Op::Add,
        token::T_SUB => Op::Sub,
        token::T_MUL => Op::Mul,
        token::T_DIV => Op::Div,
        token::T_MOD => Op::Mod,
        token::T_POW => Op::Pow,
        token::T_EQLC => Op::Equal,
        token::T_NEQ => Op::NotEqual,
        token::T_LSS => Op::Less,
        token::T_LTE => Op::LessEqual,
        token::T_GTR => Op::Greater,
        token::T_GTE => Op::GreaterEqual,
        token::T_LAND => Op::And,
        token::T_LOR => Op::Or,
        token::T_LUNLESS => Op::Unless,
        _ => return None,
    })
}

fn over(name: &str) -> Option<Over> {
    Some(match name {
        "rate" => Over::Rate,
        "irate" => Over::Irate,
        "increase" => Over::Increase,
        "delta" => Over::Delta,
        "changes" => Over::Changes,
        "resets" => Over::Resets,
        "min_over_time" => Over::Min,
        "max_over_time" => Over::Max,
        "avg_over_time" => Over::Avg,
        "sum_over_time" => Over::Sum,
        "count_over_time" => Over::Count,
        "last_over_time" => Over::Last,
        "present_over_time" => Over::Present,
        _ => return None,
    })
}

fn each(name: &str) -> Option<Each> {
    Some(match name {
        "abs" => Each::Abs,
        "ceil" => Each::Ceil,
        "floor" => Each::Floor,
        "round" => Each::Round,
        "clamp" => Each::Clamp,
        "clamp_min" => Each::ClampMin,
        "clamp_max" => Each::ClampMax,
        _ => return None,
    })
}
