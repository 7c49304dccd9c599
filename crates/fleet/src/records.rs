//! The ledger's keys and values. Values are JSON, and fields that this version does not know are kept.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ledger::{LedgerError, Record};
use crate::protocol::Protocol;

/// Fields that a newer version wrote.
type Unknown = BTreeMap<String, serde_json::Value>;

pub const NODES: &str = "node/";
pub const HELD: &str = "held/";
/// Which machine has a node's name, whether it is up or not.
pub const MACHINES: &str = "machine/";
/// A fleet has fewer machines than this.
pub const MOST_MACHINES: usize = 10_000;
/// Machines that are excluded, by their fingerprints.
pub const REMOVED: &str = "removed/";
pub const SANDBOXES: &str = "sb/";
/// Where sandboxes are that have moved.
pub const MOVED: &str = "moved/";

pub fn node_key(node: &str) -> String {
    format!("{NODES}{node}")
}

pub fn machine_key(node: &str) -> String {
    format!("{MACHINES}{node}")
}

pub fn removed_key(fingerprint: &str) -> String {
    format!("{REMOVED}{fingerprint}")
}

/// The same request has the same key at every node.
pub fn sandbox_key(workspace: &str, idempotency_key: &str) -> String {
    let hash =
        blake3::Hasher::new().update(workspace.as_bytes()).update(b"\0").update(idempotency_key.as_bytes()).finalize();
    format!("{SANDBOXES}{workspace}/{}", &hash.to_hex()[..20])
}

/// The node that creates the sandbox of an idempotency key.
pub fn create_key(workspace: &str, idempotency_key: &str) -> String {
    sandbox_key(workspace, idempotency_key).replacen(SANDBOXES, "create/", 1)
}

/// What the ids of a node's sandboxes carry.
pub fn node_tag(node: &str) -> u32 {
    u32::from_be_bytes(*blake3::hash(node.as_bytes()).as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

pub fn quota_key(workspace: &str) -> String {
    format!("quota/{workspace}")
}

/// Present while an operator wants the node drained. It has no lease: a drain outlives the node's restarts.
pub fn drain_key(node: &str) -> String {
    format!("drain/{node}")
}

pub fn moved_key(sandbox: &str) -> String {
    format!("{MOVED}{sandbox}")
}

/// How far the drain of a node is. It has the node's lease.
pub fn drain_progress_key(node: &str) -> String {
    format!("drain-progress/{node}")
}

/// All permits of one node have one prefix, so that another node can return them after its death.
pub fn held_prefix(node: &str) -> String {
    format!("{HELD}{node}/")
}

/// `node/<name>`, written with the node's lease. The revision that created the key is the node's epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Tells two machines with one name apart.
    pub fingerprint: String,
    /// Accelerator, CPU model and QEMU version: a memory image restores only on an equal one.
    pub hardware: String,
    /// Where other nodes reach this one, such as `10.0.0.1:7443`.
    #[serde(default)]
    pub address: String,
    /// The version of Sandling.
    #[serde(default)]
    pub version: String,
    /// What the node speaks with others.
    #[serde(default)]
    pub protocol: Protocol,
    pub draining: bool,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// `machine/<name>`, from a node's first registration until it is removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineRecord {
    pub fingerprint: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// `removed/<fingerprint>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemovedRecord {
    /// The name that the machine had.
    pub node: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// `drain/<node>`: what an operator wants of a drain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DrainRecord {
    /// The node only gets no new sandboxes.
    #[serde(default)]
    pub keeps_sandboxes: bool,
    /// How long a sandbox that is in use may stay in use before it is moved nevertheless.
    #[serde(default = "usual_wait")]
    pub wait_seconds: u64,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Default for DrainRecord {
    fn default() -> Self {
        Self { keeps_sandboxes: false, wait_seconds: usual_wait(), unknown: Unknown::new() }
    }
}

fn usual_wait() -> u64 {
    300
}

/// `drain-progress/<node>`: what the draining node says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainProgress {
    /// Sandboxes and snapshots that have moved since this drain began.
    pub moved: u32,
    /// What is still on the node, and why.
    pub left: Vec<DrainLeft>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Sandboxes or snapshots that are on a draining node for one reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DrainLeft {
    /// `sandbox` or `snapshot`.
    pub what: String,
    pub why: String,
    pub count: u32,
    /// Whether they move later without anybody's help.
    pub moves_later: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    /// Claimed. No user command has reached the machine.
    Starting,
    /// The owner died or gave up before the machine ran, so a retry of the create may take it over.
    Abandoned,
    Running,
    Ended,
    Lost {
        cause: String,
    },
}

/// `sb/<workspace>/<hash>`. Only transactions on its last revision change it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxRecord {
    pub owner: String,
    pub epoch: i64,
    /// Grows with each owner.
    pub generation: u32,
    /// Tells the writer its own write after an unclear outcome.
    pub nonce: u64,
    /// A retry with another request under the same key is a conflict.
    pub digest: String,
    pub template: String,
    pub hardware: String,
    pub state: SandboxState,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// `quota/<workspace>`: how many permits nodes hold together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QuotaRecord {
    pub limit: u32,
    pub used: u32,
    pub holders: u32,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// `held/<node>/<workspace>`: how many of them one node holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldRecord {
    pub permits: u32,
    #[serde(flatten)]
    pub unknown: Unknown,
}

pub fn encode(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records have text keys and no failing serializers")
}

pub fn decode<T: DeserializeOwned>(record: &Record) -> Result<T, LedgerError> {
    let key = &record.key;
    serde_json::from_str(&record.value)
        .map_err(|error| LedgerError::Unexpected(format!("{key} is unreadable: {error}")))
}
