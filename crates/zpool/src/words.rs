//! Little-endian numbers in a page. Reads beyond the end give zero, writes there do nothing: such
//! offsets occur only after other code damaged the page, and that must not end the kernel.

macro_rules! words {
    ($($get:ident $put:ident $number:ty, $bytes:literal;)*) => {
        $(
            #[inline]
            pub(crate) fn $get(page: &[u8], at: usize) -> $number {
                let word = page.get(at..).and_then(|rest| rest.first_chunk::<$bytes>());
                word.map_or(0, |word| <$number>::from_le_bytes(*word))
            }

            #[inline]
            pub(crate) fn $put(page: &mut [u8], at: usize, value: $number) {
                let word = page.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<$bytes>());
                if let Some(word) = word {
                    *word = value.to_le_bytes();
                }
            }
        )*
    };
}

words! {
    get16 put16 u16, 2;
    get32 put32 u32, 4;
    get64 put64 u64, 8;
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}
