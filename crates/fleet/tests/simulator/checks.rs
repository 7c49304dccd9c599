//! What must hold in every run. Violations are collected, because a run goes on after the first one.

use std::collections::{BTreeMap, BTreeSet};

use sandling_fleet::{SANDBOXES, SandboxRecord, SandboxState, Write};

#[derive(Default)]
pub struct Checks {
    pub violations: Vec<String>,
    pub limits: BTreeMap<String, usize>,
    pub acknowledged: BTreeSet<String>,
    pub records: BTreeMap<String, SandboxRecord>,
    running: BTreeMap<String, usize>,
    /// Which machines can run commands now: the node and the generation.
    pub live: BTreeMap<String, (usize, u32)>,
    /// The node and generation that ran first.
    ran: BTreeMap<String, (usize, u32)>,
    /// Generations that continued an image, and did not begin anew.
    woken: BTreeSet<(String, u32)>,
    digest: blake3::Hasher,
}

fn workspace(key: &str) -> &str {
    key.split('/').nth(1).unwrap_or_default()
}

impl Checks {
    pub fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    /// The same for the same seed.
    pub fn digest(&self) -> String {
        self.digest.finalize().to_hex().to_string()
    }

    /// A quota counts the sandboxes that the ledger calls running.
    pub fn committed(&mut self, writes: &[Write]) {
        for write in writes {
            self.digest.update(format!("{write:?}").as_bytes());
            let Write::Put { key, value, .. } = write else { continue };
            if !key.starts_with(SANDBOXES) {
                continue;
            }
            let record: SandboxRecord = serde_json::from_str(value).unwrap();
            let runs = record.state == SandboxState::Running;
            let ran = self.records.insert(key.clone(), record).is_some_and(|old| old.state == SandboxState::Running);
            let running = self.running.entry(workspace(key).to_owned()).or_default();
            *running = *running + usize::from(runs) - usize::from(ran);
            let (running, limit) = (*running, self.limits[workspace(key)]);
            if running > limit {
                self.violation(format!("quota: {} has {running} of {limit}", workspace(key)));
            }
        }
    }

    /// A machine can run commands from now on. It is fresh if it was not woken from an image.
    pub fn released(&mut self, key: &str, node: usize, generation: u32, fresh: bool) {
        self.digest.update(format!("{key} {node} {generation}").as_bytes());
        let this = (node, generation);
        if self.live.insert(key.to_owned(), this).is_some_and(|other| other != this) {
            self.violation(format!("ran twice at once: {key}"));
        }
        let first = *self.ran.entry(key.to_owned()).or_insert(this);
        if fresh && first != this && !self.woken.contains(&(key.to_owned(), generation)) {
            self.violation(format!("ran twice: {key}"));
        }
        if !fresh {
            self.woken.insert((key.to_owned(), generation));
        }
    }

    pub fn stopped(&mut self, key: &str, node: usize, generation: u32) {
        if self.live.get(key) == Some(&(node, generation)) {
            self.live.remove(key);
        }
    }

    /// After everything has settled: nothing is orphaned, and every acknowledged create has an explanation.
    pub fn finish(&mut self, noted: &BTreeSet<(String, u32)>) {
        let mut found = Vec::new();
        for (key, record) in &self.records {
            let live = self.live.get(key);
            match &record.state {
                SandboxState::Starting => found.push(format!("orphan: {key} never started at {}", record.owner)),
                SandboxState::Running if live.is_none_or(|live| live.1 != record.generation) => {
                    found.push(format!("orphan: {key} of {} has no machine", record.owner));
                }
                SandboxState::Lost { cause } if cause.is_empty() => found.push(format!("no cause: {key}")),
                SandboxState::Abandoned if self.acknowledged.contains(key) => {
                    found.push(format!("acknowledged and abandoned: {key}"));
                }
                _ => {}
            }
        }
        let unrecorded =
            |key: &String| self.records.get(key).is_none_or(|record| record.state != SandboxState::Running);
        found.extend(self.live.keys().filter(|key| unrecorded(key)).map(|key| format!("orphan: a machine of {key}")));
        let unknown = self.acknowledged.iter().filter(|key| !self.records.contains_key(*key));
        found.extend(unknown.map(|key| format!("acknowledged and forgotten: {key}")));
        let stale = |key: &String, generation: u32| {
            let record = self.records.get(key).filter(|record| record.state == SandboxState::Running);
            record.is_none_or(|record| record.generation != generation)
        };
        let stale = noted.iter().filter(|(key, generation)| stale(key, *generation));
        found.extend(stale.map(|(key, generation)| format!("leftover: {key} generation {generation}")));
        self.violations.extend(found);
    }
}
