//! Where a sandbox goes: a few candidates by hash and at random, of which the cheapest is taken.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::{Change, Record};
use crate::records::{NODES, NodeRecord, decode, node_tag};

/// How many of a template's preferred nodes are candidates. One more is chosen at random.
const PREFERRED: usize = 2;

/// The members of the fleet as one node knows them.
#[derive(Default)]
pub struct NodeTable {
    /// By name.
    members: Vec<Member>,
    /// Those that were members before, by tag. A node without its lease still answers for its sandboxes.
    former: BTreeMap<u32, Member>,
}

/// One node as its record describes it.
#[derive(Debug, Clone)]
pub struct Member {
    pub name: Arc<str>,
    pub record: Arc<NodeRecord>,
    hash: u64,
    /// What the ids of this node's sandboxes carry.
    tag: u32,
}

impl Member {
    pub fn new(name: Arc<str>, record: NodeRecord) -> Self {
        Self { hash: hash(&name), tag: node_tag(&name), name, record: Arc::new(record) }
    }
}

fn hash(text: &str) -> u64 {
    u64::from_le_bytes(blake3::hash(text.as_bytes()).as_bytes()[..8].try_into().expect("a hash has 32 bytes"))
}

/// The rendezvous score of a member for a subject: the same at every node, and independent between subjects.
fn score(member: u64, subject: u64) -> u64 {
    let mixed = (member ^ subject).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl NodeTable {
    pub fn replace(&mut self, records: Vec<Record>) {
        self.former.extend(self.members.drain(..).map(|member| (member.tag, member)));
        records.into_iter().for_each(|record| self.apply(Change::Put(record)));
    }

    pub fn apply(&mut self, change: Change) {
        let key = match &change {
            Change::Put(record) => &record.key,
            Change::Deleted { key } => key,
        };
        let name = key.strip_prefix(NODES).unwrap_or(key);
        let place = self.members.binary_search_by(|member| (*member.name).cmp(name));
        match (place, change) {
            (Ok(at), Change::Put(record)) => match decode(&record) {
                Ok(record) => self.members[at].record = Arc::new(record),
                Err(_) => self.remove(at),
            },
            (Ok(at), Change::Deleted { .. }) => self.remove(at),
            (Err(at), Change::Put(record)) => {
                let name: Arc<str> = record.key.strip_prefix(NODES).unwrap_or(&record.key).into();
                // A record that cannot be read is not a member.
                if let Ok(record) = decode(&record) {
                    self.members.insert(at, Member::new(name, record));
                }
            }
            (Err(_), Change::Deleted { .. }) => {}
        }
    }

    fn remove(&mut self, at: usize) {
        let member = self.members.remove(at);
        self.former.insert(member.tag, member);
    }

    /// The member with this tag, or the one that was the last to have it.
    pub fn by_tag(&self, tag: u32) -> Option<&Member> {
        self.members.iter().find(|member| member.tag == tag).or_else(|| self.former.get(&tag))
    }

    /// The members, and those that were members before.
    pub fn known(&self) -> impl Iterator<Item = &Member> {
        let former = self.former.values().filter(|former| !self.contains(&former.name));
        self.members.iter().chain(former)
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.former.is_empty()
    }

    pub fn members(&self) -> &[Member] {
        &self.members
    }

    pub fn contains(&self, name: &str) -> bool {
        self.members.binary_search_by(|member| (*member.name).cmp(name)).is_ok()
    }

    /// The one member that all nodes with the same table choose for a task.
    pub fn chosen_for(&self, task: &str) -> Option<Arc<str>> {
        let subject = hash(task);
        self.members.iter().max_by_key(|member| score(member.hash, subject)).map(|member| member.name.clone())
    }

    /// Whom to ask for a sandbox of a template. In later rounds the preferred ones are the next in order.
    pub fn candidates(&self, template: &str, hardware: &str, round: usize, random: u64) -> Vec<Member> {
        let fits = |member: &&Member| {
            let NodeRecord { draining, hardware: theirs, protocol, .. } = &*member.record;
            !draining && theirs == hardware && protocol.check(&member.name).is_ok()
        };
        let subject = hash(template);
        let mut ranked: Vec<_> = self.members.iter().map(|member| (score(member.hash, subject), member)).collect();
        let wanted = PREFERRED * (round + 1);
        let enough = (wanted * 4).min(ranked.len());
        if enough < ranked.len() {
            ranked.select_nth_unstable_by_key(enough, |(score, _)| Reverse(*score));
            ranked.truncate(enough);
        }
        ranked.sort_unstable_by_key(|(score, _)| Reverse(*score));
        let preferred =
            ranked.into_iter().map(|(_, member)| member).filter(fits).skip(PREFERRED * round).take(PREFERRED);
        let start = random as usize % self.members.len().max(1);
        let others = self.members[start..].iter().chain(&self.members[..start]);
        let mut found: Vec<_> = preferred.cloned().collect();
        let other = others.take(16).filter(fits).find(|other| found.iter().all(|member| member.name != other.name));
        found.extend(other.cloned());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Revision;
    use crate::records::node_key;

    fn record(name: &str, address: &str) -> Record {
        let value = format!(r#"{{"fingerprint":"","hardware":"","address":"{address}","draining":false}}"#);
        Record { key: node_key(name).into(), value: value.into(), created: Revision(1), modified: Revision(1) }
    }

    #[test]
    fn a_node_that_is_gone_is_found_where_it_was() {
        let mut table = NodeTable::default();
        assert!(table.is_empty() && table.by_tag(node_tag("a")).is_none());
        table.replace(vec![record("a", "1"), record("b", "2")]);
        table.apply(Change::Deleted { key: node_key("a").into() });
        table.replace(vec![]);
        for (name, address) in [("a", "1"), ("b", "2")] {
            assert_eq!(table.by_tag(node_tag(name)).unwrap().record.address, address);
        }
        assert!(table.members().is_empty() && !table.is_empty());
        table.apply(Change::Put(record("a", "3")));
        assert_eq!(table.by_tag(node_tag("a")).unwrap().record.address, "3");
        assert!(table.by_tag(node_tag("c")).is_none());
        let known: Vec<_> = table.known().map(|member| (&*member.name, &*member.record.address)).collect();
        assert_eq!(known, [("a", "3"), ("b", "2")]);
    }
}
