//! From a reference to a template.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use jiff::Timestamp;
use sandling_engine::{Step, stored_name};
use sandling_image::{OciImage, Recipe};
use sandling_oci::registry::Resolved;
use sandling_oci::{Config, Descriptor, Digest, JailError, LayerInput, Platform, Reference, open_image};

use super::disk::{self, UnpackFailure};
use super::error::ImageError;
use super::images_of_home::Images;
use super::progress::OnStep;
use super::rows::KnownImage;
use crate::admission::{AdmitError, Reservation, Resource};
use crate::workspaces::WorkspaceName;

/// For this long after a registry was asked what a tag means, it is not asked again.
const TAG_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// The longest stored name of a template, and the characters of it that come from digests.
const LONGEST_NAME: usize = 64;
const DIGITS: usize = 12;
/// Reported progress is in MiB.
const MIB: u64 = 1 << 20;

/// An image whose registry has told what it is. Its layers may not have been fetched.
pub struct NamedImage {
    reference: Reference,
    resolved: Resolved,
}

impl NamedImage {
    pub fn digest(&self) -> &Digest {
        &self.resolved.digest
    }

    /// How to run its program.
    pub fn config(&self) -> Config {
        self.resolved.config.config.clone().unwrap_or_default()
    }
}

/// An image whose layers are at hand.
struct OpenedImage {
    reference: String,
    digest: Digest,
    config: Config,
    layers: Vec<LayerInput>,
}

impl Images {
    /// The template of an image, which is pulled unless the workspace has it. If the caller goes away, the pull goes on.
    pub async fn template(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        image: &str,
        on_step: OnStep,
    ) -> Result<String, ImageError> {
        let reference: Reference = image.parse()?;
        if let Some(known) = self.known(workspace, &reference)?.filter(|known| is_current(&reference, known)) {
            return Ok(known.template);
        }
        let (images, workspace, image) = (self.clone(), workspace.clone(), image.to_owned());
        let pulling = tokio::spawn(async move { images.pull(&workspace, &image, reference, on_step).await });
        pulling.await.unwrap_or(Err(ImageError::CutOff))
    }

    /// Asks the registry what a reference means.
    pub async fn resolve(&self, workspace: &WorkspaceName, image: &str) -> Result<NamedImage, ImageError> {
        let reference: Reference = image.parse()?;
        let platform = Platform { architecture: "amd64".to_owned(), os: "linux".to_owned(), variant: None };
        let resolved = self.client(workspace)?.resolve(&reference, &platform).await?;
        Ok(NamedImage { reference, resolved })
    }

    async fn pull(
        &self,
        workspace: &WorkspaceName,
        image: &str,
        reference: Reference,
        on_step: OnStep,
    ) -> Result<String, ImageError> {
        let running = self.pulls.begin(workspace, image);
        let on_step = running.observe(on_step);
        let _turn = self.locks.acquire(&format!("{workspace} {reference}")).await;
        let known = self.known(workspace, &reference)?;
        if let Some(known) = known.as_ref().filter(|known| is_current(&reference, known)) {
            return Ok(known.template.clone());
        }
        on_step(step(format!("asking {} for {image}", reference.registry())));
        let named = match (self.resolve(workspace, image).await, known) {
            // The tag's last meaning is better than none while the registry is down or limits the rate.
            (Err(ImageError::Registry(error)), Some(known)) if error.is_transient() => {
                tracing::warn!(
                    image,
                    error = &error as &dyn std::error::Error,
                    "using the template that was made before"
                );
                return Ok(known.template);
            }
            (resolved, _) => resolved?,
        };
        self.ensure(workspace, &named, on_step).await
    }

