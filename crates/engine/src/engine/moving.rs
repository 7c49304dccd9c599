//! Moving hibernated sandboxes and snapshots to another home.
//!
//! A sandbox departs: it has no task any more, so nobody wakes it. Its files and its row are packed, and the other home
//! stores them as an arrival. Only the caller knows whose the sandbox is then, and tells both sides. A departed sandbox stays
//! or is left behind, and an arrival is admitted or turned away. Both outlive a restart as they are.

use std::io::{self, Read, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{MutexGuard, oneshot};

use super::instance::Engine;
use crate::model::{EndReason, NetworkSettings, SandboxId, SandboxInfo, SnapshotId, SnapshotInfo, State};
use crate::network::{CarriedNetwork, NetworkError, Reach};
use crate::sandbox::{Command, Phase, Sandbox, UseError};
use crate::snapshot::{Cargo, CargoError, ImportError};
use crate::store::StoreError;
use crate::transit::{Arrival, Transit};

const MAGIC: &[u8] = b"sandling-move 1\n";
const LONGEST_MANIFEST: u32 = 64 << 20;
/// The network between nodes is fast, so this is about time and not about size.
const LEVEL: i32 = 1;

/// Why a sandbox cannot leave its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Tied {
    #[error("it has a volume")]
    Volume,
    #[error("it is in a network group")]
    Group,
    #[error("a build runs in it")]
    Build,
    #[error("it serves the files of a volume")]
    VolumeFiles,
    #[error("its row cannot be read")]
    Unreadable,
}

