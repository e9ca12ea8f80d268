//! Taking areas out of the tree, a run at a time, and repairing nodes that became too empty.

use quire_hw::Hardware;
use quire_units::Pfn;

use super::AreaTree;
use super::root::Root;
use super::write::{Path, TreeWriter};

impl<H: Hardware, const CAP: usize> TreeWriter<'_, H, CAP> {
    /// Takes out `count` areas of one leaf, from the one at the end of `path` on.
    pub(super) fn erase(&self, path: &Path, count: usize) {
        let leaf = path.steps[0];
        self.nodes.erase(leaf.frame(), leaf.at(), leaf.at() + count);
        self.counted(-(count as i64));
        self.mend(path);
    }

    /// Restores fill and summaries from the leaf of `path` up to the root. Only nodes on the path
    /// can be too empty, since entries went from the leaf alone.
    fn mend(&self, path: &Path) {
        for level in 0..path.depth - 1 {
            if self.nodes.count(path.steps[level].frame()) >= AreaTree::<CAP>::MIN {
                self.refresh(path, level);
                return self.shrink();
            }
            self.join(path, level);
        }
        self.shrink();
    }

    /// Joins the node of `path` at `level` with a neighbour, or, if the two do not fit into one
    /// node, evens them out. The parent has a neighbour for it: it has two entries at least.
    fn join(&self, path: &Path, level: usize) {
        let parent = path.steps[level + 1];
        let Some(above) = self.nodes.node(parent.frame()) else { return };
        let at = parent.at().saturating_sub(1);
        let (left, right) = (above.child(at), above.child(at + 1));
        let (lefts, rights) = (self.nodes.count(left), self.nodes.count(right));
        let total = lefts + rights;
        if total <= CAP {
            self.nodes.write(left, |page| {
                page.copy(right, 0..rights, lefts);
                page.set_count(total);
            });
            self.summarise(path, level, at, left);
            self.nodes.erase(parent.frame(), at + 1, at + 2);
            return self.give(right);
        }
        let keep = total / 2;
        if lefts < keep {
            self.nodes.write(left, |page| page.copy(right, 0..keep - lefts, lefts));
            self.nodes.erase(right, 0, keep - lefts);
        } else {
            self.nodes.write(right, |page| {
                page.copy(right, 0..rights, lefts - keep);
                page.copy(left, keep..lefts, 0);
                page.set_count(total - keep);
            });
        }
        self.nodes.write(left, |page| page.set_count(keep));
        self.summarise(path, level, at, left);
        self.summarise(path, level, at + 1, right);
    }

    /// Updates the summary of child number `at` in the parent of `level`.
    fn summarise(&self, path: &Path, level: usize, at: usize, child: Pfn) {
        if let Some(node) = self.nodes.node(child) {
            self.nodes.put(path.steps[level + 1].frame(), at, node.summary(level == 0));
        }
    }

    /// Drops useless roots: a leaf without areas, an inner node with one child.
    fn shrink(&self) {
        let root = self.tree.root();
        let Some(node) = self.nodes.node(root.frame) else { return };
        self.tree.set_root(match (root.depth, node.count) {
            (1, 0) => Root::EMPTY,
            (2.., 1) => Root { frame: node.child(0), depth: root.depth - 1 },
            _ => return,
        });
        self.give(root.frame);
    }
}
