//! Tables for people: aligned columns, a terminal's width, and colour that says how things are.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::sanitize;

/// What a cell says about the thing it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// What one looks for first.
    Strong,
    /// All is well.
    Good,
    /// Not as it should be for long.
    Warn,
    /// Wrong.
    Bad,
    /// Beside the point.
    Faint,
}

impl Tone {
    fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            Self::Plain => Style::new(),
            Self::Strong => Style::new().bold(),
            Self::Good => colour(AnsiColor::Green),
            Self::Warn => colour(AnsiColor::Yellow),
            Self::Bad => colour(AnsiColor::Red).bold(),
            Self::Faint => Style::new().dimmed(),
        }
    }

    /// The text in this tone.
    #[must_use]
    pub fn paint(self, text: &str) -> String {
        let style = self.style();
        format!("{style}{text}{style:#}")
    }
}

#[derive(Debug, Clone, Default)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell in that tone. What others chose is tamed here.
    #[must_use]
    pub fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: sanitize(text.as_ref()), tone }
    }

    /// What stands where there is nothing to say.
    #[must_use]
    pub fn none() -> Self {
        Self::new("-", Tone::Faint)
    }

    /// The text, or what stands for none.
    #[must_use]
    pub fn or_none(text: Option<impl AsRef<str>>, tone: Tone) -> Self {
        text.map_or_else(Self::none, |text| Self::new(text, tone))
    }

    fn is_none(&self) -> bool {
        self.text == "-"
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// How a column behaves.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    head: &'static str,
    right: bool,
    /// The width below which it is not cut; none if it is never cut.
    least: Option<usize>,
    /// Left out when no row has anything in it.
    optional: bool,
}

impl Column {
    /// A column that is never cut.
    #[must_use]
    pub const fn new(head: &'static str) -> Self {
        Self { head, right: false, least: None, optional: false }
    }

    /// Numbers: aligned to the right.
    #[must_use]
    pub const fn right(self) -> Self {
        Self { right: true, ..self }
    }

    /// May be cut to that width on a narrow terminal.
    #[must_use]
    pub const fn least(self, least: usize) -> Self {
        Self { least: Some(least), ..self }
    }

    /// Left out when no row has anything in it.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// Rows under headings.
#[derive(Debug)]
pub struct Table<const N: usize> {
    columns: [Column; N],
    rows: Vec<[Cell; N]>,
}

const GAP: &str = "  ";

impl<const N: usize> Table<N> {
    /// An empty table.
    #[must_use]
    pub fn new(columns: [Column; N]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: [Cell; N]) {
        self.rows.push(cells);
    }

    /// The whole as text, no wider than `width` if its columns can be cut that far.
    #[must_use]
    pub fn render(&self, width: Option<usize>) -> String {
        let shown: Vec<usize> = (0..N)
            .filter(|i| !self.columns[*i].optional || self.rows.iter().any(|row| !row[*i].is_none()))
            .collect();
        let widths = self.widths(&shown, width);
        let heads = self.columns.map(|column| Cell::new(column.head, Tone::Faint));
        let mut text = String::new();
        for row in std::iter::once(&heads).chain(&self.rows) {
            self.line(&mut text, row, &shown, &widths);
        }
        text.truncate(text.trim_end().len());
        text
    }

    fn line(&self, text: &mut String, row: &[Cell; N], shown: &[usize], widths: &[usize; N]) {
        for (nth, i) in shown.iter().enumerate() {
            let cell = &row[*i];
            let cut = fit(&cell.text, widths[*i]);
            let pad = " ".repeat(widths[*i].saturating_sub(cut.chars().count()));
            let painted = cell.tone.paint(&cut);
            let last = nth + 1 == shown.len();
            let _ = match (self.columns[*i].right, last) {
                (true, true) => write!(text, "{pad}{painted}"),
                (true, false) => write!(text, "{pad}{painted}{GAP}"),
                (false, true) => write!(text, "{painted}"),
                (false, false) => write!(text, "{painted}{pad}{GAP}"),
            };
        }
        text.push('\n');
    }

    /// As wide as needed; where that is too much, the widest column that may be cut is cut first.
    fn widths(&self, shown: &[usize], limit: Option<usize>) -> [usize; N] {
        let mut widths = self.columns.map(|column| column.head.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let Some(limit) = limit else { return widths };
        let gaps = GAP.len() * shown.len().saturating_sub(1);
        while shown.iter().map(|i| widths[*i]).sum::<usize>() + gaps > limit {
            let spare = |i: &&usize| self.columns[**i].least.is_some_and(|least| widths[**i] > least);
            let Some(widest) = shown.iter().filter(spare).max_by_key(|i| widths[**i]) else { break };
            widths[*widest] -= 1;
        }
        widths
    }
}

/// The text, cut to that width with a mark that it was.
fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table<3> {
        let columns =
            [Column::new("ROLE").least(6), Column::new("TOKEN").right(), Column::new("NOTE").optional()];
        let mut table = Table::new(columns);
        table.row(["a-rather-long-role".into(), "7".into(), Cell::none()]);
        table.row(["b".into(), "1234567".into(), Cell::none()]);
        table
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let text = plain(&sample().render(None));
        assert_eq!(
            text,
            "ROLE                  TOKEN\na-rather-long-role        7\nb                   1234567"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_what_may_be_cut() {
        let text = plain(&sample().render(Some(16)));
        assert_eq!(text, "ROLE       TOKEN\na-rath…        7\nb        1234567");
    }

    #[test]
    fn what_others_wrote_cannot_move_the_cursor() {
        let mut table = Table::new([Column::new("X")]);
        table.row(["\u{1b}[2Jgone\nline".into()]);
        assert_eq!(plain(&table.render(None)).lines().count(), 2);
    }
}
