//! Text that others chose, made safe to show.

use serde::Serialize;

/// Text that others chose, without what would move the cursor, colour the screen, break the line, turn the direction of
/// reading or hide.
#[must_use]
pub fn sanitize(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether a character does more than being shown: controls (C0, DEL, C1), separators of lines, and format characters.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// JSON on one line, in which a terminal finds nothing to obey either: what it could be is escaped, and means the same.
///
/// # Panics
/// If it has a key that is no text.
#[must_use]
pub fn json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("what is told serialises");
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match is_unsafe(c) {
            true => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")))
            }
            false => out.push(c),
        }
    }
    out
}

/// What goes to a terminal, from any source: lines, tabs and colours, and nothing else that a terminal obeys.
#[must_use]
pub fn for_terminal(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(|c: char| is_unsafe(c) && !['\n', '\t'].contains(&c)) {
        let (fine, wild) = rest.split_at(at);
        out.push_str(fine);
        let length = colour(wild);
        out.push_str(length.map_or("\u{fffd}", |length| &wild[..length]));
        rest = &wild[length.unwrap_or_else(|| wild.chars().next().map_or(0, char::len_utf8))..];
    }
    out.push_str(rest);
    out
}

/// How long the sequence is that sets a colour, if the text begins with one.
fn colour(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\u{1b}[")?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    rest[end..].starts_with('m').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "\u{1b}[2J\u{9b}31m\u{7f}\u{85}\u{202e}\u{2028}\u{200b}\u{feff}\u{e0041}";

    #[test]
    fn what_others_wrote_is_shown_and_not_obeyed() {
        assert!(!sanitize(&format!("{HOSTILE}\n\t")).chars().any(is_unsafe));
        assert_eq!(sanitize("größer 日本 👍"), "größer 日本 👍");
    }

    #[test]
    fn json_means_the_same_without_what_a_terminal_obeys() {
        let text = format!("{HOSTILE}\"\\ü");
        let safe = json(&text);
        assert!(!safe.chars().any(is_unsafe), "{safe:?}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), text);
    }

    #[test]
    fn only_colours_reach_a_terminal() {
        let ours = "\u{1b}[1;32mgood\u{1b}[0m\n\tnext";
        assert_eq!(for_terminal(ours), ours, "colours are ours");
        let text = for_terminal(HOSTILE);
        assert!(!text.chars().any(is_unsafe) && text.contains("[2J"), "{text:?}");
    }
}
