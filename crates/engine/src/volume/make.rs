//! Making, listing and deleting volumes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;

use sandling_vmm::disk::copy_sparse;

use super::error::{VolumeError, check_name};
use super::volumes::Volumes;
use crate::host::available_space_mib;
use crate::model::{LEAST_MIB, MOST_MIB, SandboxId, VolumeId, VolumeInfo, VolumeKind};
use crate::store::{Claim, StoreError};

/// How much more may be promised than there is: what is not written takes nothing.
const OVERCOMMIT: u64 = 3;
/// Programs that an ordinary user's PATH may lack.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";

/// A volume with what can be told about it now.
#[derive(Debug, Clone)]
pub struct VolumeView {
    pub info: VolumeInfo,
    /// What it really takes.
    pub used_bytes: u64,
    /// The sandboxes that have it, and whether they write.
    pub attached: Vec<(String, bool)>,
}

impl Volumes {
    /// Makes an empty volume.
    pub async fn create(&self, workspace: &str, name: &str, size_mib: u32) -> Result<VolumeView, VolumeError> {
        self.check_new(workspace, name, size_mib)?;
        let info = volume(workspace, name, size_mib, VolumeKind::Ordinary, None);
        let file = self.file(&info.id);
        let made = make_file_system(&file, size_mib).await;
        self.enter(info, made)
    }

    /// Refuses a volume that cannot be made.
    pub(super) fn check_new(&self, workspace: &str, name: &str, size_mib: u32) -> Result<(), VolumeError> {
        check_name(name)?;
        if !(LEAST_MIB..=MOST_MIB).contains(&size_mib) {
            return Err(VolumeError::Size(size_mib));
        }
        if self.store.volume_named(workspace, name)?.is_some() {
            return Err(VolumeError::Exists(name.to_owned()));
        }
        self.room_for(size_mib)
    }

    /// The volumes of a workspace, oldest first.
    pub fn list(&self, workspace: &str) -> Result<Vec<VolumeView>, StoreError> {
        let uses = self.store.volume_uses()?;
        let all = self.store.volumes()?.into_iter();
        let own = all.filter(|info| info.workspace == workspace && info.is_private().is_none());
        Ok(own.map(|info| self.view(info, &uses)).collect())
    }

    pub fn find(&self, workspace: &str, name: &str) -> Result<Option<VolumeView>, StoreError> {
        let Some(info) = self.store.volume_named(workspace, name)? else { return Ok(None) };
        Ok(Some(self.view(info, &self.store.volume_uses()?)))
    }

    /// What a workspace's volumes may grow to, private ones included.
    pub fn size_mib(&self, workspace: &str) -> u64 {
        let all = self.store.volumes().unwrap_or_default();
        all.iter().filter(|info| info.workspace == workspace).map(|info| u64::from(info.size_mib)).sum()
    }

    /// How many volumes there are, and what they take.
    pub fn totals(&self) -> (usize, u64) {
        let all = self.store.volume_ids().unwrap_or_default();
        let bytes = all.iter().map(|id| used_bytes(&self.dir.join(format!("{id}.img")))).sum();
        (all.len(), bytes)
    }

    /// Deletes a volume with all that is on it, unless a sandbox has it.
    pub fn delete(&self, workspace: &str, name: &str) -> Result<(), VolumeError> {
        let info = self.store.volume_named(workspace, name)?.ok_or_else(|| VolumeError::Unknown(name.to_owned()))?;
        self.remove(info)
    }

    fn remove(&self, info: VolumeInfo) -> Result<(), VolumeError> {
        // The row first: a file without a row is swept at the next start, a row without a file would be a lie.
        match self.store.remove_volume(&info.id)? {
            Claim::Granted => Ok(fs::remove_file(self.file(&info.id))?),
            Claim::HeldBy(by) => Err(VolumeError::InUse { name: info.name, by }),
            Claim::Gone => Err(VolumeError::Unknown(info.name)),
        }
    }

    /// Deletes all volumes of a workspace that is no more.
    pub fn delete_all_of(&self, workspace: &str) -> Result<(), VolumeError> {
        let own = self.store.volumes()?.into_iter().filter(|info| info.workspace == workspace);
        // If one cannot be deleted, the others still are.
        own.map(|info| self.remove(info)).fold(Ok(()), Result::and)
    }

    /// Makes a volume with the content of a file.
    pub(super) fn create_from(&self, file: &Path, info: &VolumeInfo) -> Result<(), VolumeError> {
        let target = self.file(&info.id);
        let entered = copy_sparse(file, &target).map_err(VolumeError::from).and_then(|()| {
            let entered = self.store.insert_volume(info)?;
            if entered { Ok(()) } else { Err(VolumeError::Exists(info.name.clone())) }
        });
        if entered.is_err() {
            let _ = fs::remove_file(target);
        }
        entered
    }

    /// Adds the row of a volume whose file is made. On a failure, removes the file.
    pub(super) fn enter(&self, info: VolumeInfo, made: Result<(), VolumeError>) -> Result<VolumeView, VolumeError> {
        let file = self.file(&info.id);
        let entered = made.and_then(|()| {
            // What is acknowledged survives the host.
            File::open(&file)?.sync_all()?;
            Ok(self.store.insert_volume(&info)?)
        });
        match entered {
            Ok(true) => Ok(self.view(info, &[])),
            other => {
                let _ = fs::remove_file(file);
                Err(other.err().unwrap_or(VolumeError::Exists(info.name)))
            }
        }
    }

    fn view(&self, info: VolumeInfo, uses: &[crate::store::Use]) -> VolumeView {
        // A copy that is being made holds it, too, for a moment.
        let own = uses.iter().filter(|one| one.volume == info.id.as_str() && SandboxId::parse(&one.holder).is_some());
        let attached = own.map(|one| (one.holder.clone(), one.writes)).collect();
        VolumeView { used_bytes: used_bytes(&self.file(&info.id)), info, attached }
    }

    pub(super) fn room_for(&self, size_mib: u32) -> Result<(), VolumeError> {
        match available_space_mib(&self.dir) {
            Some(available_mib) if u64::from(size_mib) > available_mib.saturating_mul(OVERCOMMIT) => {
                Err(VolumeError::NoSpace { available_mib })
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn volume(
    workspace: &str,
    name: &str,
    size_mib: u32,
    kind: VolumeKind,
    source: Option<&VolumeInfo>,
) -> VolumeInfo {
    VolumeInfo {
        id: VolumeId::fresh(),
        workspace: workspace.to_owned(),
        name: name.to_owned(),
        size_mib,
        created_at: jiff::Timestamp::now(),
        kind,
        from: source.map(|source| source.name.clone()),
        // A copy of one that is being written has a journal to be replayed.
        clean: source.is_none_or(|source| source.clean),
        format: Default::default(),
    }
}

fn used_bytes(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |file| file.blocks() * 512)
}

/// The file is new and all holes, so nothing need be written to make it zero.
async fn make_file_system(file: &Path, size_mib: u32) -> Result<(), VolumeError> {
    let disk = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    disk.set_len(u64::from(size_mib) << 20)?;
    drop(disk);
    let output = tokio::process::Command::new("mke2fs")
        .env("PATH", SYSTEM_PATH)
        .args(["-q", "-F", "-t", "ext4", "-m", "0", "-E", "assume_storage_prezeroed=1,nodiscard,root_owner=0:0"])
        .arg(file)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| VolumeError::FileSystem(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(VolumeError::FileSystem(said.lines().last().unwrap_or_default().trim().to_owned()))
}
