//! Where the fields of an event are, by its `format`.

/// The number of an event, and the places of the fields that are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) id: u16,
    /// The thread that the event is of.
    thread: Field,
    fields: Vec<Field>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    offset: usize,
    size: usize,
    signed: bool,
}

impl Layout {
    /// Reads a `format`; `None` where it lacks one of the fields.
    pub(super) fn of(format: &str, names: &[&str]) -> Option<Layout> {
        let id = format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
        let field = |name: &&str| format.lines().find_map(|line| field(line, name));
        let fields = names.iter().map(field).collect::<Option<Vec<Field>>>()?;
        Some(Layout { id, thread: field(&"common_pid")?, fields })
    }

    /// The thread and the wanted fields of a record, in the order of their names; those that are
    /// not wanted are 0.
    pub(super) fn read<const N: usize>(&self, data: &[u8]) -> Option<(u32, [u64; N])> {
        let mut values = [0; N];
        for (value, field) in values.iter_mut().zip(&self.fields) {
            *value = field.read(data)?;
        }
        Some((self.thread.read(data)? as u32, values))
    }
}

/// `field:unsigned long address; offset:8; size:8; signed:0;`, if it has this name.
fn field(line: &str, name: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';');
    let declared = parts.next()?.trim();
    let named = declared.rsplit([' ', '*']).next()?;
    if named.split('[').next()? != name {
        return None;
    }
    let mut number = |key: &str| {
        let part = parts.next()?.trim().strip_prefix(key)?;
        part.strip_prefix(':')?.parse::<usize>().ok()
    };
    let (offset, size) = (number("offset")?, number("size")?);
    Some(Field { offset, size, signed: number("signed")? != 0 })
}

impl Field {
    fn read(self, data: &[u8]) -> Option<u64> {
        let bytes = data.get(self.offset..self.offset + self.size)?;
        let mut word = [0; 8];
        word.get_mut(..self.size)?.copy_from_slice(bytes);
        let value = u64::from_le_bytes(word);
        let unused = 64 - 8 * self.size as u32;
        let extended = (value as i64).wrapping_shl(unused).wrapping_shr(unused);
        Some(if self.signed { extended as u64 } else { value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "\
name: rss_stat
ID: 646
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:const char * name;	offset:8;	size:8;	signed:0;
	field:char comm[4];	offset:16;	size:4;	signed:0;
	field:int member;	offset:20;	size:4;	signed:1;

print fmt: \"mm_id=%u\", REC->mm_id
";

    #[test]
    fn f1_fields_are_found_by_their_names_and_read_with_their_signs() {
        let layout = Layout::of(FORMAT, &["member", "comm", "name"]).unwrap();
        assert_eq!(layout.id, 646);
        let mut data = [0_u8; 24];
        data[4..8].copy_from_slice(&77_u32.to_le_bytes());
        data[8] = 9;
        data[16] = 5;
        data[20..24].copy_from_slice(&(-2_i32).to_le_bytes());
        assert_eq!(layout.read::<3>(&data), Some((77, [-2_i64 as u64, 5, 9])));
        assert_eq!(layout.read::<3>(&data[..20]), None, "it is cut off");
        assert_eq!(Layout::of(FORMAT, &["size"]), None);
        assert_eq!(Layout::of("", &[]), None);
    }
}
