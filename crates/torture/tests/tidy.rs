//! The tree stays readable: lengths, headers, words. An ordinary test, so that no author has to remember.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;
const PAGE_WORDS: usize = 2_000;
const PAGE_COLUMNS: usize = 110;
const PARAGRAPH_LINES: usize = 6;

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

/// This file names what others must not.
fn files_but_this(endings: &[&str]) -> Vec<(String, String)> {
    files(endings).into_iter().filter(|(path, _)| !path.ends_with("torture/tests/tidy.rs")).collect()
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
    let marks = ["TODO", "FIXME", "unimplemented!(", "todo!(", "#[ignore", "dbg!("];
    let mut faults = Vec::new();
    for (path, text) in files_but_this(&[".rs", ".md", ".toml", "test", "run"]) {
        for mark in marks.iter().filter(|mark| text.contains(**mark)) {
            faults.push(format!("{path}: {mark}"));
        }
    }
    report(&faults);
}

#[test]
fn no_path_of_a_machine_and_no_registry_is_named() {
    let banned = ["/work/", "crates.io"];
    let mut faults = Vec::new();
    for (path, text) in files_but_this(&[".rs", ".md", ".toml", "test", "run", "fix"]) {
        let text = text.to_lowercase();
        for word in banned.iter().filter(|word| text.contains(**word)) {
            faults.push(format!("{path}: {word}"));
        }
    }
    report(&faults);
}

/// The snippets of README and of the guides are parts of programs that are compiled.
#[test]
fn the_code_of_the_readme_and_of_the_guides_compiles() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect("it is there");
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    for (example, pages, least) in [
        ("crates/tenure/examples/readme.rs", &["README.md"][..], 3),
        (
            "crates/tenure/examples/guides.rs",
            &["docs/guides/work.md", "docs/guides/schedules.md", "docs/guides/fencing.md"][..],
            3,
        ),
    ] {
        let pages: Vec<String> = pages.iter().map(|page| read(page)).collect();
        let blocks = pages.iter().flat_map(|page| page.split("```rust\n").skip(1));
        let snippets: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
        assert!(snippets.len() >= least, "{} snippets", snippets.len());
        let compiled = bare(&read(example));
        let missing = snippets.into_iter().filter(|snippet| !compiled.contains(&bare(snippet)));
        report(&missing.map(|snippet| format!("{example} does not have:\n{snippet}")).collect::<Vec<_>>());
    }
}

/// The page without its comments and its code blocks: what they show is no link and no heading.
fn prose(page: &str) -> String {
    let mut in_code = false;
    let page = without_comments(page);
    let shown = page.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    });
    shown.collect::<Vec<_>>().join("\n")
}

fn without_comments(page: &str) -> String {
    let mut parts = page.split("<!--");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.filter_map(|part| Some(part.split_once("-->")?.1)).fold(first, |shown, part| shown + part)
}

/// What the links of a page lead to.
fn links(page: &str) -> Vec<String> {
    let prose = prose(page);
    prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// The anchors of a page, made from its headings as GitHub and mdBook make them.
fn anchors(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for heading in prose(page).lines().filter(|line| line.starts_with('#')) {
        let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let anchor: String = text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        let repeated = found.iter().filter(|other| **other == anchor).count();
        found.push(if repeated == 0 { anchor } else { format!("{anchor}-{repeated}") });
    }
    found
}

#[test]
fn every_link_leads_to_a_file_and_to_a_heading_of_it() {
    let mut faults = Vec::new();
    for (path, text) in files(&[".md"]) {
        let page = root().join(&path);
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
            if !target.exists() {
                faults.push(format!("{path}: {link}: there is no such file"));
            } else if !anchor.is_empty()
                && !anchors(&fs::read_to_string(&target).unwrap_or_default()).contains(&anchor.to_owned())
            {
                faults.push(format!("{path}: {link}: there is no such heading"));
            }
        }
    }
    report(&faults);
}

/// What a page calls `crates/…` or `stores/…` is there, so that a file that moves takes its readers along.
#[test]
fn every_path_that_a_page_names_is_there() {
    let mut faults = Vec::new();
    for (path, text) in pages() {
        for named in prose(&text).split('`').skip(1).step_by(2) {
            let is_path = ["benches/", "crates/", "stores/", "docs/", "deploy/", "examples/"]
                .iter()
                .any(|room| named.starts_with(room));
            let is_pattern = named.contains(['*', '<', ' ']) || named.contains("NAME");
            if is_path && !is_pattern && !root().join(named).exists() {
                faults.push(format!("{path}: there is no {named}"));
            }
        }
    }
    report(&faults);
}

