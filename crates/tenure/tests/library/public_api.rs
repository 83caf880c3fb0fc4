//! The public API of `tenure` and `tenure-store` is on record: a change of it is a decision, and shows in a diff.
//!
//! Every `pub` item of these crates can be reached from outside, because the lint `unreachable_pub` is an error in the test
//! run. So the list is read from the source, without a documentation build. After a change that you want, write the list
//! anew: `UPDATE_PUBLIC_API=1 cargo test -p tenure --all-features --test library public_api`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn the_public_api_of_tenure_is_the_one_on_record() {
    check("tenure");
}

#[test]
fn the_public_api_of_tenure_store_is_the_one_on_record() {
    check("store");
}

fn check(name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    let (record, src) = (root.join("public-api.txt"), root.join("src"));
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    files.sort();
    let mut list = String::new();
    let read = |file: &PathBuf| fs::read_to_string(file).expect("a source file");
    let types: BTreeSet<String> = files.iter().flat_map(|file| public_types(&read(file))).collect();
    for file in files {
        let items = public_items(&read(&file), &types);
        if !items.is_empty() {
            let shown = file.strip_prefix(&src).expect("it is below").display().to_string();
            list += &format!("# {shown}\n{}\n\n", items.join("\n"));
        }
    }
    if std::env::var_os("UPDATE_PUBLIC_API").is_some() {
        fs::write(&record, &list).expect("the record is written");
    }
    let on_record = fs::read_to_string(&record).unwrap_or_default();
    let missing = |from: &str, of: &str| -> Vec<String> {
        from.lines().filter(|line| !of.lines().any(|other| other == *line)).map(str::to_owned).collect()
    };
    let (gone, new) = (missing(&on_record, &list), missing(&list, &on_record));
    assert!(
        list == on_record,
        "the public API of {name} has changed; if you mean it, run this test with UPDATE_PUBLIC_API=1\n\
         gone:\n  {}\nnew:\n  {}",
        gone.join("\n  "),
        new.join("\n  ")
    );
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

fn public_types(text: &str) -> Vec<String> {
    let named = |line: &str| {
        let kinds = ["pub struct ", "pub enum ", "pub trait "];
        kinds.iter().find_map(|kind| line.strip_prefix(kind)).map(leading_name)
    };
    text.lines().filter_map(named).collect()
}

/// The public items of a file as rustfmt lays it out: one line each, with the attributes that bind us.
fn public_items(text: &str, types: &BTreeSet<String>) -> Vec<String> {
    let code: Vec<&str> = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).collect();
    let (mut items, mut attributes, mut context) = (Vec::new(), Vec::new(), String::new());
    // Indentations of the open blocks whose members are public without saying so: enums, their variants, traits.
    let mut open: Vec<usize> = Vec::new();
    let mut nth = 0;
    while nth < code.len() {
        let line = code[nth].trim_start();
        let depth = code[nth].len() - line.len();
        if BINDING.iter().any(|attribute| line.starts_with(attribute)) {
            attributes.push(line.to_owned());
            nth += 1;
            continue;
        }
        if line.starts_with('}') {
            open.retain(|at| *at < depth);
        }
        let implements = line.split_once(" for ").is_some_and(|(_, of)| types.contains(&leading_name(of)));
        if depth == 0 && line.starts_with("impl") {
            context = line.trim_end_matches(" {").to_owned();
        } else if depth == 0 && line == "}" {
            context.clear();
        }
        let is_item = line.starts_with("pub ") || (depth == 0 && line.starts_with("impl") && implements);
        let is_member = open.last().is_some_and(|at| depth == at + 4)
            && line.starts_with(|first: char| first.is_ascii_alphabetic());
        if is_item || is_member {
            let (signature, last) = signature(&code, nth);
            let within =
                if depth > 0 && !context.is_empty() { format!("{context} :: ") } else { String::new() };
            let bound = attributes.iter().map(|attribute| format!("{attribute} ")).collect::<String>();
            items.push(format!("{}{bound}{within}{signature}", " ".repeat(depth)));
            let kinds = ["pub enum ", "pub trait "];
            let opens = is_member || kinds.iter().any(|kind| signature.starts_with(kind));
            if opens && code[last].ends_with('{') && !signature.contains("fn ") {
                open.push(depth);
            }
            nth = last;
        }
        if !line.starts_with("//") && !line.starts_with("#[") {
            attributes.clear();
        }
        nth += 1;
    }
    items
}

/// Attributes that are part of what we promise.
const BINDING: [&str; 3] = ["#[derive(", "#[non_exhaustive]", "#[cfg("];

fn leading_name(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// What is written of an item up to its body, in one line; and the line where that ends.
fn signature(code: &[&str], from: usize) -> (String, usize) {
    let mut text = String::new();
    for (nth, line) in code.iter().enumerate().skip(from) {
        let line = line.trim();
        if line.starts_with("//") || line.starts_with("#[") {
            continue;
        }
        text = if text.is_empty() { line.to_owned() } else { format!("{text} {line}") };
        let balanced = text.matches(['(', '[']).count() == text.matches([')', ']']).count();
        if balanced
            && (line.ends_with('{') || line.ends_with(';') || line.ends_with(',') || line.ends_with('}'))
        {
            return (text.trim_end_matches([' ', '{', ';', ',']).to_owned(), nth);
        }
    }
    (text, code.len() - 1)
}
