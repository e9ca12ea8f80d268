//! Writes archives in the format "newc" of cpio, which kernels unpack as their first files.
//!
//! A header of 110 ASCII digits, the name, the content, each filled up to four bytes (the kernel's
//! document "initramfs buffer format").

/// An archive that grows.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

/// The bits of a mode that give the kind of file.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTERS: u32 = 0o020_000;

impl Archive {
    /// A directory with the usual rights.
    pub(super) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY | 0o755, &[], (0, 0));
    }

    /// A file with these permission bits.
    pub(super) fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entry(name, FILE | mode & 0o7777, content, (0, 0));
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, name: &str, target: &str) {
        self.entry(name, LINK | 0o777, target.as_bytes(), (0, 0));
    }

    /// A character device, by its major and minor number.
    pub(super) fn device(&mut self, name: &str, number: (u32, u32)) {
        self.entry(name, CHARACTERS | 0o666, &[], number);
    }

    /// The finished archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8], device: (u32, u32)) {
        self.entries += 1;
        // No file of an initramfs comes near 4 GiB; one that did would be cut, not misplaced.
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let content = &content[..content.len().min(size as usize)];
        let name_bytes = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        self.bytes.extend(b"070701");
        let fields =
            [self.entries, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_bytes, 0];
        for field in fields {
            self.bytes.extend(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.fill();
        self.bytes.extend(content);
        self.fill();
    }

    fn fill(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn headers_have_110_digits_and_everything_begins_at_a_multiple_of_four() {
        let mut archive = Archive::default();
        archive.directory("d");
        archive.file("d/f", 0o755, b"hello");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        // Header, "d" and its zero: 112, so the next entry begins there.
        assert_eq!(&bytes[112..118], b"070701");
        // The size is the seventh field, the length of the name the twelfth.
        assert_eq!(&bytes[112 + 6 + 6 * 8..112 + 6 + 7 * 8], b"00000005");
        assert_eq!(&bytes[112 + 6 + 11 * 8..112 + 6 + 12 * 8], b"00000004");
        assert_eq!(&bytes[112 + 110..112 + 114], b"d/f\0");
        assert_eq!(&bytes[112 + 116..112 + 121], b"hello");
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn kinds_stand_in_the_mode() {
        let mut archive = Archive::default();
        archive.link("l", "target");
        archive.device("c", (5, 1));
        let bytes = archive.finish();
        assert_eq!(&bytes[14..22], b"0000a1ff");
        let second = 112 + 8;
        assert_eq!(&bytes[second + 14..second + 22], b"000021b6");
        assert_eq!(&bytes[second + 6 + 9 * 8..second + 6 + 11 * 8], b"0000000500000001");
    }
}
