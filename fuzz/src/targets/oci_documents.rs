//! What registries and layouts send before any layer: names, indexes, manifests and configurations.

use sandling_oci::{Digest, ImageConfig, Index, Manifest, Reference};

use crate::input::text;

pub fn run(data: &[u8]) {
    if let Ok(manifest) = serde_json::from_slice::<Manifest>(data) {
        let again = serde_json::to_vec(&manifest).expect("a manifest is JSON");
        assert_eq!(serde_json::from_slice::<Manifest>(&again).ok(), Some(manifest));
    }
    let _ = serde_json::from_slice::<Index>(data);
    if let Ok(config) = serde_json::from_slice::<ImageConfig>(data) {
        let again = serde_json::to_vec(&config).expect("a configuration is JSON");
        assert_eq!(serde_json::from_slice::<ImageConfig>(&again).ok(), Some(config));
    }
    for line in text(data).into_iter().flat_map(str::lines) {
        if let Ok(reference) = line.parse::<Reference>() {
            let inside = reference.repository().split('/').all(|part| part != "..");
            assert!(inside && !reference.registry().contains('/'), "{reference}");
            assert_eq!(reference.to_string().parse::<Reference>().ok(), Some(reference));
        }
        if let Ok(digest) = line.parse::<Digest>() {
            assert!(!digest.as_str().contains('/'), "{digest}");
        }
    }
}
