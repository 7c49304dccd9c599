//! The manifests of images and bakes, in a directory that others may write to.

use sandling_engine::fuzzing::is_bake_manifest;
use sandling_image::fuzzing::read_manifest;
use sandling_image::{ContentId, TemplateName};

use crate::input::text;

pub fn run(data: &[u8]) {
    if let Some(manifest) = read_manifest(data) {
        manifest.size();
        let again = serde_json::to_vec(&manifest).expect("a manifest is JSON");
        assert_eq!(read_manifest(&again), Some(manifest));
    }
    is_bake_manifest(data);
    if let Some(text) = text(data) {
        for name in text.lines() {
            if let Ok(name) = name.parse::<TemplateName>() {
                assert!(!name.as_str().contains('/') && !name.as_str().starts_with('.'), "{name:?}");
            }
            if let Ok(id) = name.parse::<ContentId>() {
                assert!(id.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()), "{id:?}");
            }
        }
    }
}