    /// The template of an image that was resolved, which is made unless the workspace has it.
    pub async fn ensure(
        &self,
        workspace: &WorkspaceName,
        image: &NamedImage,
        on_step: OnStep,
    ) -> Result<String, ImageError> {
        let digest = &image.resolved.digest;
        let name = template_name(workspace, &image.reference.to_string(), digest);
        let _turn = self.locks.acquire(&format!("{workspace} {digest}")).await;
        if !self.has_template(workspace, &name, digest) {
            let _slot = self.slots.acquire(workspace.as_str()).await;
            let manifest = &image.resolved.manifest;
            let total = unique(&manifest.layers).map(|layer| layer.size).sum();
            let reservation = self.reserve(workspace, total).await?;
            let layers = self.fetch(workspace, image, total, &on_step).await?;
            let opened = OpenedImage {
                reference: image.reference.to_string(),
                digest: digest.clone(),
                config: image.config(),
                layers,
            };
            let built = self.build(workspace, &name, opened, on_step).await;
            drop(reservation);
            if let Err(ImageError::Unpack { source: JailError::Refused { .. }, .. }) = &built {
                manifest.layers.iter().for_each(|layer| self.layers.remove(&layer.digest));
            }
            self.layers.trim();
            built?;
        }
        self.store.put_known_image(workspace, &image.reference.to_string(), digest, &name)?;
        Ok(name)
    }

    /// The template of an image in a file or directory of this host: `docker save`, `podman save`, an OCI layout, or an
    /// archive of a root file system.
    pub async fn template_of_file(
        &self,
        workspace: &WorkspaceName,
        path: &Path,
        on_step: OnStep,
    ) -> Result<String, ImageError> {
        on_step(step(format!("reading {}", path.display())));
        let owned = path.to_owned();
        let opening = tokio::task::spawn_blocking(move || open_image(&owned));
        let image = opening.await.map_err(|_| ImageError::CutOff)??;
        let reference = path.display().to_string();
        let name = template_name(workspace, &reference, &image.digest);
        let _turn = self.locks.acquire(&format!("{workspace} {}", image.digest)).await;
        if !self.has_template(workspace, &name, &image.digest) {
            let total = image.layers.iter().map(|layer| layer.length).sum();
            let reservation = self.reserve(workspace, total).await?;
            let config = image.config.config.unwrap_or_default();
            let opened = OpenedImage { reference, digest: image.digest, config, layers: image.layers };
            self.build(workspace, &name, opened, on_step).await?;
            drop(reservation);
        }
        Ok(name)
    }

    /// The template of an empty image, for Dockerfiles that begin with nothing.
    pub async fn scratch(&self, workspace: &WorkspaceName, on_step: OnStep) -> Result<String, ImageError> {
        let (reference, digest) = ("scratch".to_owned(), Digest::of(b"scratch"));
        let name = template_name(workspace, &reference, &digest);
        let _turn = self.locks.acquire(&format!("{workspace} {digest}")).await;
        if !self.has_template(workspace, &name, &digest) {
            let reservation = self.reserve(workspace, 0).await?;
            let opened = OpenedImage { reference, digest, config: Config::default(), layers: Vec::new() };
            self.build(workspace, &name, opened, on_step).await?;
            drop(reservation);
        }
        Ok(name)
    }

    /// The template that a reference meant when its registry was last asked, if the template exists.
    fn known(&self, workspace: &WorkspaceName, reference: &Reference) -> Result<Option<KnownImage>, ImageError> {
        let known = self.store.known_image(workspace, &reference.to_string())?;
        let is_there = |known: &KnownImage| {
            known.digest.parse().is_ok_and(|digest| self.has_template(workspace, &known.template, &digest))
        };
        Ok(known.filter(is_there))
    }

    fn has_template(&self, workspace: &WorkspaceName, name: &str, digest: &Digest) -> bool {
        let image = self.engine.machines().oci_image(workspace.as_str(), name);
        image.is_some_and(|image| image.digest == *digest)
    }

