//! A recording as text.

use std::fmt;

use super::{Kind, Recording, Segment, Touch};

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "quire recording 1\nprogram {}", self.program)?;
        if !self.note.is_empty() {
            writeln!(f, "note {}", self.note)?;
        }
        writeln!(f, "page {}", self.page)?;
        for file in &self.files {
            writeln!(f, "file {} {}", file.bytes, file.name)?;
            file.segments.iter().try_for_each(|segment| writeln!(f, "{segment}"))?;
        }
        writeln!(f, "touches {}", self.touches.len())?;
        self.touches.iter().try_for_each(|touch| writeln!(f, "{touch}"))
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("segment ")?;
        for (has, letter) in self.rights.iter().zip(["r", "w", "x"]) {
            f.write_str(if *has { letter } else { "-" })?;
        }
        write!(f, " {} {} {}", self.offset, self.bytes, self.address)
    }
}

impl fmt::Display for Touch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = Kind::LETTERS.iter().find(|(kind, _)| *kind == self.kind);
        let letter = letter.map_or("?", |(_, letter)| letter);
        write!(f, "{letter} {} {}", self.file, self.first)?;
        if self.count > 1 { write!(f, " {}", self.count) } else { Ok(()) }
    }
}
