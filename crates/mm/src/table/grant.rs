//! A change of the attributes of leaves.

use quire_arch::Attrs;
use quire_units::Prot;

/// How a change alters the attributes of leaves: rights and the library's own flags.
#[derive(Clone, Copy)]
pub(crate) struct Regrant {
    less: Attrs,
    more: Attrs,
}

impl Regrant {
    /// Keeps all.
    pub(super) const NONE: Self = Self { less: Attrs::empty(), more: Attrs::empty() };

    /// Other spaces may map the page from now on: the next write asks first.
    pub(super) const LENT: Self = Self { less: Attrs::WRITE, more: Attrs::COW };

    /// The rights of `prot` in place of those it had.
    #[inline]
    pub(crate) const fn rights(prot: Prot) -> Self {
        Self { less: Attrs::RIGHTS, more: Attrs::empty().with_prot(prot) }
    }

    /// The same without `attrs`.
    #[inline]
    pub(crate) const fn without(self, attrs: Attrs) -> Self {
        Self { less: self.less.union(attrs), more: self.more.difference(attrs) }
    }

    /// The same with `attrs`.
    #[inline]
    pub(crate) const fn with(self, attrs: Attrs) -> Self {
        Self { less: self.less, more: self.more.union(attrs) }
    }

    /// The attributes that `attrs` turn into.
    #[inline]
    pub(super) const fn of(self, attrs: Attrs) -> Attrs {
        attrs.difference(self.less).union(self.more)
    }
}
