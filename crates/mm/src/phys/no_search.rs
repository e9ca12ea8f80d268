//! Without `swap` no group is emptied, and none is searched for.

pub(super) struct Search;

impl Search {
    pub(super) const fn new() -> Self {
        Self
    }
}
