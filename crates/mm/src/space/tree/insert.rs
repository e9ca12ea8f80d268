//! Putting an area into the tree, splitting full nodes on the way up.

use quire_hw::Hardware;
use quire_units::Pfn;

use super::AreaTree;
use super::node::Entry;
use super::root::Root;
use super::write::{Path, Step, TreeWriter};
use crate::space::area::Area;

impl<H: Hardware, const CAP: usize> TreeWriter<'_, H, CAP> {
    /// Puts `area` into its place. Its pages are free and the stock suffices for one insertion:
    /// the callers have checked [`lacks`](Self::lacks).
    pub(in crate::space) fn add(&self, area: Area) {
        let root = self.tree.root();
        if root.depth == 0 {
            self.counted(1);
            return self.plant(&[area.pack()], 1);
        }
        let key = area.span.start.get();
        let mut path = Path { depth: root.depth, ..Path::new() };
        self.nodes.descend(root, |level, node| {
            let rank = node.rank(key);
            let at = if level == 0 { rank } else { rank.saturating_sub(1) };
            path.steps[level] = Step::new(node.frame, at);
            (level > 0).then_some(at)
        });
        self.add_at(&path, area);
    }

    /// A spare node that must exist.
    fn spare(&self) -> Option<Pfn> {
        let frame = self.take();
        debug_assert!(frame.is_some(), "the stock was asked for before");
        frame
    }

    /// Inserts before the entry that `path` names in the leaf. A full node gives its upper part
    /// to a new one, whose summary is then inserted one level up.
    pub(super) fn add_at(&self, path: &Path, area: Area) {
        self.counted(1);
        let (mut entry, mut at) = (area.pack(), path.steps[0].at());
        for level in 0..path.depth {
            let frame = path.steps[level].frame();
            if self.nodes.count(frame) < CAP {
                self.nodes.insert(frame, at, entry);
                return self.refresh(path, level);
            }
            let Some(right) = self.spare() else { return };
            self.split(frame, right, at, entry);
            let leaf = level == 0;
            let Some(low) = self.nodes.node(frame).map(|node| node.summary(leaf)) else { return };
            let Some(high) = self.nodes.node(right).map(|node| node.summary(leaf)) else { return };
            if level + 1 == path.depth {
                return self.plant(&[low, high], path.depth + 1);
            }
            let parent = path.steps[level + 1];
            self.nodes.put(parent.frame(), parent.at(), low);
            (entry, at) = (high, parent.at() + 1);
        }
    }

    /// Divides the entries of the full node `left`, and `entry` at `at`, between it and `right`.
    fn split(&self, left: Pfn, right: Pfn, at: usize, entry: Entry) {
        let keep = AreaTree::<CAP>::keep(at);
        // `entry` is one of the `keep` that stay, or of the rest.
        let stays = at < keep;
        let cut = if stays { keep - 1 } else { keep };
        self.nodes.write(right, |page| {
            page.copy(left, cut..CAP, 0);
            page.set_count(CAP - cut);
        });
        self.nodes.write(left, |page| page.set_count(cut));
        match stays {
            true => self.nodes.insert(left, at, entry),
            false => self.nodes.insert(right, at - keep, entry),
        }
    }

    /// Makes a new root with these entries.
    fn plant(&self, entries: &[Entry], depth: usize) {
        let Some(frame) = self.spare() else { return };
        self.nodes.write(frame, |page| {
            entries.iter().enumerate().for_each(|(at, entry)| page.put(at, *entry));
            page.set_count(entries.len());
        });
        self.tree.set_root(Root { frame, depth });
    }
}

impl<const CAP: usize> AreaTree<CAP> {
    /// How many of `CAP + 1` entries the left half of a split keeps when the new one is at `at`.
    /// Areas are mostly mapped next to each other, downwards or upwards; the side where the next
    /// one will go gets a quarter, and the other three.
    fn keep(at: usize) -> usize {
        let few = Self::MIN.max((CAP + 1) / 4);
        match at {
            0 => few,
            _ if at == CAP => CAP + 1 - few,
            _ => CAP.div_ceil(2),
        }
    }
}
