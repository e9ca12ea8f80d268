//! The switches of transparent huge pages as one value.

/// The positions of all switches: for all sizes, and for each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Switches {
    /// `always`, `madvise` or `never`: for sizes that inherit.
    pub(crate) top: String,
    /// How hard the kernel looks for a large folio; `None` leaves it as it is.
    pub(crate) defrag: Option<String>,
    /// Bytes of a folio, and `always`, `inherit`, `madvise` or `never`; sizes that are missing are
    /// `never`.
    pub(crate) sizes: Vec<(u64, String)>,
}

impl Switches {
    /// No large folios.
    pub(crate) fn off() -> Switches {
        Switches { top: "never".to_owned(), defrag: None, sizes: Vec::new() }
    }

    /// The word for the file with this name below the folder of the switches; `None` leaves it as
    /// it is.
    pub(super) fn word(&self, name: &str) -> Option<&str> {
        match name.trim_start_matches('/') {
            "enabled" => Some(&self.top),
            "defrag" => self.defrag.as_deref(),
            other => {
                let bytes = size_of(other)?;
                let found = self.sizes.iter().find(|(size, _)| *size == bytes);
                Some(found.map_or("never", |(_, word)| word))
            }
        }
    }
}

/// The bytes of a folio in the name of a size's switch, `hugepages-64kB/enabled`.
pub(super) fn size_of(name: &str) -> Option<u64> {
    let kib = name.trim_start_matches('/').strip_prefix("hugepages-")?;
    let kib: u64 = kib.strip_suffix("kB/enabled")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_each_switch_has_its_word_and_unnamed_sizes_are_off() {
        let switches = Switches {
            top: "always".to_owned(),
            defrag: None,
            sizes: vec![(65536, "madvise".to_owned())],
        };
        assert_eq!(switches.word("/enabled"), Some("always"));
        assert_eq!(switches.word("/defrag"), None);
        assert_eq!(switches.word("hugepages-64kB/enabled"), Some("madvise"));
        assert_eq!(switches.word("/hugepages-32kB/enabled"), Some("never"));
        assert_eq!(switches.word("hugepages-32kB/stats"), None);
    }
}
