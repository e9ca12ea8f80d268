//! The formats against the laws, against the manuals, and the laws against formats that break them.

mod formats;
mod folds;
mod manual;
mod mutants;
mod transitions;

/// Writes one test per format: `each_format!(name, A => expression)`.
macro_rules! each_format {
    ($name:ident, $arch:ident => $body:expr) => {
        each_format!(@tests $name, $arch => $body;
            x86_64: crate::X86_64, x86_64_la57: crate::X86_64La57,
            arm64_4k: crate::Arm4k, arm64_16k: crate::Arm16k, arm64_64k: crate::Arm64k,
            sv39: crate::Sv39, sv48: crate::Sv48, sv57: crate::Sv57);
    };
    (@tests $name:ident, $arch:ident => $body:expr; $($test:ident: $format:ty),*) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(#[test]
            fn $test() {
                #[allow(dead_code)]
                type $arch = $format;
                $body
            })*
        }
    };
}
pub(crate) use each_format;