/// Pages that people read from top to bottom. Lists of bugs, figures and decisions are for looking up.
fn pages() -> Vec<(String, String)> {
    let front = ["README.md", "SAFETY.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
    let is_page = |path: &str| match path.strip_prefix("docs/") {
        Some(page) => page.contains('/') && !page.starts_with("adr/"),
        None => front.contains(&path),
    };
    files(&[".md"]).into_iter().filter(|(path, _)| is_page(path)).collect()
}

/// Lengths of the paragraphs of a page, in lines; an item of a list is a paragraph.
fn paragraphs(prose: &str) -> Vec<usize> {
    let mut lengths = vec![0];
    for line in prose.lines().map(str::trim_start) {
        let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_item = line.starts_with("- ") || (number != line && number.starts_with(". "));
        let is_between = line.is_empty() || line.starts_with(['#', '|']);
        match lengths.last_mut() {
            Some(length) if !is_between && !is_item => *length += 1,
            _ => lengths.push(usize::from(is_item)),
        }
    }
    lengths
}

#[test]
fn no_page_is_too_long_nor_its_lines_and_paragraphs() {
    let mut faults = Vec::new();
    for (path, text) in pages() {
        let prose = prose(&text);
        let lines: Vec<&str> = prose.lines().filter(|line| !line.trim_start().starts_with('|')).collect();
        let words: usize = lines.iter().map(|line| line.split_whitespace().count()).sum();
        if words > PAGE_WORDS {
            faults.push(format!("{path}: {words} words beside tables, {PAGE_WORDS} at most: split it"));
        }
        let wide = lines.iter().filter(|line| line.chars().count() > PAGE_COLUMNS);
        faults.extend(wide.map(|line| format!("{path}: more than {PAGE_COLUMNS} columns: {line}")));
        let longest = paragraphs(&prose).into_iter().max().unwrap_or(0);
        if longest > PARAGRAPH_LINES {
            faults.push(format!("{path}: a paragraph of {longest} lines, {PARAGRAPH_LINES} at most"));
        }
    }
    report(&faults);
}

/// `mdbook build` makes a site of the pages that `docs/SUMMARY.md` lists.
#[test]
fn every_page_and_every_decision_is_in_the_book_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("docs/SUMMARY.md is there");
    let listed = links(&summary);
    let mut faults = Vec::new();
    for (path, _) in files(&[".md"]) {
        let Some(page) = path.strip_prefix("docs/").filter(|page| *page != "SUMMARY.md") else { continue };
        match listed.iter().filter(|link| *link == page).count() {
            1 => {}
            times => faults.push(format!("docs/SUMMARY.md lists {page} {times} times")),
        }
    }
    report(&faults);
}

/// Every Rust file, as one text.
fn sources() -> String {
    files(&[".rs"]).into_iter().map(|(_, text)| text).collect()
}

/// The rows of the table that begins with this heading, and the cells of each.
fn table<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let rows = text.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    assert!(!rows.is_empty(), "there is no table {heading:?}");
    rows.into_iter().map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Every function of the tree; a test that a macro repeats for each store is one too.
fn function_names() -> HashSet<String> {
    let name =
        |rest: &str| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().map(str::to_owned);
    files(&[".rs"])
        .iter()
        .flat_map(|(_, text)| text.split("fn ").skip(1).filter_map(name).collect::<Vec<_>>())
        .collect()
}

/// Settings of servers and metrics that are as long as the name of a test.
fn is_setting(name: &str) -> bool {
    ["innodb_", "idle_in_", "tenure_"].iter().any(|beginning| name.starts_with(beginning))
}

/// A test that is renamed takes the pages along that name it: the bugs, the decisions, the threat model.
#[test]
fn every_test_that_a_page_names_is_there() {
    let known = function_names();
    let mut faults = Vec::new();
    for (path, text) in files(&[".md"]) {
        let prose = prose(&text);
        let spans = prose.split('`').skip(1).step_by(2);
        let is_name =
            |span: &&str| span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        let tests = spans.filter(is_name).filter(|name| name.matches('_').count() > 3 && !is_setting(name));
        let missing = tests.filter(|name| !known.contains(*name));
        faults.extend(missing.map(|name| format!("{path}: there is no test {name}")));
    }
    report(&faults);
}

/// The sections of a page, each with its heading.
fn sections(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut in_code = false;
    for line in page.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if !in_code && line.starts_with('#') {
            found.push(String::new());
        }
        if let Some(section) = found.last_mut() {
            section.push_str(line);
            section.push('\n');
        }
    }
    found
}

