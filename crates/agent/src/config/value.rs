//! What a key can hold, however it was written.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tenure::Name;
use toml::de::DeValue;

/// What a key can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// Any text.
    Text,
    /// A text that may hold a password.
    Secret,
    /// A text that is nothing but a secret.
    Hidden,
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
    /// See [`ValueKind::Text`], [`ValueKind::Choice`].
    Text(String),
    /// See [`ValueKind::Secret`].
    Secret(String),
    /// See [`ValueKind::Hidden`].
    Hidden(String),
    /// See [`ValueKind::Name`].
    Name(Name),
    /// See [`ValueKind::Bool`].
    Bool(bool),
    /// See [`ValueKind::Int`].
    Int(i64),
    /// See [`ValueKind::Span`].
    Span(Duration),
    /// See [`ValueKind::List`], [`ValueKind::Command`].
    List(Vec<String>),
    /// See [`ValueKind::Labels`].
    Labels(BTreeMap<String, String>),
    /// See [`ValueKind::Headers`].
    Headers(BTreeMap<String, String>),
}

impl ValueKind {
    /// Reads what a file holds.
    pub(super) fn read_toml(self, value: &DeValue<'_>) -> Result<Value, String> {
        match (self, value) {
            (Self::Bool, DeValue::Boolean(value)) => Ok(Value::Bool(*value)),
            (Self::Int(..), DeValue::Integer(_)) => {
                self.read_text(&value.as_integer().map_or_else(String::new, ToString::to_string))
            }
            (Self::Span, DeValue::Integer(number)) => {
                Err(format!("{number} has no unit; use \"500ms\", \"5s\" or \"1m\""))
            }
            (Self::List | Self::Command, DeValue::Array(items)) => {
                let text = |item: &toml::Spanned<DeValue<'_>>| item.get_ref().as_str().map(str::to_owned);
                let items: Option<Vec<String>> = items.iter().map(text).collect();
                self.list(items.ok_or_else(|| format!("must be {self}"))?)
            }
            (Self::Command, DeValue::String(_)) => Err(format!("must be {self}, not a single text")),
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
                Err(_) => Err(format!("{text:?} is not a duration; use \"500ms\", \"5s\" or \"1m\"")),
            },
            Self::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Self::Choice(_) => Err(format!("{text:?} is not {self}")),
            Self::List => Ok(Value::List(parts(text).map(str::to_owned).collect())),
            Self::Command => self.list(text.split_whitespace().map(str::to_owned).collect()),
            Self::Headers => match Self::Labels.read_text(text) {
                Ok(Value::Labels(headers)) => Ok(Value::Headers(headers)),
                // What was written may be a secret.
                _ => Err("use NAME=VALUE,NAME=VALUE".to_owned()),
            },
            Self::Labels => {
                let label = |part: &str| {
                    let (key, value) = part.split_once('=')?;
                    (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
                };
                let labels: Option<BTreeMap<_, _>> = parts(text).map(label).collect();
                labels
                    .map(Value::Labels)
                    .ok_or_else(|| format!("{text:?} is not of the form KEY=VALUE,KEY=VALUE"))
            }
        }
    }
}

impl ValueKind {
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

impl fmt::Display for ValueKind {
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

impl Value {
    /// Whether others who read it could act in its owner's name.
    pub(super) fn holds_secret(&self) -> bool {
        match self {
            Self::Hidden(_) => true,
            Self::Headers(headers) => !headers.is_empty(),
            Self::Secret(url) => holds_password(url),
            _ => false,
        }
    }
}

fn holds_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let login = rest.rsplit_once('@').map(|(login, _)| login);
    login.is_some_and(|login| login.contains(':')) || url.contains("password=")
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

/// A URL without who logs in, without its parameters, and without the path of what is called over HTTP: each may hold a
/// secret. A password may hold `/`, `?`, `#` and `@` as they are, and then its end cannot be told: what might be a part of
/// it is not shown.
pub(super) fn masked(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return match url.split_once('?') {
            _ if !url.starts_with("sqlite:") => "…".to_owned(),
            Some((path, _)) => format!("{path}?…"),
            None => url.to_owned(),
        };
    };
    let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if after.contains('@') {
        return format!("{scheme}://…");
    }
    let hosts =
        authority.rsplit_once('@').map_or_else(|| authority.to_owned(), |(_, hosts)| format!("…@{hosts}"));
    let (path, parameters) = after.split_at(after.find(['?', '#']).unwrap_or(after.len()));
    let path = if scheme.starts_with("http") && path.len() > 1 { "/…" } else { path };
    format!("{scheme}://{hosts}{path}{}", if parameters.is_empty() { "" } else { "?…" })
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn no_part_of_a_secret_is_shown() {
        for (url, shown) in [
            ("sqlite:/var/lib/t.db?sync=x", "sqlite:/var/lib/t.db?…"),
            ("postgres://db/t", "postgres://db/t"),
            ("postgres://u:hunter2@db:5432/t?sslkey=hunter2", "postgres://…@db:5432/t?…"),
            ("postgres://u:hun?ter2@db/t", "postgres://…"),
            ("postgres://u:hun/ter2@db/t", "postgres://…"),
            ("postgres://u:hun#ter2@db/t", "postgres://…"),
            ("postgres://u:hun@ter2@db/t", "postgres://…@db/t"),
            ("postgres://u:p@db/t?password=hun@ter2", "postgres://…"),
            ("redis+sentinel://:hunter2@a,b/name", "redis+sentinel://…@a,b/name"),
            ("peers://a:1,b:2?secret=hunter2", "peers://a:1,b:2?…"),
            ("https://hooks.example/hunter2", "https://hooks.example/…"),
            ("https://hooks.example/#hunter2", "https://hooks.example/?…"),
            ("host=db password=hunter2", "…"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }
}
