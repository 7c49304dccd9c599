//! The table of all commands, running and finished.

use std::collections::{BTreeMap, HashMap};

use super::output::Memory;
use super::record::Exec;

/// How many finished commands are remembered.
const REMEMBERED: usize = 256;

/// The limit for the output kept of all commands together.
const BUDGET_BYTES: usize = 32 * 1024 * 1024;

/// Keys increase, so their order is the order of starting.
#[derive(Default)]
pub struct Execs {
    by_key: BTreeMap<u64, Exec>,
    by_id: HashMap<String, u64>,
    last_key: u64,
}

impl Execs {
    pub fn next_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    pub fn insert(&mut self, exec: Exec) {
        self.by_id.insert(exec.id.clone(), exec.key);
        self.by_key.insert(exec.key, exec);
    }

    pub fn key_of(&self, id: &str) -> Option<u64> {
        self.by_id.get(id).copied()
    }

    pub fn get(&mut self, key: u64) -> Option<&mut Exec> {
        self.by_key.get_mut(&key)
    }

    pub fn remove(&mut self, key: u64) -> Option<Exec> {
        let exec = self.by_key.remove(&key)?;
        self.by_id.remove(&exec.id);
        Some(exec)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Exec> {
        self.by_key.values()
    }

    /// Whether the commands together use more than the limit.
    pub fn memory(&self) -> Memory {
        if self.weight() > BUDGET_BYTES { Memory::Short } else { Memory::Enough }
    }

    fn weight(&self) -> usize {
        self.iter().map(|exec| exec.output.log.weight()).sum()
    }

    /// Drops the output of the oldest finished commands while too much is kept, unless a stream still reads it.
    pub fn stay_within_budget(&mut self) {
        let mut weight = self.weight();
        for exec in self.by_key.values_mut() {
            if weight <= BUDGET_BYTES {
                return;
            }
            if exec.exit.is_some() && exec.viewers.is_empty() {
                weight -= exec.output.log.weight();
                exec.output.log.clear();
            }
        }
    }

    /// The finished commands beyond the number to remember, oldest first.
    pub fn too_old(&self) -> Vec<u64> {
        let finished: Vec<u64> =
            self.iter().filter(|e| e.exit.is_some() && e.viewers.is_empty()).map(|e| e.key).collect();
        let excess = finished.len().saturating_sub(REMEMBERED);
        finished[..excess].to_vec()
    }
}
