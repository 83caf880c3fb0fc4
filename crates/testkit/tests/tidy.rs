//! The tree stays readable: lengths, headers, words. An ordinary test, so that nobody has to remember.

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// Every file of the tree with one of these endings.
fn files(endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() && !["target", ".git"].contains(&name.as_str()) {
                folders.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let shown = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
                found.push((shown, fs::read_to_string(&path).expect("text")));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "there is something to look at");
    found
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn no_file_is_too_long() {
    let long = |(path, text): (String, String)| {
        let lines = text.lines().count();
        (lines > FILE_LINES).then(|| format!("{path}: {lines} lines, {FILE_LINES} at most"))
    };
    report(&files(&[".rs"]).into_iter().filter_map(long).collect::<Vec<_>>());
}

#[test]
fn no_function_is_too_long() {
    let mut faults = Vec::new();
    for (path, text) in files(&[".rs"]) {
        for (line, length) in functions(&text) {
            if length > FUNCTION_LINES {
                faults.push(format!("{path}:{line}: a function of {length} lines, {FUNCTION_LINES} at most"));
            }
        }
    }
    report(&faults);
}

/// Where functions begin, and how long they are, as rustfmt lays them out: the closing brace is as deep as the `fn`.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let is_function = !code.starts_with("//") && (code.starts_with("fn ") || code.contains(" fn "));
        let depth = line.len() - code.len();
        let end = format!("{}}}", " ".repeat(depth));
        // A declaration without a body has no length.
        let ends = |line: &&str| line.ends_with('{') || line.ends_with(';') || line.ends_with('}');
        let has_body = lines[index..].iter().find(|line| ends(line)).is_some_and(|line| line.ends_with('{'));
        if is_function
            && has_body
            && let Some(length) = lines[index..].iter().position(|line| **line == end)
        {
            found.push((index + 1, length + 1));
        }
    }
    found
}

#[test]
fn every_module_says_what_it_is() {
    let silent = |(path, text): (String, String)| {
        let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!"));
        (!first.is_some_and(|line| line.starts_with("//!")))
            .then(|| format!("{path}: does not begin with //!"))
    };
    report(&files(&[".rs"]).into_iter().filter_map(silent).collect::<Vec<_>>());
}

#[test]
fn nothing_is_left_for_later_and_no_test_is_skipped() {
    // Spelt so that this file does not find itself.
    let marks =
        ["TO\u{44}O", "FIX\u{4d}E", "unimplemented\u{21}(", "todo\u{21}(", "#[ign\u{6f}re", "dbg\u{21}("];
    let mut faults = Vec::new();
    for (path, text) in files(&[".rs", ".md", ".toml", "test", "run"]) {
        for mark in marks.iter().filter(|mark| text.contains(**mark)) {
            faults.push(format!("{path}: {mark}"));
        }
    }
    report(&faults);
}

#[test]
fn words() {
    let banned = ["sla\u{76}e", "blackli\u{73}t", "whiteli\u{73}t", "/wo\u{72}k/", "crates\u{2e}io"];
    let mut faults = Vec::new();
    for (path, text) in files(&[".rs", ".md", ".toml", "test", "run", "fix"]) {
        let text = text.to_lowercase();
        for word in banned.iter().filter(|word| text.contains(**word)) {
            faults.push(format!("{path}: {word}"));
        }
    }
    report(&faults);
}

#[test]
fn every_decision_is_listed_once_and_every_link_leads_somewhere() {
    let mut faults = Vec::new();
    for (path, text) in files(&[".md"]) {
        let folder = root().join(&path).parent().expect("a folder").to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if !file.is_empty() && !link.contains("://") && !folder.join(file).exists() {
                faults.push(format!("{path}: {link} leads nowhere"));
            }
        }
    }
    report(&faults);
}
