//! Putting an area into the tree, splitting full nodes on the way up.

use quire_hw::Hardware;
use quire_units::Pfn;

use super::AreaTree;
use super::node::Entry;
use super::write::{Path, Step, TreeWriter};

impl<H: Hardware, const CAP: usize> TreeWriter<'_, H, CAP> {
    /// Puts `entry` into its place. Its pages are free and the stock suffices for one insertion:
    /// the callers have checked [`lacks`](Self::lacks).
    pub(in crate::space) fn add(&self, entry: Entry) {
        self.counted(1);
        if self.tree.root().depth == 0 {
            let Some(frame) = self.spare() else { return };
            self.nodes.put(frame, 0, entry);
            self.nodes.set_count(frame, 1);
            self.set_root(frame, 1);
            return;
        }
        let path = self.place(entry.key());
        self.add_at(&path, entry);
    }

    /// A spare node that must exist.
    fn spare(&self) -> Option<Pfn> {
        let frame = self.take();
        debug_assert!(frame.is_some(), "the stock was asked for before");
        frame
    }

    /// The path to the place for an area that begins at `key`.
    fn place(&self, key: u64) -> Path {
        let root = self.tree.root();
        let mut path = Path { depth: root.depth, ..Path::new() };
        let mut frame = root.frame;
        for level in (0..root.depth).rev() {
            let Some(node) = self.nodes.node(frame) else { break };
            let rank = node.rank(key);
            let at = if level == 0 { rank } else { rank.saturating_sub(1) };
            path.steps[level] = Step::new(frame, at);
            if level > 0 {
                frame = node.child(at);
            }
        }
        path
    }

    /// Inserts before the entry that `path` names in the leaf. A full node gives its upper part
    /// to a new one, whose summary is then inserted one level up.
    pub(super) fn add_at(&self, path: &Path, entry: Entry) {
        let mut entry = entry;
        let mut at = path.steps[0].at();
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
                return self.grow(low, high, path.depth);
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
        self.nodes.copy((left, cut), (right, 0), CAP - cut);
        self.nodes.set_count(right, CAP - cut);
        self.nodes.set_count(left, cut);
        match stays {
            true => self.nodes.insert(left, at, entry),
            false => self.nodes.insert(right, at - keep, entry),
        }
    }

    /// A new root above the two halves of the old one.
    fn grow(&self, low: Entry, high: Entry, depth: usize) {
        let Some(frame) = self.spare() else { return };
        self.nodes.put(frame, 0, low);
        self.nodes.put(frame, 1, high);
        self.nodes.set_count(frame, 2);
        self.set_root(frame, depth + 1);
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
