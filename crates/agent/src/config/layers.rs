//! Layers: the file, the environment, the flags; the later wins, and each value knows where it came from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::alias::{self, ALIASES, Alias, AliasSource};
use super::keys::{self, KEYS};
use super::value::Value;
use crate::nearest::nearest;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Not given: the default.
    Default,
    /// A line of the file.
    File(PathBuf, usize),
    /// A variable.
    Environment(String),
    /// The command line.
    Flag,
}

impl Origin {
    /// For putting places in order: the file, line by line, and then the rest.
    pub(super) fn line(&self) -> usize {
        if let Self::File(_, line) = self { *line } else { usize::MAX }
    }
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenValue {
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
}

/// All that was said, by concrete path.
#[derive(Debug, Default)]
pub struct Layers {
    pub values: BTreeMap<String, GivenValue>,
    /// What was translated, for people.
    pub notices: Vec<String>,
    /// What cannot be.
    pub errors: Vec<String>,
}

impl Layers {
    /// Takes in a file.
    pub fn file(&mut self, path: &Path, text: &str) {
        match DeTable::parse(text) {
            Ok(table) => {
                let mut walk =
                    FileWalk { layers: self, file: path, lines: Lines::of(text), aliased: BTreeMap::new() };
                walk.table("", table.get_ref());
            }
            Err(error) => {
                let line = error.span().map_or(1, |span| Lines::of(text).at(span.start));
                self.errors.push(format!("{}:{line}: {}", path.display(), error.message()));
            }
        }
    }

    /// Secrets in a file that every user of this host can read are none.
    pub fn refuse_secrets(&mut self, path: &Path) {
        let secret = |(key, given): (&String, &GivenValue)| {
            let told = given.value.holds_secret();
            told.then(|| {
                format!(
                    "{}: {key} holds a secret, and every user of this host can read the file",
                    given.origin
                )
            })
        };
        let told: Vec<String> = self.values.iter().filter_map(secret).collect();
        let shown = path.display();
        self.errors.extend(told.into_iter().map(|why| format!("{why}; run `chmod 600 {shown}`")));
    }

    /// Takes in the environment.
    pub fn environment(&mut self, variable: impl Fn(&str) -> Option<String>) {
        for alias in ALIASES {
            let AliasSource::Environment(name) = alias.place else { continue };
            if let (Some(text), Some(key)) = (variable(name), keys::find(alias.becomes)) {
                let value = alias.read_text(key.kind, &text);
                self.translated(alias, value, &Origin::Environment(name.to_owned()));
            }
        }
        for key in KEYS {
            let Some(name) = key.env() else { continue };
            if let Some(text) = variable(&name) {
                let value = key.kind.read_text(&text);
                self.put(key.path, value, Origin::Environment(name));
            }
        }
    }

    /// Takes in one `KEY=VALUE` of the command line.
    pub fn flag(&mut self, path: &str, text: &str) {
        match keys::find(path) {
            Some(key) => self.put(path, key.kind.read_text(text), Origin::Flag),
            None => {
                let meant = nearest(path, KEYS.iter().map(|key| key.path));
                self.errors.push(format!("--set {path}: unknown key{}", did_you_mean(meant)));
            }
        }
    }

    fn put(&mut self, path: &str, value: Result<Value, String>, origin: Origin) {
        match value {
            Ok(value) => _ = self.values.insert(path.to_owned(), GivenValue { value, origin }),
            Err(why) => self.errors.push(format!("{origin}: {path}: {why}")),
        }
    }

    /// A setting of another design; of several upper limits the lowest counts.
    fn translated(&mut self, alias: &Alias, value: Result<Value, String>, origin: &Origin) {
        if let Ok(value) = &value {
            self.notices.push(format!("{origin}: {}", alias.notice(value)));
        }
        let lower = match (self.values.get(alias.becomes), &value) {
            (Some(GivenValue { value: Value::Span(had), origin: from }), Ok(Value::Span(new))) => {
                std::mem::discriminant(from) != std::mem::discriminant(origin) || new < had
            }
            _ => true,
        };
        if lower {
            self.put(alias.becomes, value, origin.clone());
        }
    }
}

/// Goes through a file.
struct FileWalk<'a> {
    layers: &'a mut Layers,
    file: &'a Path,
    lines: Lines,
    /// What a setting of another design became, and where it stood.
    aliased: BTreeMap<&'static str, (&'static str, usize)>,
}

