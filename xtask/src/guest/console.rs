//! Reads the outcome of a run from the guest's console.

/// The meaning of a line of the console.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The program ended with this status.
    Exit(u8),
    /// The kernel gave up.
    Panic,
}

/// Cuts the console into lines and looks at each.
#[derive(Default)]
pub(super) struct Console {
    partial: Vec<u8>,
    /// All complete lines, without their ends.
    pub lines: Vec<String>,
    /// The first thing of note that happened.
    pub event: Option<Event>,
}

impl Console {
    /// Takes new bytes.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' => {
                    let line = String::from_utf8_lossy(&self.partial).trim_end().to_owned();
                    self.event = self.event.or(meaning(&line));
                    self.lines.push(line);
                    self.partial.clear();
                }
                _ => self.partial.push(byte),
            }
        }
    }
}

/// The meaning of a line; most have none.
fn meaning(line: &str) -> Option<Event> {
    if let Some(status) = line.strip_prefix("[init] exit ") {
        return status.parse().ok().map(Event::Exit);
    }
    let is_panic = line.starts_with("[quire] panic")
        // Linux may write the time before it.
        || line.contains("Kernel panic - not syncing");
    is_panic.then_some(Event::Panic)
}

#[cfg(test)]
mod tests {
    use super::{Console, Event};

    #[test]
    fn the_exit_status_is_read_across_pieces_and_line_ends_of_terminals() {
        let mut console = Console::default();
        console.take(b"hello\r\n[init] ex");
        assert_eq!(console.event, None);
        console.take(b"it 139\r\n");
        assert_eq!(console.event, Some(Event::Exit(139)));
        assert_eq!(console.lines, ["hello", "[init] exit 139"]);
    }

    #[test]
    fn panics_of_both_kernels_are_seen_and_the_first_event_counts() {
        let mut console = Console::default();
        console.take(b"[quire] panic at main.rs:3: no\n[init] exit 0\n");
        assert_eq!(console.event, Some(Event::Panic));
        let mut console = Console::default();
        console.take(b"[    1.5] Kernel panic - not syncing: no init\n");
        assert_eq!(console.event, Some(Event::Panic));
    }

    #[test]
    fn a_program_that_speaks_of_exits_is_not_believed() {
        let mut console = Console::default();
        console.take(b"see [init] exit 3\nthe [quire] panic line\n[init] exit much\n");
        assert_eq!(console.event, None);
    }
}
