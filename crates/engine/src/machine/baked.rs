//! A baked snapshot on disk: its files, its manifest and the key by which it is found.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sandling_image::{ContentId, Untrusted, check_trusted, check_trusted_files};
use sandling_protocol::Language;
use sandling_vmm::machine::{DEVICE_MODEL, Hardware, emulator_fingerprint};
use serde::{Deserialize, Serialize};

use super::command_line::{COMMAND_LINES, options};
use super::error::BakeError;
use crate::model::DISK;

/// Raised when a bake of an older program could not be restored by this one.
const FORMAT: u32 = 2;
const MANIFEST: &str = "baked.json";
/// The longest manifest that is read from a bake of another host.
const LONGEST_MANIFEST: u64 = 1 << 20;

/// A baked snapshot on disk.
#[derive(Debug, Clone)]
pub(crate) struct Baked {
    dir: PathBuf,
    manifest: Manifest,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    id: String,
    hardware: Hardware,
    /// Sizes, by which a truncated file is noticed before a machine is started from it.
    memory_bytes: u64,
    state_bytes: u64,
    disk_bytes: u64,
    /// Not known of bakes that older programs made.
    #[serde(default)]
    overlay_bytes: Option<u64>,
    /// The workspace that was the first to use this size; absent for the size that the template has by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    /// The languages whose interpreters are warm. Not known of bakes that older programs made: all of the recipe's are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warm: Option<Vec<Language>>,
}

