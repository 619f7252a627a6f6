//! Nodes, quorums and the metadata of the channel.

/// Nodes in the cluster; the voters are some of them.
pub(crate) const NODES: usize = 4;

/// A set of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nodes(u8);

impl Nodes {
    /// The nodes 0 to `count - 1`.
    pub(crate) fn first(count: usize) -> Self {
        Self((1 << count) - 1)
    }

    pub(crate) fn contains(self, node: usize) -> bool {
        self.0 >> node & 1 == 1
    }

    pub(crate) fn with(self, node: usize) -> Self {
        Self(self.0 | 1 << node)
    }

    pub(crate) fn without(self, node: usize) -> Self {
        Self(self.0 & !(1 << node))
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(move |&node| self.contains(node))
    }

    /// The member at this place in order; the place is below the number of members.
    pub(crate) fn member(self, place: usize) -> usize {
        self.iter()
            .nth(place)
            .expect("a place below the number of members")
    }
}

/// Voters and how many of them must hold a record (W).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quorum {
    pub(crate) voters: Nodes,
    pub(crate) write: usize,
}

impl Quorum {
    /// Voters that a recovery must hear: every write quorum has one of them.
    pub(crate) fn recovery(self) -> usize {
        self.voters.len() - self.write + 1
    }

    /// The W-th largest of the voters' ends: what a write quorum holds.
    pub(crate) fn held(self, ends: &[usize; NODES]) -> usize {
        let mut sorted = [0; NODES];
        let mut count = 0;
        for node in self.voters.iter() {
            sorted[count] = ends[node];
            count += 1;
        }
        sorted[..count].sort_unstable_by(|a, b| b.cmp(a));
        sorted[self.write - 1]
    }
}

/// What the slot group has committed about the channel. A grant is a metadata with a new epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) epoch: u16,
    /// Counts every change, also those within an epoch.
    pub(crate) version: u16,
    pub(crate) leader: usize,
    /// The process that may lead; a later process of the same node may not (M-3).
    pub(crate) leader_boot: u16,
    /// The disk that each voter had when the epoch was granted (M-4).
    pub(crate) disk_boots: [u16; NODES],
    pub(crate) current: Quorum,
    /// The voters before the change that is under way.
    pub(crate) previous: Option<Quorum>,
    /// Records before this offset may be removed.
    pub(crate) retention: usize,
}

impl Metadata {
    pub(crate) fn members(&self) -> Nodes {
        self.previous.map_or(self.current.voters, |previous| {
            previous.voters.union(self.current.voters)
        })
    }

    /// The quorums that must each agree.
    pub(crate) fn quorums(&self) -> impl Iterator<Item = Quorum> {
        std::iter::once(self.current).chain(self.previous)
    }
}
