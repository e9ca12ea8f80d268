//! The walker that checks a tree.

use core::fmt;

use quire_hw::Hardware;
use quire_units::{PageSpan, Pfn, Vpn};

use super::AreaTree;
use super::areas::Root;
use super::entry::Entry;
use super::write::TreeWriter;
use crate::phys::Kind;
use crate::space::area::Area;
use crate::sync::Ordering;

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

/// A number on record that differs from what a walker found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Miscount {
    /// The number on record.
    pub counted: u64,
    /// The number found.
    pub found: u64,
}

impl Miscount {
    /// # Errors
    /// The two numbers, where they differ.
    pub(crate) fn check(counted: u64, found: u64) -> Result<(), Self> {
        if counted == found { Ok(()) } else { Err(Self { counted, found }) }
    }
}

impl fmt::Display for Miscount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on record, {} found", self.counted, self.found)
    }
}

/// How a tree is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeViolation {
    /// A node lies in a frame that is not recorded as a node.
    NotANode(Pfn),
    /// The node in this frame has this number of entries: fewer than it may, or more.
    Fill(Pfn, u64),
    /// This entry of the leaf in this frame encodes no area.
    NotAnArea(Pfn, usize),
    /// This entry of the node in this frame begins before the one in front of it ends.
    Order(Pfn, usize),
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
    /// The areas of the tree.
    Count(Miscount),
    /// The spare nodes of the tree.
    Spares(Miscount),
    /// Two neighbours could be one area; only [`check_merged`](TreeWriter::check_merged) minds.
    Unmerged(Area),
}

impl fmt::Display for TreeViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANode(frame) => write!(f, "{frame} is used as a node and is none"),
            Self::Fill(node, count) => write!(f, "node {node} has {count} entries"),
            Self::NotAnArea(node, at) => write!(f, "entry {at} of leaf {node} is no area"),
            Self::Order(node, at) => write!(f, "entry {at} of node {node} is out of order"),
            Self::Summary { node, at, told, found } => {
                write!(f, "entry {at} of node {node} tells start, end, gap {told:x?} of {found:x?}")
            }
            Self::Count(count) => write!(f, "areas: {count}"),
            Self::Spares(count) => write!(f, "spare nodes: {count}"),
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
        let root = self.reader.tree.root();
        let mut stats = TreeStats { depth: root.depth, ..TreeStats::default() };
        if root != Root::EMPTY {
            self.check_node(root.frame, root.depth - 1, true, &mut stats)?;
        }
        Miscount::check(self.reader.tree.count(), stats.areas).map_err(TreeViolation::Count)?;
        self.check_spares().and(Ok(stats))
    }

    /// [`check`](Self::check), and checks that no two neighbours could be one area.
    ///
    /// # Errors
    /// The first damage found.
    pub fn check_merged(&self) -> Result<TreeStats, TreeViolation> {
        let stats = self.check()?;
        let mut last: Option<Area> = None;
        for area in self.reader().overlapping(PageSpan::new(Vpn::new(0), Vpn::new(u64::MAX))) {
            if last.replace(area).is_some_and(|last| last.can_merge(&area)) {
                return Err(TreeViolation::Unmerged(area));
            }
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
        let node = self.reader.node(frame).ok_or(TreeViolation::NotANode(frame))?;
        self.check_kind(frame)?;
        stats.nodes += 1;
        let least = match (root, level) {
            (true, 0) => 1,
            (true, _) => 2,
            (false, _) => AreaTree::<CAP>::MIN,
        };
        let count = self.reader.raw_count(frame);
        if count < least as u64 || count > CAP as u64 {
            return Err(TreeViolation::Fill(frame, count));
        }
        // Computed here and not by `Node::summary`, which is what this checks.
        let (mut gap, mut end) = (0, node.key(0));
        for at in 0..node.count {
            let entry = node.entry(at);
            let [key, its_end, child, _] = entry.0;
            if key < end {
                return Err(TreeViolation::Order(frame, at));
            }
            gap = gap.max(key - end);
            end = its_end;
            if level == 0 {
                stats.areas += 1;
                entry.area().ok_or(TreeViolation::NotAnArea(frame, at))?;
                continue;
            }
            let found = self.check_node(Pfn::new(child), level - 1, false, stats)?;
            if found != entry {
                let [told, found] = [entry, found].map(|Entry([key, end, _, gap])| [key, end, gap]);
                return Err(TreeViolation::Summary { node: frame, at, told, found });
            }
            gap = gap.max(found.0[3]);
        }
        Ok(Entry([node.key(0), end, frame.get(), gap]))
    }

    fn check_spares(&self) -> Result<(), TreeViolation> {
        let meta = self.reader.meta;
        let counted = self.spares() as u64;
        let mut found = 0;
        let mut next = self.reader.tree.spare.load(Ordering::Relaxed);
        while next != 0 && found <= counted {
            let frame = meta.frame(next - 1);
            self.check_kind(frame)?;
            let slot = meta.slot(frame).ok_or(TreeViolation::NotANode(frame))?;
            next = slot.links[0].load(Ordering::Relaxed);
            found += 1;
        }
        Miscount::check(counted, found).map_err(TreeViolation::Spares)
    }

    fn check_kind(&self, frame: Pfn) -> Result<(), TreeViolation> {
        match self.reader.meta.slot(frame) {
            Some(slot) if slot.state().kind() == Kind::Node => Ok(()),
            _ => Err(TreeViolation::NotANode(frame)),
        }
    }
}
