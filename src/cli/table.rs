//! Tables of plain text.

use crate::text::invisible::printable;

/// Rows of equally many columns; each column is as wide as its widest cell.
pub(super) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(head: [&str; N]) -> Table<N> {
        Table {
            rows: vec![head.map(str::to_owned)],
        }
    }

    /// Adds a row; a cell has one line and no control characters.
    pub(super) fn add(&mut self, cells: [String; N]) {
        self.rows
            .push(cells.map(|cell| printable(&cell).replace('\n', " ")));
    }

    pub(super) fn text(&self) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            let line: Vec<String> = cells.collect();
            text += line.join("  ").trim_end();
            text += "\n";
        }
        text
    }
}

/// A time without its date's `T` and its fraction.
pub(super) fn shown_time(time: &str) -> String {
    let time = time.split_once('.').map_or(time, |(time, _)| time);
    time.replacen('T', " ", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cells_have_one_line() {
        let mut table = Table::new(["a", "cause"]);
        table.add(["1".into(), "x\ny".into()]);
        table.add(["grün".into(), "\u{1b}[31m".into()]);
        let text = table.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "a     cause");
        assert_eq!(lines[1], "1     x y");
        assert!(!text.contains('\u{1b}'));
        assert_eq!(lines.len(), 3);
    }
}
