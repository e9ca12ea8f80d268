//! Putting areas into leaves and taking them out: full nodes are split, and too empty ones joined.

use quire_hw::Hardware;
use quire_units::Pfn;

use super::AreaTree;
use super::areas::Root;
use super::entry::Entry;
use super::write::{Path, Step, TreeWriter};

impl<H: Hardware, const CAP: usize> TreeWriter<'_, H, CAP> {
    /// Puts an area into its place. Its pages are free and the stock suffices for one insertion:
    /// the callers have checked [`lacks`](Self::lacks).
    pub(in crate::space) fn add(&self, area: &Entry) {
        let key = area.start();
        let mut path = Path::new();
        self.reader.descend(|level, node| {
            let rank = node.rank(key);
            let at = if level == 0 { rank } else { rank.saturating_sub(1) };
            path.push(Step { frame: node.frame, at });
            (level > 0).then_some(at)
        });
        self.add_at(&path, area);
    }

    /// Inserts before the entry that `path` names in the leaf. A full node gives its upper part
    /// to a new one, whose summary is then inserted one level up.
    fn add_at(&self, path: &Path, area: &Entry) {
        self.counted(1);
        let Some(step) = path.last() else { return self.plant(&[*area], 1) };
        let (mut entry, mut at, mut leaf) = (*area, step.at, true);
        // On upper levels, the summary of the lower half of the node that was split.
        let mut before = None;
        let mut left = path.as_slice();
        while let [above @ .., step] = left {
            if self.reader.count(step.frame) < CAP {
                return match before {
                    None => self.swap(left, at, leaf, 0, &[entry]),
                    Some(low) => self.swap(left, at - 1, leaf, 1, &[low, entry]),
                };
            }
            if let Some(low) = before {
                self.put_entry(step.frame, at - 1, low);
            }
            let Some(right) = self.spare() else { return };
            self.split(step.frame, right, at, entry);
            let summary = |frame| self.reader.node(frame).map(|node| node.summary(leaf));
            let (Some(low), Some(high)) = (summary(step.frame), summary(right)) else { return };
            let Some(parent) = above.last() else {
                return self.plant(&[low, high], path.len() + 1);
            };
            (before, entry, at, leaf, left) = (Some(low), high, parent.at + 1, false, above);
        }
    }

    /// A spare node that must exist.
    fn spare(&self) -> Option<Pfn> {
        let frame = self.take();
        debug_assert!(frame.is_some(), "the stock was asked for before");
        frame
    }

    /// Divides the entries of the full node `left`, and `entry` at `at`, between it and `right`.
    fn split(&self, left: Pfn, right: Pfn, at: usize, entry: Entry) {
        let keep = AreaTree::<CAP>::keep(at);
        // `entry` is one of the `keep` that stay, or of the rest.
        let stays = at < keep;
        let cut = if stays { keep - 1 } else { keep };
        self.write(right, |page| {
            page.copy(left, cut..CAP, 0);
            page.set_count(CAP - cut);
        });
        self.write(left, |page| page.set_count(cut));
        match stays {
            true => self.insert_entry(left, at, entry),
            false => self.insert_entry(right, at - keep, entry),
        }
    }

    /// Makes a new root with these entries.
    fn plant(&self, entries: &[Entry], depth: usize) {
        let Some(frame) = self.spare() else { return };
        self.write(frame, |page| {
            entries.iter().enumerate().for_each(|(at, entry)| page.put(at, *entry));
            page.set_count(entries.len());
        });
        self.reader.tree.set_root(Root { frame, depth });
    }

    /// Takes out `count` areas of one leaf, from the one at the end of `path` on, and restores fill
    /// and summaries up to the root. Only nodes on the path can be too empty.
    pub(super) fn erase(&self, path: &Path, count: usize) {
        let Some(step) = path.last() else { return };
        self.counted(-(count as i64));
        if path.len() == 1 || self.reader.count(step.frame) - count >= AreaTree::<CAP>::MIN {
            self.swap(path, step.at, true, count, &[]);
            return self.shrink();
        }
        self.erase_entries(step.frame, step.at, step.at + count);
        let (mut left, mut leaf) = (path.as_slice(), true);
        while let [above @ .., step] = left
            && let Some(parent) = above.last()
        {
            if self.reader.count(step.frame) >= AreaTree::<CAP>::MIN {
                self.refresh(left, leaf, None);
                break;
            }
            self.join(*parent, leaf);
            (left, leaf) = (above, false);
        }
        self.shrink();
    }

    /// Joins the node below `parent`, a `leaf` or not, with a neighbour, or, if the two do not fit
    /// into one node, evens them out. There is a neighbour: the parent has two entries at least.
    fn join(&self, parent: Step, leaf: bool) {
        let Some(above) = self.reader.node(parent.frame) else { return };
        let at = parent.at.saturating_sub(1);
        let (left, right) = (above.child(at), above.child(at + 1));
        let (lefts, rights) = (self.reader.count(left), self.reader.count(right));
        let total = lefts + rights;
        let summarise = |at, child| {
            if let Some(node) = self.reader.node(child) {
                self.put_entry(parent.frame, at, node.summary(leaf));
            }
        };
        if total <= CAP {
            self.write(left, |page| {
                page.copy(right, 0..rights, lefts);
                page.set_count(total);
            });
            summarise(at, left);
            self.erase_entries(parent.frame, at + 1, at + 2);
            return self.give(right);
        }
        let keep = total / 2;
        if lefts < keep {
            self.write(left, |page| page.copy(right, 0..keep - lefts, lefts));
            self.erase_entries(right, 0, keep - lefts);
        } else {
            self.write(right, |page| {
                page.copy(right, 0..rights, lefts - keep);
                page.copy(left, keep..lefts, 0);
                page.set_count(total - keep);
            });
        }
        self.write(left, |page| page.set_count(keep));
        summarise(at, left);
        summarise(at + 1, right);
    }

    /// Drops useless roots: a leaf without areas, an inner node with one child.
    fn shrink(&self) {
        let root = self.reader.tree.root();
        let Some(node) = self.reader.node(root.frame) else { return };
        self.reader.tree.set_root(match (root.depth, node.count) {
            (1, 0) => Root::EMPTY,
            (2.., 1) => Root { frame: node.child(0), depth: root.depth - 1 },
            _ => return,
        });
        self.give(root.frame);
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
