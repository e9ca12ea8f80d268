//! Folios of private memory.

/// The number of a folio.
pub(in crate::advise) type FolioId = u32;

/// A folio: how large it is, and who maps how many of its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::advise) struct Folio {
    pub(in crate::advise) order: u8,
    /// After a third space, Linux no longer knows who shares it: it counts as shared for ever.
    many: bool,
    /// Two spaces with their mapped pages.
    users: [(u32, u32); 2],
    /// Mapped pages of all spaces.
    mapped: u32,
}

/// All folios.
#[derive(Default)]
pub(in crate::advise) struct Folios {
    all: Vec<Folio>,
    free: Vec<FolioId>,
    /// Pages of all folios.
    pub(in crate::advise) pages: u64,
    /// The most that there were.
    pub(in crate::advise) peak: u64,
}

impl Folios {
    /// A folio of which `count` pages are mapped in `space`.
    pub(in crate::advise) fn make(&mut self, order: u8, space: u32, count: u32) -> FolioId {
        let users = [(space, count), (0, 0)];
        let folio = Folio { order, many: false, users, mapped: count };
        self.pages += 1 << order;
        self.peak = self.peak.max(self.pages);
        match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = folio;
                id
            }
            None => {
                self.all.push(folio);
                self.all.len() as FolioId - 1
            }
        }
    }

    /// `count` more of its pages are mapped in `space`.
    pub(in crate::advise) fn map(&mut self, id: FolioId, space: u32, count: u32) {
        let folio = &mut self.all[id as usize];
        folio.mapped += count;
        let known = folio.users.iter().position(|(user, count)| *user == space && *count > 0);
        let place = known.or_else(|| folio.users.iter().position(|(_, count)| *count == 0));
        match place {
            Some(place) => {
                let before = folio.users[place].1;
                folio.users[place] = (space, before + count);
            }
            None => folio.many = true,
        }
    }

    /// `count` of its pages are no longer mapped in `space`; the folio is freed with the last.
    pub(in crate::advise) fn unmap(&mut self, id: FolioId, space: u32, count: u32) {
        let folio = &mut self.all[id as usize];
        folio.mapped = folio.mapped.saturating_sub(count);
        for (user, mapped) in &mut folio.users {
            if *user == space {
                *mapped = mapped.saturating_sub(count);
            }
        }
        if folio.mapped == 0 {
            self.pages -= 1 << folio.order;
            self.free.push(id);
        }
    }

    /// Whether `space` alone maps it, as far as Linux can tell.
    pub(in crate::advise) fn is_own(&self, id: FolioId, space: u32) -> bool {
        let folio = &self.all[id as usize];
        let own = folio.users.iter().find(|(user, count)| *user == space && *count > 0);
        !folio.many && own.is_some_and(|(_, count)| *count == folio.mapped)
            || folio.order == 0 && folio.mapped == 1
    }
}