/// What ties a sandbox to its home, if anything does.
pub fn tied(info: &SandboxInfo) -> Option<Tied> {
    if info.state == State::Unreadable {
        Some(Tied::Unreadable)
    } else if info.settings.for_build.is_some() {
        Some(Tied::Build)
    } else if info.settings.for_volume.is_some() {
        Some(Tied::VolumeFiles)
    } else if !info.volumes.is_empty() {
        Some(Tied::Volume)
    } else if info.network.group.is_some() {
        Some(Tied::Group)
    } else {
        None
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("there is no such sandbox")]
    Unknown,
    #[error("{0}")]
    Tied(Tied),
    #[error(transparent)]
    Use(#[from] UseError),
    #[error(transparent)]
    Cargo(#[from] CargoError),
    #[error("what the network of the sandbox needs cannot be packed or unpacked")]
    Network(#[from] NetworkError),
    #[error("the files cannot be taken")]
    Import(#[from] ImportError),
    #[error("this is no sandbox or snapshot of another node, or of another version of Sandling")]
    Foreign,
    #[error("the workspace's network defaults differ, so the sandbox could reach something else there")]
    OtherReach,
    #[error("there is a sandbox {0} already")]
    Taken(String),
    #[error("the move cannot be read or written")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What another home must know before it takes something.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MovePlan {
    pub(super) cargo: Cargo,
    pub(super) sandbox: Option<Traveller>,
}

/// The part of a sandbox that decides whether another home can take it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Traveller {
    pub(super) row: Value,
    pub(super) reach: Reach,
}

impl Traveller {
    /// A row without what only its home can decrypt.
    pub(super) fn row(info: SandboxInfo) -> serde_json::Result<Value> {
        let network = NetworkSettings { header_rules: None, ..info.network.clone() };
        serde_json::to_value(SandboxInfo { variables: None, network, ..info })
    }
}

/// The beginning of the stream. The files follow.
#[derive(Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) plan: MovePlan,
    files: Vec<usize>,
    network: Option<CarriedNetwork>,
    token: String,
    wakes: bool,
    from: String,
    more: Value,
}

/// What goes along with a stream.
pub struct Consignment {
    /// Names this attempt.
    pub token: String,
    /// Whether the sandbox wakes as soon as it has arrived.
    pub wakes: bool,
    /// The node that sends it.
    pub from: String,
    /// What the crates above the engine carry.
    pub more: Value,
}

/// What has arrived.
pub struct Arrived {
    /// It waits to be admitted.
    pub sandbox: Option<SandboxId>,
    /// A snapshot that is this home's now.
    pub snapshot: Option<SnapshotInfo>,
    pub token: String,
    /// The node that it comes from.
    pub from: String,
    pub more: Value,
}

impl MovePlan {
    /// The workspace of a sandbox.
    pub fn workspace(&self) -> Option<&str> {
        self.sandbox.as_ref()?.row["workspace"].as_str()
    }

    fn row(&self) -> Result<Option<SandboxInfo>, MoveError> {
        let Some(traveller) = &self.sandbox else { return Ok(None) };
        let info: SandboxInfo = serde_json::from_value(traveller.row.clone()).map_err(|_| MoveError::Foreign)?;
        // They become paths.
        let ids_are = info.id.is_well_formed() && info.snapshots().all(SnapshotId::is_well_formed);
        ids_are.then_some(Some(info)).ok_or(MoveError::Foreign)
    }
}

impl Engine {
    /// Takes a hibernated sandbox out of use, until [`stay`](Self::stay) or [`leave_behind`](Self::leave_behind). It is still
    /// listed.
    pub async fn depart(&self, id: &SandboxId) -> Result<(), MoveError> {
        if self.parts.snapshots.transits.get(id).is_none() {
            // An earlier attempt may have failed so badly that the sandbox has no task since then.
            self.resume_task(id)?;
        }
        let sandbox = self.get(id).ok_or(MoveError::Unknown)?;
        if let Some(tied) = tied(&sandbox.info()) {
            return Err(MoveError::Tied(tied));
        }
        let _nothing_pending = sandbox.saves.quiet().await;
        self.parts.snapshots.written_of(id).await;
        let (answer, answered) = oneshot::channel();
        sandbox.ask_task(Command::Depart { answer }).await?;
        let ended = || UseError::Ended(EndReason::EngineClosed);
        answered.await.unwrap_or_else(|_| Err(ended()))?;
        sandbox.commands.closed().await;
        if let Err(error) = self.parts.snapshots.transits.begin(Transit::new(id, None)) {
            self.resume_task(id)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// The sandboxes that had departed when this engine started, or depart now.
    pub fn departed(&self) -> Vec<SandboxId> {
        let all = self.parts.snapshots.transits.all().into_iter();
        all.filter(|transit| transit.arrival.is_none()).map(|transit| transit.sandbox).collect()
    }

    /// A departed sandbox goes on here.
    pub fn stay(&self, id: &SandboxId) -> Result<(), MoveError> {
        if self.parts.snapshots.transits.is_leaving(id) {
            // In this order: if one of them fails, the caller can try again.
            self.resume_task(id)?;
            self.parts.snapshots.transits.end(id)?;
        }
        Ok(())
    }

    /// A departed sandbox belongs to another home now. Nothing of it stays here.
    pub async fn leave_behind(&self, id: &SandboxId, to: &str) -> Result<(), MoveError> {
        let transits = &self.parts.snapshots.transits;
        if !transits.is_leaving(id) {
            return Ok(());
        }
        let row = self.parts.store.living_sandbox(id.as_str())?;
        self.forget(id, row, "moved", serde_json::json!({ "to": to })).await
    }

    /// Removes what is here of a sandbox that another home has, and notes why.
    pub(super) async fn forget(
        &self,
        id: &SandboxId,
        row: Option<SandboxInfo>,
        event: &str,
        detail: Value,
    ) -> Result<(), MoveError> {
        self.parts.store.forget_sandbox(id.as_str())?;
        self.parts.snapshots.transits.end(id)?;
        self.registry.unregister(id);
        self.parts.networks.close(id);
        if let Some(info) = row {
            self.parts.events.note(id, &info.workspace, event, detail);
            self.parts.snapshots.sweep_with(&info.standing.disk).await?;
        }
        Ok(())
    }

    /// A sandbox that has a task. Nobody looks after one that was parked when this engine started, or has departed.
    fn looked_after(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        self.get(id).filter(|sandbox| !sandbox.commands.is_closed())
    }

    fn resume_task(&self, id: &SandboxId) -> Result<(), StoreError> {
        // An engine that closes starts no task, because such a task would end the sandbox. The next engine does.
        if self.looked_after(id).is_some() || self.is_closing() {
            return Ok(());
        }
        let row = self.parts.store.living_sandbox(id.as_str())?;
        if let Some(info) = row.filter(|info| info.state == State::Hibernated) {
            self.parts.store.give_sandbox(id.as_str(), self.owner.id())?;
            self.host.start(Phase::Hibernated, info);
        }
        Ok(())
    }

    /// What another home must know about a departed sandbox.
    pub fn plan_move(&self, id: &SandboxId) -> Result<MovePlan, MoveError> {
        let info = self.parts.store.living_sandbox(id.as_str())?.ok_or(MoveError::Unknown)?;
        let mut needed = Vec::new();
        for id in info.snapshots() {
            if !needed.contains(id) && self.parts.store.snapshot(id)?.is_some() {
                needed.push(id.clone());
            }
        }
        // A snapshot that is in a list stays in that of this home, until it moves itself.
        let cargo = self.parts.snapshots.cargo(&needed, &info.standing.disk)?.hidden();
        let reach = self.parts.networks.reach(&info.workspace, &info.template, &info.network)?;
        let row = Traveller::row(info).map_err(StoreError::from)?;
        Ok(MovePlan { cargo, sandbox: Some(Traveller { row, reach }) })
    }

    /// What another home must know about a snapshot.
    pub fn plan_snapshot_move(&self, id: &SnapshotId) -> Result<MovePlan, MoveError> {
        Ok(MovePlan { cargo: self.parts.snapshots.cargo(std::slice::from_ref(id), &[])?, sandbox: None })
    }

    /// The same for a copy of a snapshot, which is in no list.
    pub(super) fn plan_snapshot_copy(&self, id: &SnapshotId) -> Result<MovePlan, MoveError> {
        Ok(MovePlan { cargo: self.parts.snapshots.cargo(std::slice::from_ref(id), &[])?.hidden(), sandbox: None })
    }

    /// The files that this home lacks of what another one offers, by their numbers. The error says why it does not take it.
    pub fn can_take(&self, plan: &MovePlan) -> Result<Vec<usize>, MoveError> {
        if let Some((info, traveller)) = plan.row()?.zip(plan.sandbox.as_ref()) {
            self.check_free(&info, traveller)?;
        }
        Ok(self.parts.snapshots.lacks(&plan.cargo)?)
    }

    /// Refuses a sandbox that is here already, whose name is taken, or that could reach something else here.
    pub(super) fn check_free(&self, info: &SandboxInfo, traveller: &Traveller) -> Result<(), MoveError> {
        if self.get(&info.id).is_some() || self.parts.snapshots.transits.get(&info.id).is_some() {
            return Err(MoveError::Taken(info.id.to_string()));
        }
        let named = info.name.as_deref().and_then(|name| self.registry.named(&info.workspace, name));
        if let Some(other) = named {
            return Err(MoveError::Taken(format!("{} of this name", other.id())));
        }
        if self.parts.networks.reach(&info.workspace, &info.template, &info.network)? != traveller.reach {
            return Err(MoveError::OtherReach);
        }
        Ok(())
    }

    /// Writes what another home lacks of it. Blocks.
    pub fn pack(
        &self,
        plan: &MovePlan,
        files: Vec<usize>,
        with: Consignment,
        mut out: impl Write,
    ) -> Result<(), MoveError> {
        let network = match plan.row()? {
            Some(info) => {
                let mut info = self.parts.store.living_sandbox(info.id.as_str())?.ok_or(MoveError::Unknown)?;
                Some(self.parts.networks.pack(&mut info)?)
            }
            None => None,
        };
        let Consignment { token, wakes, from, more } = with;
        let manifest = Manifest { plan: plan.clone(), files, network, token, wakes, from, more };
        let text = serde_json::to_vec(&manifest).map_err(StoreError::from)?;
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        out.write_all(MAGIC)?;
        let mut stream = zstd::Encoder::new(out, LEVEL)?;
        stream.write_all(&length.to_le_bytes())?;
        stream.write_all(&text)?;
        self.parts.snapshots.load(plan_cargo(&manifest), &manifest.files, &mut stream)?;
        stream.write_all(blake3::hash(&text).as_bytes())?;
        Ok(stream.finish()?.flush()?)
    }

    /// Stores what [`pack`](Self::pack) wrote in another home. A snapshot is this home's then. A sandbox waits until it is
    /// admitted or turned away. Blocks.
    pub fn unpack(&self, from: impl Read) -> Result<Arrived, MoveError> {
        let (manifest, _no_sweep) = self.receive(from, |_| true)?;
        let Manifest { plan, network, token, wakes, from, more, .. } = manifest;
        let Some(mut info) = plan.row()? else {
            return Ok(Arrived { sandbox: None, snapshot: plan.cargo.listed().cloned(), token, from, more });
        };
        let arrival = Arrival { token, wakes, from, ..Arrival::default() };
        let arrival = self.store_arrival(&mut info, network.as_ref(), arrival)?;
        let Arrival { token, from, .. } = arrival;
        Ok(Arrived { sandbox: Some(info.id), snapshot: None, token, from, more })
    }

    /// Notes that a sandbox has arrived, whose snapshots are here.
    pub(super) fn store_arrival(
        &self,
        info: &mut SandboxInfo,
        network: Option<&CarriedNetwork>,
        mut arrival: Arrival,
    ) -> Result<Arrival, MoveError> {
        arrival.secrets = match network {
            Some(network) => self.parts.networks.unpack(info, network)?,
            None => Vec::new(),
        };
        if arrival.fails_over {
            // A node that takes over has the fleet's secrets. One that it lacks was removed since the point.
            arrival.secrets.clear();
        }
        if let Some(saved) = info.standing.restored.as_ref().or(info.standing.disk.last()) {
            info.standing.base = self.parts.snapshots.base_here(saved)?;
        }
        arrival.row = serde_json::to_value(&*info).map_err(StoreError::from)?;
        // An earlier attempt may have arrived meanwhile.
        let taken = || MoveError::Taken(info.id.to_string());
        if self.get(&info.id).is_some() {
            return Err(taken());
        }
        let begun = self.parts.snapshots.transits.begin(Transit::new(&info.id, Some(arrival.clone())));
        begun.map_err(|error| if error.kind() == io::ErrorKind::AlreadyExists { taken() } else { error.into() })?;
        Ok(arrival)
    }

    /// Stores the snapshots that [`pack`](Self::pack) wrote, if their plan is the expected one. Nothing is swept until the
    /// guard is dropped, so that what needs them can be written first. Blocks.
    pub(super) fn receive(
        &self,
        mut from: impl Read,
        is_expected: impl FnOnce(&MovePlan) -> bool,
    ) -> Result<(Manifest, MutexGuard<'_, ()>), MoveError> {
        let mut magic = vec![0; MAGIC.len()];
        from.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Err(MoveError::Foreign);
        }
        let mut stream = zstd::Decoder::new(from)?;
        let (manifest, digest) = read_manifest(&mut stream)?;
        if !is_expected(&manifest.plan) {
            return Err(MoveError::Foreign);
        }
        self.can_take(&manifest.plan)?;
        let unloaded = self.parts.snapshots.unload(plan_cargo(&manifest), &manifest.files, &mut stream)?;
        let mut told = [0; 32];
        stream.read_exact(&mut told)?;
        if digest != told {
            return Err(MoveError::Foreign);
        }
        let no_sweep = unloaded.settle()?;
        Ok((manifest, no_sweep))
    }

    /// The sandboxes that have arrived and are neither admitted nor turned away, with the tokens of their moves.
    pub fn arrivals(&self) -> Vec<(SandboxId, String)> {
        let all = self.parts.snapshots.transits.all().into_iter();
        all.filter_map(|transit| Some((transit.sandbox, transit.arrival?.token))).collect()
    }

    /// An arrival is this home's now. Returns whether it is to wake at once.
    pub fn admit_arrival(&self, id: &SandboxId) -> Result<(Option<Arc<Sandbox>>, bool), MoveError> {
        let transits = &self.parts.snapshots.transits;
        let Some(arrival) = transits.get(id).and_then(|transit| transit.arrival) else {
            return Ok((self.get(id), false));
        };
        let mut info = arrival.row().map_err(StoreError::from)?;
        self.parts.networks.store_arrived(&mut info, &arrival.secrets)?;
        self.parts.store.adopt_sandbox(self.owner.id(), &info)?;
        let workspace = info.workspace.clone();
        let failed_over = info.settings.failover.as_ref().and_then(|failover| failover.last.clone());
        let failed_over = failed_over.filter(|_| arrival.fails_over);
        let sandbox = self.looked_after(id).or_else(|| self.host.start(Phase::Hibernated, info));
        transits.end(id)?;
        let (event, detail) = match failed_over {
            Some(last) => ("failed_over", serde_json::json!({ "from": last.from, "point_at": last.to })),
            None => ("moved", serde_json::json!({ "from": arrival.from })),
        };
        self.parts.events.note(id, &workspace, event, detail);
        Ok((sandbox, arrival.wakes))
    }

    /// An arrival belongs to another home. Nothing of it stays here.
    pub async fn turn_away(&self, id: &SandboxId) -> Result<(), MoveError> {
        let transits = &self.parts.snapshots.transits;
        let Some(arrival) = transits.get(id).and_then(|transit| transit.arrival) else { return Ok(()) };
        self.parts.store.forget_sandbox(id.as_str())?;
        transits.end(id)?;
        let layers = arrival.row().map(|info| info.standing.disk).unwrap_or_default();
        Ok(self.parts.snapshots.sweep_with(&layers).await?)
    }

    /// Ends the standbys and makes no more while this is set.
    pub fn hold_standbys(&self, held: bool) {
        self.parts.machines.hold_standbys(held);
    }
}

fn plan_cargo(manifest: &Manifest) -> &Cargo {
    &manifest.plan.cargo
}

fn read_manifest(stream: &mut impl Read) -> Result<(Manifest, [u8; 32]), MoveError> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST_MANIFEST {
        return Err(MoveError::Foreign);
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    let manifest = serde_json::from_slice(&text).map_err(|_| MoveError::Foreign)?;
    Ok((manifest, *blake3::hash(&text).as_bytes()))
}
