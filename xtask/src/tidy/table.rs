//! Tables in Markdown documents that rules read.

/// One row of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    /// Its line in the document, counted from 1.
    pub(crate) line: usize,
    /// Its cells, without the bars and the blanks beside them.
    pub(crate) cells: Vec<String>,
}

impl Row {
    /// The cell at `column`, empty where the row is too short.
    pub(crate) fn cell(&self, column: usize) -> &str {
        self.cells.get(column).map_or("", String::as_str)
    }

    /// All that stands in backticks in the cell at `column`.
    pub(crate) fn codes(&self, column: usize) -> Vec<String> {
        self.cell(column).split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }
}

/// The rows of the table that follows the line `<!-- tidy: name -->`; `None` without such a line.
pub(crate) fn rows(document: &str, name: &str) -> Option<Vec<Row>> {
    let marker = format!("<!-- tidy: {name} -->");
    let mut lines = document.lines().enumerate().skip_while(|(_, line)| line.trim() != marker);
    lines.next()?;
    let rows = lines
        .skip_while(|(_, line)| line.trim().is_empty())
        .take_while(|(_, line)| line.trim_start().starts_with('|'))
        .skip(2)
        .map(|(at, line)| {
            let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
            let cells = inner.split('|').map(|cell| cell.trim().to_owned()).collect();
            Row { line: at + 1, cells }
        });
    Some(rows.collect())
}
