//! Addresses in bytes, and page and frame numbers.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The value `number`.
            #[inline]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The plain number.
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// This number plus `count`, or `None` past the end of the number space.
            #[inline]
            pub const fn checked_add(self, count: u64) -> Option<Self> {
                match self.0.checked_add(count) {
                    Some(n) => Some(Self(n)),
                    None => None,
                }
            }

            /// This number plus `count`.
            ///
            /// # Panics
            /// In debug builds when the sum leaves the number space; callers have validated it.
            #[inline]
            pub const fn add(self, count: u64) -> Self {
                Self(self.0 + count)
            }

            /// How far `self` lies beyond `base`.
            ///
            /// # Panics
            /// In debug builds when `self` lies before `base`.
            #[inline]
            pub const fn offset_from(self, base: Self) -> u64 {
                self.0 - base.0
            }

            /// The largest multiple of `size` that is not larger. `size` is a power of two.
            #[inline]
            pub const fn align_down(self, size: u64) -> Self {
                debug_assert!(size.is_power_of_two());
                Self(self.0 & !(size - 1))
            }

            /// The smallest multiple of `size` that is not smaller, or `None` past the end.
            /// `size` is a power of two.
            #[inline]
            pub const fn align_up(self, size: u64) -> Option<Self> {
                debug_assert!(size.is_power_of_two());
                match self.0.checked_add(size - 1) {
                    Some(n) => Some(Self(n & !(size - 1))),
                    None => None,
                }
            }

            /// Whether the number is a multiple of `size`, a power of two.
            #[inline]
            pub const fn is_aligned(self, size: u64) -> bool {
                self.0 & (size - 1) == 0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:012x}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

number!(
    /// A physical address in bytes.
    PhysAddr, "p:0x"
);
number!(
    /// A virtual address in bytes.
    VirtAddr, "v:0x"
);
number!(
    /// A physical frame number: a physical address divided by the base page.
    Pfn, "f:"
);
number!(
    /// A virtual page number: a virtual address divided by the base page.
    Vpn, "p:"
);

impl PhysAddr {
    /// The frame that holds this byte.
    #[inline]
    pub const fn pfn(self, page_shift: u32) -> Pfn {
        Pfn(self.0 >> page_shift)
    }
}

impl VirtAddr {
    /// The page that holds this byte.
    #[inline]
    pub const fn vpn(self, page_shift: u32) -> Vpn {
        Vpn(self.0 >> page_shift)
    }
}

impl Pfn {
    /// The address of the frame's first byte.
    #[inline]
    pub const fn addr(self, page_shift: u32) -> PhysAddr {
        PhysAddr(self.0 << page_shift)
    }
}

impl Vpn {
    /// The address of the page's first byte.
    #[inline]
    pub const fn addr(self, page_shift: u32) -> VirtAddr {
        VirtAddr(self.0 << page_shift)
    }
}
