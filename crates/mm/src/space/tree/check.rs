//! The walker that checks a tree.

use core::fmt;

use quire_hw::Hardware;
use quire_units::Pfn;

use super::AreaTree;
use super::node::Entry;
use super::root::Root;
use super::write::TreeWriter;
use crate::space::area::Area;

/// The size of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeStats {
    /// How many areas.
    pub areas: u64,
    /// How many nodes.
    pub nodes: u64,
    /// How many levels.
    pub depth: usize,
}

/// How a tree is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeViolation {
    /// A node lies in a frame that is not recorded as a node.
    NotANode(Pfn),
    /// A node has fewer entries than it may, or more.
    Fill {
        /// The node's frame.
        node: Pfn,
        /// How many entries it has.
        count: u64,
    },
    /// An entry of a leaf encodes no area.
    NotAnArea {
        /// The leaf's frame.
        node: Pfn,
        /// Which entry.
        at: usize,
    },
    /// An entry begins before the one in front of it ends.
    Order {
        /// The node's frame.
        node: Pfn,
        /// Which entry.
        at: usize,
    },
    /// A parent's summary of a child is wrong.
    Summary {
        /// The parent's frame.
        node: Pfn,
        /// Which entry.
        at: usize,
        /// First page, end and largest gap as the parent has them.
        told: [u64; 3],
        /// The same as the child has them.
        found: [u64; 3],
    },
    /// The tree has another number of areas than it counts.
    Count {
        /// Its count.
        counted: u64,
        /// The number found.
        found: u64,
    },
    /// The list of spare nodes has another length than it counts.
    Spares {
        /// Its count.
        counted: u64,
        /// The number found.
        found: u64,
    },
    /// Two neighbours could be one area; only [`check_merged`](TreeWriter::check_merged) minds.
    Unmerged(Area),
}

impl fmt::Display for TreeViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANode(frame) => write!(f, "{frame} is used as a node and is none"),
            Self::Fill { node, count } => write!(f, "node {node} has {count} entries"),
            Self::NotAnArea { node, at } => write!(f, "entry {at} of leaf {node} is no area"),
            Self::Order { node, at } => write!(f, "entry {at} of node {node} is out of order"),
            Self::Summary { node, at, told, found } => {
                write!(f, "entry {at} of node {node} tells start, end, gap {told:x?} of {found:x?}")
            }
            Self::Count { counted, found } => {
                write!(f, "{counted} areas are counted and {found} found")
            }
            Self::Spares { counted, found } => {
                write!(f, "{counted} spare nodes are counted and {found} found")
            }
            Self::Unmerged(area) => write!(f, "{:?} continues its neighbour", area.span),
        }
    }
}

impl core::error::Error for TreeViolation {}

impl<H: Hardware, const CAP: usize> TreeWriter<'_, H, CAP> {
    /// Walks the whole tree: fill, order, summaries, counts.
    ///
    /// # Errors
    /// The first damage found.
    pub fn check(&self) -> Result<TreeStats, TreeViolation> {
        let root = self.tree.root();
        let mut stats = TreeStats { depth: root.depth, ..TreeStats::default() };
        if root != Root::EMPTY {
            self.check_node(root.frame, root.depth - 1, true, &mut stats)?;
        }
        let counted = self.tree.count();
        if counted != stats.areas {
            return Err(TreeViolation::Count { counted, found: stats.areas });
        }
        self.check_spares()?;
        Ok(stats)
    }

    /// [`check`](Self::check), and checks that no two neighbours could be one area.
    ///
    /// # Errors
    /// The first damage found.
    pub fn check_merged(&self) -> Result<TreeStats, TreeViolation> {
        let stats = self.check()?;
        let mut last: Option<Area> = None;
        let mut at = quire_units::Vpn::new(0);
        while let Some(area) = self.reader().next_at_or_after(at).0 {
            if last.is_some_and(|last| last.can_merge(&area)) {
                return Err(TreeViolation::Unmerged(area));
            }
            at = area.span.end;
            last = Some(area);
        }
        Ok(stats)
    }

    /// Checks the node and all below it, and returns the summary that its parent should have. Calls
    /// itself once a level.
    fn check_node(
        &self,
        frame: Pfn,
        level: usize,
        root: bool,
        stats: &mut TreeStats,
    ) -> Result<Entry, TreeViolation> {
        let node = self.nodes.node(frame).ok_or(TreeViolation::NotANode(frame))?;
        self.check_kind(frame)?;
        stats.nodes += 1;
        let least = match (root, level) {
            (true, 0) => 1,
            (true, _) => 2,
            (false, _) => AreaTree::<CAP>::MIN,
        };
        let count = self.nodes.raw_count(frame);
        if count < least as u64 || count > CAP as u64 {
            return Err(TreeViolation::Fill { node: frame, count });
        }
        // Computed here and not by `Node::summary`, which is what this checks.
        let mut gap = 0;
        let mut end = node.key(0);
        for at in 0..node.count {
            let entry = node.entry(at);
            if entry.key() < end {
                return Err(TreeViolation::Order { node: frame, at });
            }
            gap = gap.max(entry.key() - end);
            end = entry.end();
            if level == 0 {
                stats.areas += 1;
                Area::unpack(entry.0).ok_or(TreeViolation::NotAnArea { node: frame, at })?;
                continue;
            }
            let child = self.check_node(entry.child(), level - 1, false, stats)?;
            if child != entry {
                let [told, found] = [entry, child].map(|of| [of.key(), of.end(), of.gap()]);
                return Err(TreeViolation::Summary { node: frame, at, told, found });
            }
            gap = gap.max(child.gap());
        }
        Ok(Entry([node.key(0), end, frame.get(), gap]))
    }

    fn check_spares(&self) -> Result<(), TreeViolation> {
        let meta = self.nodes.meta();
        let counted = self.spares() as u64;
        let mut found = 0;
        let mut next = self.tree.spare.load(crate::sync::Ordering::Relaxed);
        while next != 0 && found <= counted {
            let frame = meta.frame(next - 1);
            self.check_kind(frame)?;
            let slot = meta.slot(frame).ok_or(TreeViolation::NotANode(frame))?;
            next = slot.links[0].load(crate::sync::Ordering::Relaxed);
            found += 1;
        }
        if found == counted { Ok(()) } else { Err(TreeViolation::Spares { counted, found }) }
    }

    fn check_kind(&self, frame: Pfn) -> Result<(), TreeViolation> {
        match self.nodes.meta().slot(frame) {
            Some(slot) if slot.state().kind() == crate::phys::Kind::Node => Ok(()),
            _ => Err(TreeViolation::NotANode(frame)),
        }
    }
}
