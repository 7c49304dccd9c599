//! OCI layouts: `podman save --format oci-archive`, `skopeo copy … oci:`, and new versions of `docker save`.

use super::error::ArchiveError;
use super::open::{Image, check_platform};
use super::store::{Store, blob_name, parse};
use crate::digest::Digest;
use crate::layers::LayerInput;
use crate::spec::{Descriptor, ImageConfig, Index, Manifest};

/// An index may list indexes, but not forever.
const MOST_INDEXES: usize = 4;

const INDEX_TYPES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];

pub(super) fn read(store: &Store) -> Result<Image, ArchiveError> {
    let mut index: Index = parse("index.json", &store.document("index.json")?)?;
    for _ in 0..MOST_INDEXES {
        let chosen = choose(&index)?;
        let bytes = store.blob(chosen)?;
        let name = blob_name(&chosen.digest);
        if INDEX_TYPES.contains(&chosen.media_type.as_str()) {
            index = parse(&name, &bytes)?;
            continue;
        }
        return image(store, parse(&name, &bytes)?, chosen.digest.clone());
    }
    Err(ArchiveError::BadDocument { name: "index.json".into(), reason: "its indexes are nested too deep".into() })
}

/// The one manifest for linux/amd64. One without a platform is checked when its configuration is read.
fn choose(index: &Index) -> Result<&Descriptor, ArchiveError> {
    let platform = |descriptor: &Descriptor| match &descriptor.platform {
        Some(platform) => format!("{}/{}", platform.os, platform.architecture),
        None => "linux/amd64".to_owned(),
    };
    // Attestations of a build have an unknown platform.
    let images = index.manifests.iter().filter(|one| platform(one) != "unknown/unknown");
    let (fitting, others): (Vec<_>, Vec<_>) = images.partition(|one| platform(one) == "linux/amd64");
    let mut digests: Vec<_> = fitting.iter().map(|one| &one.digest).collect();
    digests.sort();
    digests.dedup();
    match (fitting.as_slice(), digests.len()) {
        ([chosen, ..], 1) => Ok(chosen),
        ([], _) if others.is_empty() => {
            Err(ArchiveError::BadDocument { name: "index.json".into(), reason: "it lists no image".into() })
        }
        ([], _) => {
            let platforms: Vec<String> = others.iter().map(|one| platform(one)).collect();
            Err(ArchiveError::WrongPlatform { platforms: platforms.join(", ") })
        }
        (_, count) => {
            let name = |one: &&Descriptor| {
                let annotation = one.annotations.get("org.opencontainers.image.ref.name");
                annotation.cloned().unwrap_or_else(|| one.digest.to_string())
            };
            let names: Vec<String> = fitting.iter().map(name).collect();
            Err(ArchiveError::SeveralImages { count, names: names.join(", ") })
        }
    }
}

fn image(store: &Store, manifest: Manifest, digest: Digest) -> Result<Image, ArchiveError> {
    let name = blob_name(&manifest.config.digest);
    let config: ImageConfig = parse(&name, &store.blob(&manifest.config)?)?;
    check_platform(&config)?;
    let diff_ids = &config.rootfs.diff_ids;
    if diff_ids.len() != manifest.layers.len() {
        return Err(ArchiveError::LayerCount { layers: manifest.layers.len(), diff_ids: diff_ids.len() });
    }
    let layers = manifest.layers.iter().zip(diff_ids).map(|(layer, diff_id)| {
        let (file, range) = store.open(&blob_name(&layer.digest))?;
        Ok(LayerInput {
            file,
            offset: range.offset,
            length: range.length,
            media_type: layer.media_type.clone(),
            digest: Some(layer.digest.clone()),
            diff_id: Some(diff_id.clone()),
        })
    });
    Ok(Image { layers: layers.collect::<Result<_, ArchiveError>>()?, config, digest })
}
