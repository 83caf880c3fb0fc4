//! What the pages tell people to type, to set and to query is there: every command and flag, every key of the configuration and
//! every metric.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use tenure_agent::alerts::samples::STORE_SERIES;
use tenure_agent::config::keys::KEYS;
use tenure_agent::metrics::METRICS;

/// Tables, views and functions that begin like metrics.
const SQL_NAMES: &[&str] = &[
    "tenure_deletions",
    "tenure_fence",
    "tenure_leaders",
    "tenure_notifier",
    "tenure_notify_v2",
    "tenure_registers",
    "tenure_schema",
];

/// Code that looks like a key.
const NO_KEYS: &[&str] = &["node.lead"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages that say how things are now: not why it came to be so, nor what was once wrong.
fn pages() -> Vec<(String, String)> {
    let mut found: Vec<PathBuf> =
        ["README.md", "SAFETY.md", "SECURITY.md"].map(|page| root().join(page)).into();
    for folder in ["docs", "docs/start", "docs/guides", "docs/reference", "docs/stores", "docs/explanation"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        let page = |path: &PathBuf| {
            path.extension().is_some_and(|ext| ext == "md") && !path.ends_with("docs/bugs.md")
        };
        found.extend(entries.filter(page));
    }
    found.iter().map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap())).collect()
}

/// What stands in backticks in the prose of a page, and each line of its code blocks.
fn code(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut prose = String::new();
    let mut block: Option<&str> = None;
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = block.is_none().then_some(language);
        } else if let Some(language) = block {
            // Blocks of text show what is printed.
            found.extend((language != "text").then(|| line.trim().to_owned()));
        } else {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    let spans = prose.split('`').skip(1).step_by(2);
    found.extend(spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\|", "|")));
    found
}

/// The words of a command as a shell takes them, up to what ends it.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut begun = false;
    for c in command.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, begun) = (Some(c), true),
            (None, '|' | '#' | '>' | '<' | '&' | ';' | ')') => break,
            (None, ' ') if begun || !word.is_empty() => {
                words.push(std::mem::take(&mut word));
                begun = false;
            }
            (None, ' ') => {}
            (None, c) => word.push(c),
        }
    }
    words.extend((begun || !word.is_empty()).then_some(word));
    words
}

#[test]
fn every_command_on_a_page_can_be_typed() {
    let mut seen = 0;
    for (page, text) in pages() {
        for line in code(&text) {
            let line = line.trim_start_matches("$ ");
            // Alternatives, parts that may be left out, and words that stand for a command are no command.
            if !line.starts_with("tenure ")
                || line.starts_with("tenure COMMAND")
                || line.contains('[')
                || line.contains("on|off")
                || line.contains(" … ")
            {
                continue;
            }
            let words = words(line);
            let parsed = tenure_cli::parse::command().try_get_matches_from(&words);
            let kind = parsed.err().map(|error| error.kind());
            let unknown = matches!(kind, Some(ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand));
            assert!(!unknown, "{page}: {line}: {kind:?} {words:?}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen} commands");
}

#[test]
fn every_key_on_a_page_is_one() {
    let tables: BTreeSet<&str> = KEYS.iter().filter_map(|key| Some(key.path.split_once('.')?.0)).collect();
    let mut seen = 0;
    for (page, text) in pages() {
        for span in code(&text) {
            let name = span.split(['=', ' ']).next().unwrap_or_default();
            let Some((table, rest)) = name.split_once('.') else { continue };
            let plain = rest.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '-' | '.'));
            if !tables.contains(table) || !plain || rest.is_empty() || NO_KEYS.contains(&name) {
                continue;
            }
            let known = KEYS.iter().any(|key| key.path == name || key.path.starts_with(&format!("{name}.")));
            assert!(known, "{page}: there is no key {name}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen} keys");
}

#[test]
fn every_metric_on_a_page_is_one() {
    let names = METRICS.iter().chain(STORE_SERIES).map(|(name, ..)| *name);
    let known: BTreeSet<String> =
        names.flat_map(|name| [format!("tenure_{name}"), name.to_owned()]).collect();
    let mut seen = 0;
    for (page, text) in pages() {
        for span in code(&text) {
            let of_a_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            for name in
                span.split(|c| !of_a_name(c)).filter(|name| name.starts_with("tenure_") && name.len() > 7)
            {
                let sampled = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                let is_one = known.contains(name) || sampled.is_some_and(|name| known.contains(name));
                // A number in an example of a channel, a crate in an example of code.
                let other = SQL_NAMES.contains(&name) || name.starts_with("tenure_id") || span.contains("::");
                assert!(is_one || other, "{page}: there is no metric {name}: {span}");
                seen += usize::from(is_one);
            }
        }
    }
    assert!(seen > 20, "{seen} metrics");
}