    /// Reserves space for the layers, the root disk and the bake. Layers, templates of images and bakes that nothing needs
    /// make room.
    async fn reserve(&self, workspace: &WorkspaceName, compressed_bytes: u64) -> Result<Reservation, ImageError> {
        // Layers compress to about a third. What the disk really takes counts once it is made.
        let needed_mib = compressed_bytes.div_ceil(MIB).saturating_mul(4) + u64::from(Recipe::OCI_MEMORY_MIB);
        let reserve = || self.sandboxes.reserve_disk(workspace, needed_mib);
        match reserve().await {
            Err(AdmitError::Refused(refused)) if refused.what == Resource::DiskMib => {
                self.layers.evict(workspace);
            }
            reserved => return Ok(reserved?),
        }
        Ok(self.sandboxes.with_room(workspace, reserve).await?)
    }

    async fn fetch(
        &self,
        workspace: &WorkspaceName,
        image: &NamedImage,
        total: u64,
        on_step: &OnStep,
    ) -> Result<Vec<LayerInput>, ImageError> {
        let (client, received) = (self.client(workspace)?, Mutex::new(BTreeMap::new()));
        let resolved = &image.resolved;
        let count = resolved.manifest.layers.len();
        let progress = |layer: &Descriptor, bytes: u64| {
            let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
            let before = received.insert(layer.digest.clone(), bytes).unwrap_or_default();
            if before / MIB != bytes / MIB || bytes == layer.size {
                let sum: u64 = received.values().sum();
                let text = format!("downloading {count} layers, MiB");
                on_step(Step { text, progress: Some((sum / MIB, total.div_ceil(MIB))) });
            }
        };
        let layers = unique(&resolved.manifest.layers);
        let files = try_join_all(layers.map(async |layer| {
            let file = self.layers.ensure(&client, &image.reference, layer, workspace, &progress).await?;
            Ok::<_, ImageError>((layer.digest.clone(), file))
        }));
        let files: BTreeMap<_, _> = files.await?.into_iter().collect();
        let described = resolved.manifest.layers.iter().zip(&resolved.config.rootfs.diff_ids);
        let inputs = described.map(|(layer, diff_id)| {
            let file = files[&layer.digest].try_clone()?;
            LayerInput::whole_file(file, &layer.media_type, layer.digest.clone(), diff_id.clone())
        });
        inputs.collect::<Result<_, _>>().map_err(ImageError::File)
    }

    /// Makes the root disk and the template. If that fails, there is neither.
    async fn build(
        &self,
        workspace: &WorkspaceName,
        name: &str,
        image: OpenedImage,
        on_step: OnStep,
    ) -> Result<(), ImageError> {
        let stored = stored_name(workspace.as_str(), name).map_err(sandling_engine::TemplateError::from)?;
        let digest_of = |layer: &LayerInput| layer.digest.clone().or(layer.diff_id.clone());
        let oci = OciImage {
            reference: image.reference.clone(),
            digest: image.digest.clone(),
            blobs: image.layers.iter().filter_map(digest_of).collect(),
            layers: image.layers.iter().filter_map(|layer| layer.diff_id.clone().or(digest_of(layer))).collect(),
            config: image.config.clone(),
        };
        let sizes = disk::disk_sizes(image.layers.iter().map(|layer| layer.length).sum());
        let mut recipe = Recipe::of_oci(stored, oci);
        let layers = Arc::new(image.layers);
        let unfinished = self.layers.unfinished()?;
        for (at, disk_mib) in sizes.iter().enumerate() {
            recipe.disk_mib = *disk_mib;
            if self.engine.machines().has_root(&recipe).map_err(sandling_engine::TemplateError::from)? {
                break;
            }
            let (launcher, layers, steps) = (self.engine.config().launcher.clone(), layers.clone(), on_step.clone());
            let (out, disk_mib) = (unfinished.path().to_owned(), *disk_mib);
            let working_dir = image.config.working_dir.clone();
            let unpacking = tokio::task::spawn_blocking(move || {
                let _ = std::fs::remove_file(&out);
                disk::unpack(launcher, &layers, &out, disk_mib, working_dir.as_deref(), &steps)
            });
            match unpacking.await.map_err(|_| ImageError::CutOff)? {
                Ok(()) => break,
                Err(UnpackFailure::DiskTooSmall) if at + 1 < sizes.len() => continue,
                Err(failure) => return Err(failure.of_image(&image.reference, disk_mib)),
            }
        }
        let made = unfinished.path().to_owned();
        let steps = on_step.clone();
        let built = self.engine.machines().build_oci_template(
            recipe,
            move |path, _| disk::place(&made, path),
            move |step| steps(step),
        );
        if let Err(error) = built.await {
            // It has its name before it is baked.
            let _ = self.engine.remove_template(workspace.as_str(), name).await;
            return Err(error.into());
        }
        Ok(())
    }
}