impl FileWalk<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let line = self.lines.at(key.span().start);
            let path = if prefix.is_empty() {
                key.get_ref().to_string()
            } else {
                format!("{prefix}.{}", key.get_ref())
            };
            self.entry(prefix, &path, line, value);
        }
    }

    fn entry(&mut self, prefix: &str, path: &str, line: usize, value: &Spanned<DeValue<'_>>) {
        let value = value.get_ref();
        if let Some(alias) = alias::in_file(path) {
            return self.alias(alias, line, value);
        }
        if let Some(key) = keys::find(path) {
            if let Some((old, at)) = self.aliased.get(key.path).copied() {
                return self.error(
                    line,
                    format_args!("{path} is given twice: here, and as {old} in line {at}; keep one"),
                );
            }
            let origin = Origin::File(self.file.to_owned(), line);
            return self.layers.put(path, key.kind.read_toml(value), origin);
        }
        match value {
            DeValue::Table(table) if keys::is_table(path) || alias::below(path) => self.table(path, table),
            DeValue::Table(_) if keys::is_list(path) => {
                self.error(line, format_args!("{path} is a list: use [[{path}]] instead of [{path}]"));
            }
            DeValue::Array(items) if keys::is_list(path) => self.list(path, line, items.iter()),
            DeValue::Array(items) if path == "alerts" => self.alerts(line, items.iter()),
            DeValue::Array(_) if keys::is_table(path) => {
                self.error(line, format_args!("{path} is not a list: use [{path}] instead of [[{path}]]"));
            }
            _ => self.unknown(prefix, path, line),
        }
    }

    fn list<'i>(&mut self, path: &str, line: usize, items: impl Iterator<Item = &'i Spanned<DeValue<'i>>>) {
        for (index, item) in items.enumerate() {
            match item.get_ref() {
                DeValue::Table(table) if table.is_empty() => {
                    let line = self.lines.at(item.span().start);
                    self.error(
                        line,
                        format_args!("{path}[{index}]: the table is empty; fill it or remove it"),
                    );
                }
                DeValue::Table(table) => self.table(&format!("{path}[{index}]"), table),
                _ => self.error(line, format_args!("{path} is a list of tables: use [[{path}]]")),
            }
        }
    }

    /// FORGE's word for the list of alerts.
    fn alerts<'i>(&mut self, line: usize, items: impl Iterator<Item = &'i Spanned<DeValue<'i>>>) {
        if self.layers.values.keys().any(|path| path.starts_with("alert[")) {
            return self
                .error(line, format_args!("[[alert]] and [[alerts]] are mixed: use [[alert]] for all"));
        }
        let origin = Origin::File(self.file.to_owned(), line);
        self.layers.notices.push(format!("{origin}: [[alerts]] (FORGE) became [[alert]]"));
        self.list("alert", line, items);
    }

    fn alias(&mut self, alias: &'static Alias, line: usize, value: &DeValue<'_>) {
        let origin = Origin::File(self.file.to_owned(), line);
        let native = self.layers.values.get(alias.becomes).map(|given| given.origin.clone());
        if let (Some(Origin::File(_, at)), false) = (native, self.aliased.contains_key(alias.becomes)) {
            let (becomes, name) = (alias.becomes, alias.name());
            return self.error(
                line,
                format_args!("{becomes} is given twice: as {name} here, and in line {at}; keep one"),
            );
        }
        if let Some(key) = keys::find(alias.becomes) {
            self.aliased.insert(alias.becomes, (alias.name(), line));
            self.layers.translated(alias, alias.read_toml(key.kind, value), &origin);
        }
    }

    fn unknown(&mut self, prefix: &str, path: &str, line: usize) {
        let typed = path.rsplit('.').next().unwrap_or(path);
        let known = keys::names_below(prefix).into_iter().chain(alias::names_below(prefix));
        let meant = nearest(typed, known.clone());
        let known: Vec<&str> = known.collect();
        let hint = match meant {
            Some(_) => did_you_mean(meant),
            None => format!("; known keys: {}", known.join(", ")),
        };
        self.error(line, format_args!("unknown key {path}{hint}"));
    }

    fn error(&mut self, line: usize, why: fmt::Arguments<'_>) {
        self.layers.errors.push(format!("{}:{line}: {why}", self.file.display()));
    }
}

fn did_you_mean(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
}

/// Where lines end: counting them anew for every key of a file with ten thousand roles takes minutes.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|end| *end < offset) + 1
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag => f.write_str("command line"),
        }
    }
}
