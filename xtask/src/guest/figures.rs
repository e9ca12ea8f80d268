//! Reads the figures that programs of `os/guest/` print: `PROGRAM size=SIZE METRIC VALUE UNIT`.

/// One figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// Its key: program, size, metric. Two kernels' figures with the same key compare.
    pub key: (String, String, String),
    /// How much.
    pub value: f64,
    /// The unit: `ns/page`, `ns/call`.
    pub unit: String,
}

impl Figure {
    /// Reads a line; `None` if it is no figure.
    pub fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [program, size, metric, value, unit] = words[..] else { return None };
        let size = size.strip_prefix("size=")?;
        let value = value.parse().ok().filter(|value: &f64| value.is_finite())?;
        let key = (program.to_owned(), size.to_owned(), metric.to_owned());
        Some(Self { key, value, unit: unit.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::Figure;

    #[test]
    fn a_figure_has_five_words() {
        let figure = Figure::read("touch size=64K munmap 192.4 ns/page").expect("a figure");
        assert_eq!(figure.key, ("touch".into(), "64K".into(), "munmap".into()));
        assert_eq!((figure.value, figure.unit.as_str()), (192.4, "ns/page"));
    }

    #[test]
    fn other_lines_are_no_figures() {
        for line in [
            "",
            "ok mmap",
            "touch size=64K munmap 192.4",
            "touch 64K munmap 192.4 ns/page",
            "touch size=64K munmap much ns/page",
            "touch size=64K munmap nan ns/page",
            "touch size=64K munmap 1 ns/page more",
        ] {
            assert_eq!(Figure::read(line), None, "{line}");
        }
    }
}
