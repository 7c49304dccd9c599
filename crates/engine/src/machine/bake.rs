//! Baking: an image is booted once, warmed and exercised, and its machine saved while it stands still.
//!
//! A bake is made in a directory of its own and moved into place when it is whole, so a half-made one is never
//! used. What is in place is never changed again; every sandbox of that shape maps it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandling_image::{ContentId, Image, Progress, Untrusted, check_trusted, check_trusted_files};
use sandling_protocol::{Language, Request};
use sandling_vmm::accelerator::Accelerator;
use sandling_vmm::disk::{DiskError, DiskFormat, create_overlay};
use sandling_vmm::machine::{
    DEVICE_MODEL, Disk, Hardware, Machine, MachineConfig, MachineDir, MachineError, Start, emulator_fingerprint,
};
use serde::{Deserialize, Serialize};

use super::desktop::{self, DesktopError};
use super::exercise::{EXERCISES, exercise};
use super::factory::MachineFactory;
use super::identify::{IdentifyError, identify};
use super::ready::ENGINE_FILE;
use super::services::warm;
use super::source::root_layer;
use super::ticks;
use crate::link::{Link, LinkError};
use crate::model::{DISK, SandboxId};

/// A kernel under emulation on a busy host takes its time.
pub(super) const BOOT_WITHIN: Duration = Duration::from_secs(180);
/// Raised when a bake of an older program could not be restored by this one.
const FORMAT: u32 = 2;
/// Where a machine finds the layers of its disk.
const LAYERS: &str = sandling_vmm::jail::LAYERS;
const MANIFEST: &str = "baked.json";
/// The longest manifest that is read from a bake of another host.
const LONGEST_MANIFEST: u64 = 1 << 20;

/// Options that make a guest start faster or survive: no delays, a panic ends the machine at once, and nothing is
/// accounted or checked on every call that nobody in a sandbox looks at.
///
/// `mitigations=off` is for emulated guests only. The instructions and registers by which a kernel keeps programs from
/// reading its memory through a processor's speculation have no effect on the host's processor there, and only cost
/// time. Under KVM they protect the guest's kernel and users from each other.
const EMULATED: &str = "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t tsc=reliable no_timer_check \
    random.trust_cpu=on cgroup_no_v1=all mitigations=off nmi_watchdog=0 audit=0 psi=0 lsm=landlock \
    init_on_alloc=0";
const ON_KVM: &str = "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t tsc=reliable no_timer_check \
    random.trust_cpu=on cgroup_no_v1=all nmi_watchdog=0 audit=0 psi=0 lsm=landlock init_on_alloc=0";
/// Every command line that a version had, as it was: snapshots stand on bakes of older versions, too. Earlier versions
/// had the first one under KVM, too.
const COMMAND_LINES: [&str; 2] = [EMULATED, ON_KVM];

fn options(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Tcg => EMULATED,
        Accelerator::Kvm => ON_KVM,
    }
}

/// With the speed of what an emulated guest takes for its clock.
pub(super) async fn command_line(hardware: &Hardware) -> String {
    let options = options(hardware.accelerator);
    match ticks::khz().await.filter(|_| hardware.accelerator == Accelerator::Tcg) {
        Some(khz) => format!("{options} tsc_early_khz={khz}"),
        None => options.to_owned(),
    }
}

/// One step of a long piece of work, for progress reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub text: String,
    /// How far, of how much, where that is known.
    pub progress: Option<(u64, u64)>,
}

impl From<&Progress> for Step {
    fn from(progress: &Progress) -> Self {
        let text = match progress.detail.as_str() {
            "" => progress.step.title().to_owned(),
            detail => format!("{}: {detail}", progress.step.title()),
        };
        Self { text, progress: progress.total.map(|total| (progress.done, total)) }
    }
}

pub(crate) type OnStep<'a> = &'a (dyn Fn(Step) + Send + Sync);

