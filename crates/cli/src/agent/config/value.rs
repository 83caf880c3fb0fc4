//! What a key can hold, however it was written.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tenure::Name;
use toml::de::DeValue;

/// What a key can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A text that may hold a password.
    Secret,
    /// A text that is nothing but a secret.
    Hidden,
    /// A name.
    Name,
    /// Yes or no.
    Bool,
    /// A number between two.
    Int(i64, i64),
    /// A time such as `5s`.
    Span,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// Several texts.
    List,
    /// Several texts, each with a name.
    Labels,
    /// The same, where the texts may be secrets.
    Headers,
    /// A program and its arguments.
    Command,
}

/// A value that fits its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// See [`Kind::Text`], [`Kind::Choice`].
    Text(String),
    /// See [`Kind::Secret`].
    Secret(String),
    /// See [`Kind::Hidden`].
    Hidden(String),
    /// See [`Kind::Name`].
    Name(Name),
    /// See [`Kind::Bool`].
    Bool(bool),
    /// See [`Kind::Int`].
    Int(i64),
    /// See [`Kind::Span`].
    Span(Duration),
    /// See [`Kind::List`], [`Kind::Command`].
    List(Vec<String>),
    /// See [`Kind::Labels`].
    Labels(BTreeMap<String, String>),
    /// See [`Kind::Headers`].
    Headers(BTreeMap<String, String>),
}

impl Kind {
    /// Reads what a file holds.
    pub(super) fn read_toml(self, value: &DeValue<'_>) -> Result<Value, String> {
        match (self, value) {
            (Self::Bool, DeValue::Boolean(value)) => Ok(Value::Bool(*value)),
            (Self::Int(..), DeValue::Integer(_)) => {
                self.read_text(&value.as_integer().map_or_else(String::new, ToString::to_string))
            }
            (Self::Span, DeValue::Integer(number)) => {
                Err(format!("{number} has no unit; write it like \"500ms\", \"5s\" or \"1m\""))
            }
            (Self::List | Self::Command, DeValue::Array(items)) => {
                let text = |item: &toml::Spanned<DeValue<'_>>| item.get_ref().as_str().map(str::to_owned);
                let items: Option<Vec<String>> = items.iter().map(text).collect();
                self.list(items.ok_or_else(|| format!("must be {self}"))?)
            }
            (Self::Command, DeValue::String(_)) => Err(format!("must be {self}, not one text")),
            (Self::Headers, DeValue::Table(_)) => match Self::Labels.read_toml(value)? {
                Value::Labels(headers) => Ok(Value::Headers(headers)),
                other => Ok(other),
            },
            (Self::Labels, DeValue::Table(items)) => {
                let text = |(key, value): (
                    &toml::Spanned<std::borrow::Cow<'_, str>>,
                    &toml::Spanned<DeValue<'_>>,
                )| {
                    Some((key.get_ref().to_string(), value.get_ref().as_str()?.to_owned()))
                };
                let items: Option<BTreeMap<String, String>> = items.iter().map(text).collect();
                items.map(Value::Labels).ok_or_else(|| format!("must be {self}"))
            }
            (Self::Bool | Self::Int(..), _) => Err(format!("must be {self}, not {}", value.type_str())),
            (_, DeValue::String(text)) => self.read_text(text),
            _ => Err(format!("must be {self}, not {}", value.type_str())),
        }
    }

    /// Reads what the environment or a flag says.
    pub(super) fn read_text(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Text => Ok(Value::Text(text.to_owned())),
            Self::Secret => Ok(Value::Secret(text.to_owned())),
            Self::Hidden => Ok(Value::Hidden(text.to_owned())),
            Self::Name => Name::new(text).map(Value::Name).map_err(|error| error.to_string()),
            Self::Bool => match text {
                "true" | "yes" | "on" | "1" => Ok(Value::Bool(true)),
                "false" | "no" | "off" | "0" => Ok(Value::Bool(false)),
                _ => Err(format!("{text:?} is neither true nor false")),
            },
            Self::Int(least, most) => match text.replace('_', "").parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(Value::Int(number)),
                _ => Err(format!("{text:?} is not {self}")),
            },
            Self::Span => match humantime::parse_duration(text) {
                Ok(span) => Ok(Value::Span(span)),
                Err(_) => Err(format!("{text:?} is not a time; write it like \"500ms\", \"5s\" or \"1m\"")),
            },
            Self::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Self::Choice(_) => Err(format!("{text:?} is not {self}")),
            Self::List => Ok(Value::List(parts(text).map(str::to_owned).collect())),
            Self::Command => self.list(text.split_whitespace().map(str::to_owned).collect()),
            Self::Headers => match Self::Labels.read_text(text)? {
                Value::Labels(headers) => Ok(Value::Headers(headers)),
                other => Ok(other),
            },
            Self::Labels => {
                let label = |part: &str| {
                    let (key, value) = part.split_once('=')?;
                    (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
                };
                let labels: Option<BTreeMap<_, _>> = parts(text).map(label).collect();
                labels
                    .map(Value::Labels)
                    .ok_or_else(|| format!("{text:?} is not written KEY=VALUE,KEY=VALUE"))
            }
        }
    }
}

impl Kind {
    /// A command has a program at least.
    fn list(self, items: Vec<String>) -> Result<Value, String> {
        match items.first() {
            None if self == Self::Command => Err(format!("must be {self}")),
            Some(program) if self == Self::Command && program.is_empty() => Err(format!("must be {self}")),
            _ => Ok(Value::List(items)),
        }
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text | Self::Secret | Self::Hidden => f.write_str("text"),
            Self::Name => f.write_str("a name"),
            Self::Bool => f.write_str("true or false"),
            Self::Int(least, most) => write!(f, "a number from {least} to {most}"),
            Self::Span => f.write_str("a time"),
            Self::Choice(words) => f.write_str(&words.join(" or ")),
            Self::List => f.write_str("a list of texts"),
            Self::Labels | Self::Headers => f.write_str("a table of texts"),
            Self::Command => f.write_str("a list such as [\"program\", \"argument\"]"),
        }
    }
}

/// As a file would hold it; a secret is masked.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Secret(url) => write!(f, "{:?}", masked(url)),
            Self::Hidden(_) => f.write_str("\"…\""),
            Self::Name(name) => write!(f, "{:?}", name.as_str()),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Span(span) => write!(f, "\"{}\"", humantime::format_duration(*span)),
            Self::List(items) => write!(f, "{items:?}"),
            Self::Headers(headers) => {
                let items: Vec<String> = headers.keys().map(|name| format!("{name:?} = \"…\"")).collect();
                write!(f, "{{ {} }}", items.join(", "))
            }
            Self::Labels(labels) => {
                let items: Vec<String> =
                    labels.iter().map(|(key, value)| format!("{key:?} = {value:?}")).collect();
                write!(f, "{{ {} }}", items.join(", "))
            }
        }
    }
}

/// A URL without who logs in, and without its parameters: either may hold a secret.
pub(super) fn masked(url: &str) -> String {
    let (url, parameters) = url.split_once('?').map_or((url, ""), |(url, _)| (url, "?…"));
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}{parameters}"),
        (None, Some((_, host))) => format!("…@{host}{parameters}"),
        _ => format!("{url}{parameters}"),
    }
}
