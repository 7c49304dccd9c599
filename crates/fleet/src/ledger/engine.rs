//! Which etcd a fleet uses. A fleet that was rebuilt uses another one.

use super::definition::Revision;

/// An etcd counts its revisions in these bits, which last for eight years of a million changes a second.
const REVISION_BITS: u32 = 48;

/// One etcd of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Grows with each rebuild, so that no node goes back to an etcd of before.
    pub generation: u32,
    /// The addresses of its members, such as `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
}

impl Engine {
    /// The etcd with which a fleet began.
    pub fn first(endpoints: Vec<String>) -> Self {
        Self { generation: 0, endpoints }
    }

    /// Whether nodes that follow the other one have to change to this one. Two rebuilds at the same time have the same
    /// generation, and all nodes choose the same of the two. Addresses of before the first rebuild belong to the operator.
    pub fn wins_over(&self, other: &Self) -> bool {
        self.generation > 0 && (self.generation, &self.endpoints) > (other.generation, &other.endpoints)
    }

    /// The ledger's name of a revision of this etcd. Each etcd counts from 1, so the generation is a part of it: a condition or
    /// an epoch of before a rebuild holds for nothing afterwards.
    pub(super) fn revision(&self, own: i64) -> Revision {
        Revision((i64::from(self.generation) << REVISION_BITS) + own)
    }

    /// `None` for a revision of another etcd.
    pub(super) fn own(&self, revision: Revision) -> Option<i64> {
        let generation = i64::from(self.generation);
        (revision.0 >> REVISION_BITS == generation).then(|| revision.0 - (generation << REVISION_BITS))
    }
}

/// Whether two revisions are of the same etcd.
pub(crate) fn is_of_same_engine(one: Revision, other: Revision) -> bool {
    one.0 >> REVISION_BITS == other.0 >> REVISION_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_of_two_etcds_are_different() {
        let engine = |generation, endpoint: &str| Engine { generation, endpoints: vec![endpoint.to_owned()] };
        let (old, new) = (engine(0, "a"), engine(1, "b"));
        assert_eq!(old.revision(7), Revision(7), "as before there were generations");
        assert!(new.revision(1) > old.revision(1 << 40));
        assert_eq!((old.own(old.revision(7)), new.own(new.revision(7))), (Some(7), Some(7)));
        assert_eq!((new.own(old.revision(7)), old.own(new.revision(7))), (None, None));
    }

    #[test]
    fn of_two_rebuilds_all_nodes_choose_the_same() {
        let engine = |generation, endpoint: &str| Engine { generation, endpoints: vec![endpoint.to_owned()] };
        assert!(engine(2, "a").wins_over(&engine(1, "b")) && !engine(1, "b").wins_over(&engine(2, "a")));
        assert!(engine(1, "b").wins_over(&engine(1, "a")) && !engine(1, "a").wins_over(&engine(1, "b")));
        assert!(!engine(1, "a").wins_over(&engine(1, "a")));
        assert!(!engine(0, "b").wins_over(&engine(0, "a")) && engine(1, "a").wins_over(&engine(0, "b")));
    }
}