#[derive(Debug, thiserror::Error)]
pub enum BakeError {
    #[error("a file of the bake cannot be written; is the disk full?")]
    Files(#[from] std::io::Error),
    #[error("the machine failed")]
    Machine(#[from] MachineError),
    #[error("its disk could not be made")]
    Disk(#[from] DiskError),
    #[error("the guest failed")]
    Guest(#[from] LinkError),
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    #[error("the guest did not come up; its console ended with: {console}")]
    Boot { source: LinkError, console: String },
    #[error("its desktop did not start")]
    Desktop(#[from] DesktopError),
    #[error("the work was cut off")]
    CutOff,
    #[error("the snapshot at {0} is damaged; build the template again with --force")]
    Damaged(PathBuf),
    #[error("the template's snapshot cannot be trusted")]
    Untrusted(#[from] Untrusted),
}

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

/// The bake of this image for this hardware; made now on behalf of a workspace if there is none.
pub(crate) async fn ensure(
    factory: &MachineFactory,
    image: &Image,
    hardware: &Hardware,
    workspace: &str,
    on_step: OnStep<'_>,
) -> Result<Baked, BakeError> {
    let place = image.baked_dir(&key(hardware));
    if let Some(baked) = Baked::load(&place)? {
        return Ok(baked);
    }
    let work = factory.sandboxes.join(format!("bake-{}", uuid::Uuid::new_v4().simple()));
    let result = match bake(factory, image, hardware, &work, on_step).await {
        Ok(unfinished) => finish(unfinished, image, hardware, workspace).await,
        Err(error) => Err(error),
    };
    let published = match result {
        // If another process was faster, its bake is as good as ours.
        Ok(finished) => publish(&finished, &place),
        Err(error) => Err(error),
    };
    let _ = fs::remove_dir_all(&work);
    published?;
    Baked::load(&place)?.ok_or(BakeError::Damaged(place))
}

/// Moves a finished bake to its place, which may lie on another file system.
fn publish(finished: &Path, place: &Path) -> Result<(), BakeError> {
    if let Err(error) = sandling_image::publish_dir(finished, place) {
        if error.kind() != std::io::ErrorKind::CrossesDevices {
            return Err(error.into());
        }
        let beside = place.with_extension(format!("tmp-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir_all(&beside)?;
        for entry in fs::read_dir(finished)?.flatten() {
            fs::copy(entry.path(), beside.join(entry.file_name()))?;
        }
        sandling_image::publish_dir(&beside, place)?;
    }
    Ok(())
}

async fn bake(
    factory: &MachineFactory,
    image: &Image,
    hardware: &Hardware,
    work: &Path,
    on_step: OnStep<'_>,
) -> Result<Unfinished, BakeError> {
    let step = |text: &str| on_step(Step { text: text.to_owned(), progress: None });
    let recipe = &image.manifest.recipe;
    fs::create_dir_all(work)?;
    fs::write(work.join(ENGINE_FILE), &factory.engine)?;
    let dir = MachineDir::new(work);
    dir.create()?;
    let files = dir.files();
    let disk_bytes = u64::from(recipe.disk_mib) << 20;
    let root = root_layer(image);
    create_overlay(&files.join(DISK), &format!("{LAYERS}/{}", root.name), DiskFormat::Raw, disk_bytes).await?;

    step(&format!("booting it once under {}", hardware.accelerator));
    let config = MachineConfig {
        dir: dir.clone(),
        hardware: hardware.clone(),
        start: Start::Boot {
            kernel: image.kernel(),
            initrd: image.initrd(),
            command_line: command_line(hardware).await,
            over: None,
        },
        disk: Disk { overlay: DISK.to_owned(), backing: vec![root] },
        jail: factory.jail(hardware, recipe.disk_mib, 0),
        qemu: MachineConfig::QEMU.into(),
        deadline_ms: None,
        plugs: Vec::new(),
    };
    let machine = Machine::boot(config).await?;
    let saved = warm_and_save(&machine, image, on_step).await;
    let ended = if saved.is_ok() { machine.quit().await } else { machine.end().await };
    let warm = saved?;
    ended?;

    Ok(Unfinished { files, warm })
}

/// The files of a machine that was saved, without what a restore needs besides.
struct Unfinished {
    files: PathBuf,
    /// The languages whose interpreters are warm.
    warm: Vec<Language>,
}

/// What a bake's manifest says about how it was made.
struct Provenance {
    workspace: Option<String>,
    warm: Vec<Language>,
}

async fn finish(
    unfinished: Unfinished,
    image: &Image,
    hardware: &Hardware,
    workspace: &str,
) -> Result<PathBuf, BakeError> {
    let Unfinished { files, warm } = unfinished;
    let recipe = &image.manifest.recipe;
    let id = uuid::Uuid::new_v4().simple().to_string();
    let (overlay, disk_bytes) = (files.join("overlay.qcow2"), u64::from(recipe.disk_mib) << 20);
    create_overlay(&overlay, &format!("{LAYERS}/baked-{id}"), DiskFormat::Qcow2, disk_bytes).await?;
    let own_size = (hardware.vcpus, hardware.memory_mib) == (recipe.vcpus, recipe.memory_mib);
    let provenance = Provenance { workspace: (!own_size).then(|| workspace.to_owned()), warm };
    write_manifest(&files, id, hardware, provenance)?;
    Ok(files)
}

/// Returns the languages whose interpreters are warm.
async fn warm_and_save(machine: &Machine, image: &Image, on_step: OnStep<'_>) -> Result<Vec<Language>, BakeError> {
    let step = |text: String| on_step(Step { text, progress: None });
    let link = match boot(machine).await {
        Ok(link) => link,
        Err(source) => return Err(BakeError::Boot { source, console: tail(&machine.dir().console_log()) }),
    };
    let recipe = &image.manifest.recipe;
    let languages = warm(&link, recipe, on_step).await?;
    step("exercising it".to_owned());
    exercise(&link, &languages, EXERCISES).await?;
    if let Some(desktop) = &recipe.desktop {
        step("starting its desktop".to_owned());
        desktop::start(&link, desktop).await?;
    }
    // A placeholder identity: every restore gets its own, and finds everything for that in place.
    identify(&link, &SandboxId::fresh(), 0, None, recipe.pids).await?;
    link.call_within(BOOT_WITHIN, Request::Sync).await?;
    step("saving it".to_owned());
    machine.stop().await?;
    drop(link);
    machine.save_state("state").await?;
    Ok(languages)
}

async fn boot(machine: &Machine) -> Result<Link, LinkError> {
    let cut = |error: &dyn std::error::Error| LinkError::Closed(error.to_string());
    let connection = machine.connect_control().await.map_err(|error| cut(&error))?;
    Link::greet(connection).await.map_err(|error| cut(&error))?.answered(BOOT_WITHIN).await
}

/// Keeps what a restore needs, makes it unchangeable, and describes it.
fn write_manifest(work: &Path, id: String, hardware: &Hardware, provenance: Provenance) -> Result<(), BakeError> {
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

/// The last lines of a console, for an error that helps.
fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(600)..]);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" | ")
}

#[cfg(test)]
mod tests {
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
    fn only_emulated_kernels_do_without_mitigations() {
        assert!(options(Accelerator::Tcg).contains(" mitigations=off "));
        assert!(!options(Accelerator::Kvm).contains("mitigations"));
        assert_eq!(ON_KVM, EMULATED.replace(" mitigations=off", ""), "nothing else differs");
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
