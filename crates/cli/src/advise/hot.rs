//! `--text`: the hot text of a program as a table, and the map that `quire launch` reads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::options::AdviseArgs;
use super::show::{plain, to_the_right};
use crate::recorder;
use crate::tape::Tape;
use crate::text::{Hot, of_tape};

/// Writes the map, and says what is in it.
pub(super) fn page(args: &AdviseArgs, tape: &Tape, output: &Path) -> Result<String> {
    let named = args.command.first().map(|name| recorder::find(name)).transpose()?;
    let program = named.unwrap_or_else(|| PathBuf::from(&tape.program));
    let (map, missing) = of_tape(tape, &program);
    std::fs::write(output, map.to_string())
        .with_context(|| format!("cannot write {}", output.display()))?;
    let mut table = plain();
    table.set_header(["file", "hot KiB", "of KiB", "runs", "blocks of 2M"]);
    for hot in &map.files {
        let Hot { path, bytes, runs, .. } = hot;
        table.add_row([
            path.display().to_string(),
            (hot.pages() * 4).to_string(),
            (bytes / 1024).to_string(),
            runs.len().to_string(),
            hot.dense(512).len().to_string(),
        ]);
    }
    let shown = output.display();
    let mut page = format!("{}\nThe map is {shown}. To use it:\n", to_the_right(table));
    page.push_str(&format!("  quire launch --map {shown} -- {} …\n", tape.program));
    if !missing.is_empty() {
        page.push_str(&format!("Files that are not found here: {}.\n", missing.join(", ")));
    }
    Ok(page)
}