impl Baked {
    pub(crate) fn memory(&self) -> PathBuf {
        self.dir.join("memory")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// What the guest wrote to its disk before it was saved.
    pub(crate) fn disk(&self) -> PathBuf {
        self.dir.join(DISK)
    }

    /// An empty disk on top of that one, to be copied for each machine.
    pub(crate) fn overlay(&self) -> PathBuf {
        self.dir.join("overlay.qcow2")
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn warm_languages(&self) -> Option<&[Language]> {
        self.manifest.warm.as_deref()
    }

    pub(crate) fn layer_name(&self) -> String {
        format!("baked-{}", self.manifest.id)
    }

    pub(crate) fn load(dir: &Path) -> Result<Option<Self>, BakeError> {
        let Ok(text) = fs::read(dir.join(MANIFEST)) else { return Ok(None) };
        let damaged = || BakeError::Damaged(dir.to_owned());
        let manifest = parse(&text).map_err(|_| damaged())?;
        let baked = Self { dir: dir.to_owned(), manifest };
        baked.check_trusted()?;
        if baked.is_whole() { Ok(Some(baked)) } else { Err(damaged()) }
    }

    /// The bake in this directory, if it is one that can be exported, or imported for this hardware. It may be forged.
    pub(super) fn load_portable(dir: &Path, hardware: &Hardware) -> Option<Self> {
        if fs::metadata(dir.join(MANIFEST)).ok()?.len() > LONGEST_MANIFEST {
            return None;
        }
        let baked = Self::load(dir).ok()??;
        let Manifest { format, id, hardware: own, workspace, .. } = &baked.manifest;
        // The id becomes the name of a file. Bakes of other sizes than the template's count against a workspace.
        let is_id = (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (is_id && *format == FORMAT && own == hardware && workspace.is_none()).then_some(baked)
    }

    /// The workspace whose quota the bake in this directory counts against.
    pub(super) fn workspace(dir: &Path) -> Option<String> {
        serde_json::from_slice::<Manifest>(&fs::read(dir.join(MANIFEST)).ok()?).ok()?.workspace
    }

    /// Refuses files that another user could have changed. Earlier versions left the directory to the user of the machine
    /// that made the bake; root takes it back.
    fn check_trusted(&self) -> Result<(), Untrusted> {
        const EARLIER_BAKER: u32 = 699_999;
        if rustix::process::geteuid().is_root() && fs::metadata(&self.dir).is_ok_and(|dir| dir.uid() == EARLIER_BAKER) {
            // If this fails, the check below reports it.
            let _ = std::os::unix::fs::lchown(&self.dir, Some(0), Some(0));
        }
        check_trusted(&self.dir)?;
        let files = [self.dir.join(MANIFEST), self.memory(), self.state(), self.disk(), self.overlay()];
        check_trusted_files(files.iter().map(PathBuf::as_path))
    }

    /// Whether every file still has its size. A machine would not notice a missing end until it reads it.
    pub(crate) fn is_whole(&self) -> bool {
        let size = |path: PathBuf| fs::metadata(path).map(|meta| meta.len()).unwrap_or_default();
        size(self.memory()) == self.manifest.memory_bytes
            && size(self.state()) == self.manifest.state_bytes
            && size(self.disk()) == self.manifest.disk_bytes
            && self.manifest.overlay_bytes.map_or(size(self.overlay()) > 0, |bytes| size(self.overlay()) == bytes)
    }
}

fn parse(manifest: &[u8]) -> Result<Manifest, serde_json::Error> {
    serde_json::from_slice(manifest)
}

/// Whether a text is the manifest of a bake. For fuzzing.
pub(crate) fn check_bake_manifest(text: &[u8]) -> bool {
    parse(text).is_ok()
}

/// Names a bake by everything that must be the same when it is restored, and by what its kernel was started with. The
/// text that is digested is part of the format: rows of every version name bakes by it.
pub(crate) fn key(hardware: &Hardware) -> String {
    key_of(hardware, &emulator(hardware), options(hardware.accelerator))
}

/// Whether what was saved over the bake of this key can go on here. A kernel that was started with other options can.
pub(crate) fn can_restore(key: &str, hardware: &Hardware) -> bool {
    let emulator = emulator(hardware);
    COMMAND_LINES.iter().any(|command_line| key_of(hardware, &emulator, command_line) == key)
}

fn emulator(hardware: &Hardware) -> String {
    emulator_fingerprint(hardware.accelerator).unwrap_or_else(|| "unknown".to_owned())
}

fn key_of(hardware: &Hardware, emulator: &str, command_line: &str) -> String {
    let text = format!("{FORMAT} {DEVICE_MODEL} {emulator} {} {command_line}", hardware.cpu_model);
    let digest = ContentId::of(text.as_bytes());
    format!("{}-{}c-{}m-{}", hardware.accelerator, hardware.vcpus, hardware.memory_mib, &digest.as_str()[..12])
}

/// What a bake's manifest says about how it was made.
pub(super) struct Provenance {
    pub(super) workspace: Option<String>,
    pub(super) warm: Vec<Language>,
}

/// Keeps what a restore needs, makes it unchangeable, and describes it.
pub(super) fn write_manifest(
    work: &Path,
    id: String,
    hardware: &Hardware,
    provenance: Provenance,
) -> Result<(), BakeError> {
    use std::os::unix::fs::PermissionsExt;
    let kept = ["memory", "state", DISK, "overlay.qcow2"];
    for entry in fs::read_dir(work)?.flatten() {
        if !kept.iter().any(|name| entry.file_name() == *name) {
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
        }
    }
    let mut sizes = [0; 4];
    for (size, name) in sizes.iter_mut().zip(kept) {
        *size = fs::metadata(work.join(name))?.len();
    }
    for name in kept {
        let path = work.join(name);
        // The machine ran under a user of its own; from here on the file belongs to the engine.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(0), Some(0))?;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444))?;
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(work, Some(0), Some(0))?;
    }
    fs::set_permissions(work, fs::Permissions::from_mode(0o700))?;
    let [memory_bytes, state_bytes, disk_bytes, overlay_bytes] = sizes;
    let manifest = Manifest {
        format: FORMAT,
        id,
        hardware: hardware.clone(),
        memory_bytes,
        state_bytes,
        disk_bytes,
        overlay_bytes: Some(overlay_bytes),
        workspace: provenance.workspace,
        warm: Some(provenance.warm),
    };
    let text = serde_json::to_vec_pretty(&manifest).map_err(std::io::Error::other)?;
    fs::write(work.join(MANIFEST), text)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use sandling_vmm::accelerator::Accelerator;

    use super::super::command_line::EMULATED;
    use super::*;

    #[test]
    fn a_bake_of_the_first_version_is_read_and_found_by_its_key() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
        let manifest: Manifest = serde_json::from_slice(&fs::read(golden.join("baked.json")).unwrap()).unwrap();
        assert_eq!((manifest.format, manifest.hardware.memory_mib), (2, 512));
        let key = fs::read_to_string(golden.join("baked.key")).unwrap();
        let (key, emulator) = key.trim().split_once(' ').unwrap();
        let found = COMMAND_LINES.iter().any(|line| key_of(&manifest.hardware, emulator, line) == key);
        assert!(found, "snapshots of the first version could not be restored");
    }

    #[test]
    fn snapshots_over_a_kvm_bake_without_mitigations_can_still_be_restored() {
        let cpu_model = "host".to_owned();
        let hardware = Hardware { accelerator: Accelerator::Kvm, cpu_model, vcpus: 1, memory_mib: 512 };
        let earlier = key_of(&hardware, &emulator(&hardware), EMULATED);
        assert_ne!(earlier, key(&hardware), "new sandboxes get a new bake");
        assert!(can_restore(&earlier, &hardware));
    }

    fn fake_hardware() -> Hardware {
        Hardware { accelerator: Accelerator::Tcg, cpu_model: "max".to_owned(), vcpus: 1, memory_mib: 512 }
    }

    fn fake_bake(dir: &Path, id: &str, workspace: Option<&str>) {
        fs::create_dir_all(dir).unwrap();
        for name in ["memory", "state", DISK, "overlay.qcow2"] {
            fs::write(dir.join(name), "x").unwrap();
        }
        let provenance = Provenance { workspace: workspace.map(str::to_owned), warm: Vec::new() };
        write_manifest(dir, id.to_owned(), &fake_hardware(), provenance).unwrap();
    }

    #[test]
    fn a_forged_bake_and_one_of_a_workspace_are_not_carried() {
        let place = tempfile::tempdir().unwrap();
        let is_portable = |id: &str, workspace, hardware: &Hardware| {
            let dir = tempfile::tempdir_in(place.path()).unwrap();
            fake_bake(dir.path(), id, workspace);
            Baked::load_portable(dir.path(), hardware).is_some()
        };
        let hardware = fake_hardware();
        assert!(is_portable("0a1b", None, &hardware));
        assert!(!is_portable("../../escape", None, &hardware));
        assert!(!is_portable("", None, &hardware));
        assert!(!is_portable("0a1b", Some("team"), &hardware));
        assert!(!is_portable("0a1b", None, &Hardware { vcpus: 2, ..hardware.clone() }));
        let padded = tempfile::tempdir_in(place.path()).unwrap();
        fake_bake(padded.path(), "0a1b", None);
        let manifest = padded.path().join(MANIFEST);
        let text = fs::read_to_string(&manifest).unwrap() + &" ".repeat(LONGEST_MANIFEST as usize);
        fs::remove_file(&manifest).unwrap();
        fs::write(&manifest, text).unwrap();
        assert!(Baked::load(padded.path()).unwrap().is_some());
        assert!(Baked::load_portable(padded.path(), &hardware).is_none());
    }

    #[test]
    fn a_bake_that_others_can_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("baked");
        fake_bake(&dir, "id", None);
        assert!(Baked::load(&dir).unwrap().is_some());
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for (path, open, closed) in [(dir.join("memory"), 0o666, 0o444), (dir.clone(), 0o777, 0o700)] {
            set(&path, open);
            let error = Baked::load(&dir).unwrap_err();
            assert!(matches!(error, BakeError::Untrusted(_)), "{error}");
            set(&path, closed);
            assert!(Baked::load(&dir).unwrap().is_some());
        }
    }
}