/// Whether a tag's meaning is recent enough. A digest means the same forever.
fn is_current(reference: &Reference, known: &KnownImage) -> bool {
    let age = Timestamp::now().duration_since(known.resolved_at);
    reference.digest().is_some() || age.unsigned_abs() < TAG_LIFETIME
}

/// Each layer once: an image may contain the same one several times.
fn unique(layers: &[Descriptor]) -> impl Iterator<Item = &Descriptor> {
    let by_digest: BTreeMap<_, _> = layers.iter().map(|layer| (&layer.digest, layer)).collect();
    by_digest.into_values()
}

/// A readable name that is different for each reference and digest: `python-3.12-slim-0123456789ab`.
fn template_name(workspace: &WorkspaceName, reference: &str, digest: &Digest) -> String {
    let identity = Digest::of(format!("{reference} {digest}").as_bytes());
    let last = reference.split('@').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let plain = |char: char| if char.is_ascii_alphanumeric() || "._-".contains(char) { char } else { '-' };
    // Stored names of other workspaces are `w.WORKSPACE.NAME`.
    let room = LONGEST_NAME.saturating_sub(workspace.as_str().len() + 3 + DIGITS + 1).min(24);
    let last: String = last.chars().map(plain).skip_while(|char| !char.is_ascii_alphanumeric()).take(room).collect();
    let digits = &identity.hex()[..DIGITS];
    if last.is_empty() { format!("image-{digits}") } else { format!("{last}-{digits}") }
}

fn step(text: String) -> Step {
    Step { text, progress: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::workspace;

    #[test]
    fn names_are_readable_and_different_for_each_reference_and_digest() {
        let (own, team) = (WorkspaceName::default(), workspace("team"));
        let (one, other) = (Digest::of(b"1"), Digest::of(b"2"));
        let name = template_name(&own, "docker.io/library/python:3.12-slim", &one);
        assert!(name.starts_with("python-3.12-slim-") && name.len() == 29, "{name}");
        assert_eq!(name, template_name(&team, "docker.io/library/python:3.12-slim", &one));
        assert_ne!(name, template_name(&own, "docker.io/library/python:3.12-slim", &other));
        assert_ne!(name, template_name(&own, "ghcr.io/me/python:3.12-slim", &one));
        let long = workspace(&"w".repeat(40));
        for reference in ["/tmp/_.tar", "x/--", "localhost:5000/a/very-long-name-of-an-image-that-goes-on:and-on"] {
            for workspace in [&own, &long] {
                let name = template_name(workspace, reference, &one);
                assert!(stored_name(workspace.as_str(), &name).is_ok(), "{name}");
            }
        }
    }

    #[test]
    fn a_digest_is_never_asked_for_again_and_a_tag_after_a_while() {
        let digest = Digest::of(b"1");
        let known = |minutes: i64| KnownImage {
            digest: digest.to_string(),
            template: "x".to_owned(),
            resolved_at: Timestamp::now() - jiff::SignedDuration::from_mins(minutes),
        };
        let tag: Reference = "python:3".parse().unwrap();
        let pinned = tag.with_digest(digest.clone());
        assert!(is_current(&tag, &known(1)) && !is_current(&tag, &known(6)));
        assert!(is_current(&pinned, &known(1_000_000)));
    }
}
