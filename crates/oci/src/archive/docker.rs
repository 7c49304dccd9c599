//! The format of `docker save` before version 25, which `podman save` writes by default.

use serde::Deserialize;

use super::error::ArchiveError;
use super::open::{Image, check_platform};
use super::store::{Store, parse};
use crate::digest::Digest;
use crate::layers::LayerInput;
use crate::spec::ImageConfig;

const MANIFEST: &str = "manifest.json";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Vec<String>,
}

pub(super) fn read(store: &Store) -> Result<Image, ArchiveError> {
    let images: Vec<SavedImage> = parse(MANIFEST, &store.document(MANIFEST)?)?;
    let [image] = images.as_slice() else {
        let names: Vec<String> = images
            .iter()
            .map(|image| image.repo_tags.iter().flatten().next().unwrap_or(&image.config).clone())
            .collect();
        return Err(ArchiveError::SeveralImages { count: images.len(), names: names.join(", ") });
    };
    let document = store.document(&image.config)?;
    let config: ImageConfig = parse(&image.config, &document)?;
    check_platform(&config)?;
    let diff_ids = &config.rootfs.diff_ids;
    if diff_ids.len() != image.layers.len() {
        return Err(ArchiveError::LayerCount { layers: image.layers.len(), diff_ids: diff_ids.len() });
    }
    let layers = image.layers.iter().zip(diff_ids).map(|(name, diff_id)| {
        let (file, range) = store.open(name)?;
        Ok(LayerInput {
            file,
            offset: range.offset,
            length: range.length,
            media_type: String::new(),
            digest: None,
            diff_id: Some(diff_id.clone()),
        })
    });
    Ok(Image { layers: layers.collect::<Result<_, ArchiveError>>()?, digest: Digest::of(&document), config })
}
