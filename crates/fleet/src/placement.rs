//! Where a sandbox goes: a few candidates by hash and at random, of which the cheapest is taken.

use std::sync::Arc;

use crate::ledger::{Change, Record};
use crate::records::{NODES, NodeRecord, decode};

/// How many of a template's preferred nodes are candidates. One more is chosen at random.
const PREFERRED: usize = 2;

/// The members of the fleet as one node knows them.
#[derive(Default)]
pub struct NodeTable {
    /// By name.
    members: Vec<Member>,
}

/// One node as its record describes it.
#[derive(Debug, Clone)]
pub struct Member {
    pub name: Arc<str>,
    pub record: Arc<NodeRecord>,
    hash: u64,
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
        self.members.clear();
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
                Err(_) => drop(self.members.remove(at)),
            },
            (Ok(at), Change::Deleted { .. }) => drop(self.members.remove(at)),
            (Err(at), Change::Put(record)) => {
                let name: Arc<str> = record.key.strip_prefix(NODES).unwrap_or(&record.key).into();
                // A record that cannot be read is not a member.
                if let Ok(record) = decode(&record) {
                    self.members.insert(at, Member { hash: hash(&name), name, record: Arc::new(record) });
                }
            }
            (Err(_), Change::Deleted { .. }) => {}
        }
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
        let fits = |member: &&Member| !member.record.draining && member.record.hardware == hardware;
        let subject = hash(template);
        let mut ranked: Vec<_> = self.members.iter().map(|member| (score(member.hash, subject), member)).collect();
        let wanted = PREFERRED * (round + 1);
        let enough = (wanted * 4).min(ranked.len());
        if enough < ranked.len() {
            ranked.select_nth_unstable_by(enough, |one, other| other.0.cmp(&one.0));
            ranked.truncate(enough);
        }
        ranked.sort_unstable_by(|one, other| other.0.cmp(&one.0));
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
