//! Baking: an image is booted once, warmed and exercised, and its machine saved while it stands still.
//!
//! A bake is made in a directory of its own and moved into place when it is whole, so a half-made one is never
//! used. What is in place is never changed again; every sandbox of that shape maps it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandling_image::Image;
use sandling_protocol::{Language, Request};
use sandling_vmm::disk::{DiskFormat, create_overlay};
use sandling_vmm::machine::{Disk, Hardware, Machine, MachineConfig, MachineDir, Start};

use super::baked::{Baked, Provenance, key, write_manifest};
use super::command_line::command_line;
use super::desktop;
use super::error::BakeError;
use super::exercise::{EXERCISES, exercise};
use super::factory::MachineFactory;
use super::identify::identify;
use super::ready::ENGINE_FILE;
use super::services::warm;
use super::source::root_layer;
use super::step::{OnStep, Step};
use crate::link::{Link, LinkError};
use crate::model::{DISK, SandboxId};

/// A kernel under emulation on a busy host takes its time.
pub(super) const BOOT_WITHIN: Duration = Duration::from_secs(180);
/// Where a machine finds the layers of its disk.
const LAYERS: &str = sandling_vmm::jail::LAYERS;

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

/// The last lines of a console, for an error that helps.
fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(600)..]);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" | ")
}
