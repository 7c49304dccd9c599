//! Where the other nodes are: `fleet/nodes.json`. With it, a node finds the others while etcd is gone, and learns from them
//! which etcd the fleet uses.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandling_fleet::{Member, NodeRecord, Protocol};
use sandling_wire::Home;
use serde::{Deserialize, Serialize};

use super::settings::{FleetSettings, replace};

const VERSION: u32 = 1;

/// A machine that is, or was, a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownNode {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) fingerprint: String,
}

#[derive(Default, Serialize, Deserialize)]
struct Document {
    version: u32,
    nodes: Vec<KnownNode>,
}

pub(super) struct KnownNodes {
    path: PathBuf,
    all: Mutex<Vec<KnownNode>>,
}

impl KnownNode {
    pub(super) fn of(settings: &FleetSettings) -> Self {
        let FleetSettings { name, address, fingerprint, .. } = settings.clone();
        Self { name, address, fingerprint }
    }

    fn of_member(member: &Member) -> Self {
        let NodeRecord { address, fingerprint, .. } = (*member.record).clone();
        Self { name: member.name.to_string(), address, fingerprint }
    }

    /// What a connection to it needs.
    pub(super) fn record(&self) -> NodeRecord {
        NodeRecord {
            fingerprint: self.fingerprint.clone(),
            hardware: String::new(),
            address: self.address.clone(),
            version: String::new(),
            protocol: Protocol::FIRST,
            draining: false,
            unknown: Default::default(),
        }
    }
}

impl KnownNodes {
    /// A file that cannot be read, or was written by a newer version, counts as none: the nodes are known again as soon as
    /// etcd answers.
    pub(super) fn open(home: &Home) -> Self {
        let path = home.fleet().join("nodes.json");
        let all = match fs::read(&path) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!(%error, "fleet/nodes.json cannot be read");
                Vec::new()
            }
        };
        Self { path, all: Mutex::new(all) }
    }

    pub(super) fn all(&self) -> Vec<KnownNode> {
        self.lock().clone()
    }

    /// Adds members, which replace those of the same names, and forgets machines. Writes the file if that changes something.
    pub(super) fn learn(&self, members: &[Member], forget: impl Fn(&KnownNode) -> bool) {
        let mut all = self.lock();
        let mut after: Vec<_> = members.iter().map(KnownNode::of_member).collect();
        let is_new = |known: &&KnownNode| members.iter().all(|member| *member.name != *known.name);
        after.extend(all.iter().filter(is_new).cloned());
        after.retain(|known| !forget(known));
        after.sort_by(|one, other| one.name.cmp(&other.name));
        if after == *all {
            return;
        }
        let document = Document { version: VERSION, nodes: after };
        let text = serde_json::to_string_pretty(&document).expect("nodes have only text");
        match replace(&self.path, format!("{text}\n").as_bytes()) {
            Ok(()) => *all = document.nodes,
            Err(error) => tracing::warn!(%error, "fleet/nodes.json cannot be written; is the disk full?"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<KnownNode>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(text: &[u8]) -> Vec<KnownNode> {
    match serde_json::from_slice::<Document>(text) {
        Ok(document) if document.version <= VERSION => document.nodes,
        Ok(Document { version, .. }) => {
            tracing::warn!(version, "fleet/nodes.json was written by a newer version of Sandling");
            Vec::new()
        }
        Err(error) => {
            tracing::warn!(%error, "fleet/nodes.json cannot be read");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = include_str!("../../tests/golden/v1/nodes.json");

    fn member(name: &str, address: &str, fingerprint: &str) -> Member {
        let known = KnownNode { name: name.into(), address: address.into(), fingerprint: fingerprint.into() };
        Member::new(name.into(), known.record())
    }

    #[test]
    fn nodes_are_remembered_until_they_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        fs::create_dir_all(home.fleet()).unwrap();
        let nodes = KnownNodes::open(&home);
        nodes.learn(&[member("c", "10.0.0.3:7443", "0f0e0d0c0b0a09080706050403020102")], |_| false);
        nodes.learn(&[member("b", "10.0.0.2:7443", "0f0e0d0c0b0a09080706050403020101")], |_| false);
        let path = home.fleet().join("nodes.json");
        assert_eq!(fs::read_to_string(&path).unwrap(), GOLDEN, "the format has changed");
        let again = KnownNodes::open(&home);
        assert_eq!(again.all(), nodes.all());
        again.learn(&[member("c", "10.0.0.9:7443", "other")], |known| known.name == "b");
        assert_eq!(again.all().iter().map(|known| &*known.address).collect::<Vec<_>>(), ["10.0.0.9:7443"]);
        fs::write(&path, GOLDEN.replace(r#""version": 1"#, r#""version": 2"#)).unwrap();
        assert_eq!(KnownNodes::open(&home).all(), []);
    }
}