/// Each section of a page for users ends with a comment that names what shows it: tests, or files of tests or benches. A section
/// that only leads to others, or gives advice, says that there is nothing to show.
#[test]
fn every_section_of_a_page_names_what_shows_it() {
    let known = function_names();
    let mut faults = Vec::new();
    let of_users = |path: &str| path == "README.md" || path.starts_with("docs/");
    for (path, text) in pages().into_iter().filter(|(path, _)| of_users(path)) {
        for section in sections(&text) {
            let heading = section.lines().next().unwrap_or_default();
            let Some((_, rest)) = section.rsplit_once("<!-- ") else {
                faults.push(format!("{path}: {heading}: which tests show this? <!-- shown by: … -->"));
                continue;
            };
            let (comment, after) = rest.split_once("-->").unwrap_or((rest, ""));
            let names =
                comment.trim().strip_prefix("shown by: ").map(|names| names.split(',').map(str::trim));
            if !after.trim().is_empty() || (names.is_none() && comment.trim() != "nothing to show") {
                faults.push(format!("{path}: {heading}: it does not end with what shows it"));
            }
            let missing = names
                .into_iter()
                .flatten()
                .filter(|name| !known.contains(*name) && !root().join(name).exists());
            faults.extend(missing.map(|name| format!("{path}: {heading}: there is no {name}")));
        }
    }
    report(&faults);
}

/// Each cell of the threat model names tests.
#[test]
fn every_attacker_has_tests() {
    let text = fs::read_to_string(root().join("SECURITY.md")).expect("SECURITY.md is there");
    let mut faults = Vec::new();
    for cells in table(&text, "| attacker") {
        let shown = cells.last().copied().unwrap_or_default();
        if !shown.split('`').skip(1).step_by(2).any(|name| name.contains('_')) {
            faults.push(format!("SECURITY.md: {} has no test", cells[0]));
        }
    }
    report(&faults);
}

/// What the pages of proof call a mutant is one.
#[test]
fn every_mutant_that_shows_a_promise_is_there() {
    let read = |page: &str| fs::read_to_string(root().join(page)).expect("the page is there");
    let mutants = read("crates/core/src/mutant.rs") + &read("crates/sim/src/faults.rs");
    let pages = [
        "SAFETY.md",
        "docs/bugs.md",
        "docs/evidence.md",
        "docs/explanation/classes.md",
        "docs/explanation/proof.md",
    ];
    let mut faults = Vec::new();
    for page in pages {
        let text = read(page);
        // Where a line speaks of mutants, names like Rust's types are theirs, or those of the simulator's faults.
        let lines = text.lines().filter(|line| line.contains("mutant"));
        let spans = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
        let is_mutant = |name: &&str| {
            name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.chars().all(char::is_alphanumeric)
                && name.chars().any(char::is_lowercase)
        };
        let missing = spans.filter(is_mutant).filter(|name| !mutants.contains(&format!("\n    {name},\n")));
        faults.extend(missing.map(|name| format!("{page}: there is no mutant {name}")));
    }
    report(&faults);
}

/// Each cell of the promises by class has a note, each note is there, and the invariants that it names are checked.
#[test]
fn every_promise_by_class_has_a_check_that_there_is() {
    let text = fs::read_to_string(root().join("docs/explanation/classes.md")).expect("the page is there");
    let (_, notes) = text.split_once("Shown by:").expect("the notes are there");
    let notes = notes.split("\n## ").next().unwrap_or_default();
    let mut faults = Vec::new();
    for cells in table(&text, "| | A and B") {
        for cell in &cells[1..] {
            let mark =
                cell.chars().last().and_then(|mark| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|digit| digit == mark));
            let number = mark.map(|mark| if cell.ends_with("¹⁰") { 10 } else { mark });
            let noted = number.is_some_and(|number| notes.contains(&format!("\n{number}. ")));
            if !noted && !cell.ends_with("(nothing to check)") {
                faults.push(format!("docs/explanation/classes.md: {}: {cell:?} has no check", cells[0]));
            }
        }
    }
    let sources = sources();
    let shown = notes.split_whitespace().collect::<Vec<_>>().join(" ");
    let named = shown.split('*').skip(1).step_by(2).filter(|name| !sources.contains(&format!("\"{name}\"")));
    faults.extend(named.map(|name| format!("docs/explanation/classes.md: no check is called {name:?}")));
    report(&faults);
}

/// Why tenures end is a table in the runbook and a list in the reference: each has every reason.
#[test]
fn every_reason_why_a_tenure_ends_is_documented() {
    let records = fs::read_to_string(root().join("crates/core/src/record.rs")).expect("records are there");
    let (_, reasons) = records.split_once("impl EndReason {").expect("reasons are there");
    let words: Vec<&str> =
        reasons.lines().take_while(|line| *line != "}").filter_map(|line| line.split('"').nth(1)).collect();
    assert!(words.len() > 10, "{words:?}");
    for page in ["docs/guides/operations.md", "docs/reference/cli-inspect.md"] {
        let text = fs::read_to_string(root().join(page)).expect("the page is there");
        let missing = words.iter().filter(|word| !text.contains(&format!("`{word}`")));
        report(&missing.map(|word| format!("{page} does not name {word}")).collect::<Vec<_>>());
    }
}
