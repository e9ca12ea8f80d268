//! The content of pages: compressed memory depends on it.

/// A kind of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Data {
    /// Nothing can be compressed.
    Random,
    /// Words, as in text.
    Text,
    /// One word of eight bytes fills all pages.
    Same,
    /// Zeros.
    Zero,
}

/// Bytes of a sample: many pages, so that few are alike.
const SAMPLE: usize = 1 << 20;

/// Words; frequent ones stand here several times.
const WORDS: &str = "the the the of of and and to to a in page folio is memory that for it as was \
    with swap be by on not table this are or from at which kernel when each into them than only";

impl Data {
    pub(crate) const ALL: [Data; 4] = [Data::Random, Data::Text, Data::Same, Data::Zero];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Data::Random => "random",
            Data::Text => "text",
            Data::Same => "same",
            Data::Zero => "zero",
        }
    }

    /// Whether one word fills all pages.
    pub(crate) fn repeats(self) -> bool {
        matches!(self, Data::Same | Data::Zero)
    }

    /// Whether each page begins with its number, so that no page is mistaken for another.
    pub(crate) fn is_stamped(self) -> bool {
        !self.repeats()
    }

    /// Whole pages of such data, always the same.
    pub(crate) fn sample(self) -> Vec<u8> {
        let mut next = sequence();
        match self {
            Data::Random => (0..SAMPLE / 8).flat_map(|_| next().to_le_bytes()).collect(),
            Data::Text => text(next),
            Data::Same => next().to_le_bytes().repeat(SAMPLE / 8),
            Data::Zero => vec![0; SAMPLE],
        }
    }
}

/// Words one after the other, in lines.
fn text(mut next: impl FnMut() -> u64) -> Vec<u8> {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut text = Vec::with_capacity(SAMPLE + 16);
    while text.len() < SAMPLE {
        let number = next();
        // The upper half: the lower bits of such a sequence are its worst.
        let word = words[(number >> 32) as usize % words.len()];
        text.extend(word.bytes());
        text.push(if number >> 60 == 0 { b'\n' } else { b' ' });
    }
    text.truncate(SAMPLE);
    text
}

/// The numbers of xorshift64*.
fn sequence() -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d7_samples_are_whole_pages_of_their_kind_and_always_the_same() {
        for data in Data::ALL {
            let sample = data.sample();
            assert_eq!(sample.len() % 4096, 0);
            assert_eq!(sample, data.sample(), "{}", data.name());
            let pages: Vec<&[u8]> = sample.chunks(4096).collect();
            let alike = pages.windows(2).all(|pair| pair[0] == pair[1]);
            assert_eq!(alike, !data.is_stamped(), "{}", data.name());
        }
        assert!(Data::Zero.sample().iter().all(|&byte| byte == 0));
        assert!(Data::Same.sample().iter().any(|&byte| byte != 0));
        assert!(
            Data::Text
                .sample()
                .iter()
                .all(|byte| byte.is_ascii_lowercase() || b" \n".contains(byte))
        );
    }
}
