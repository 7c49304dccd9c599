//! A small image, and the server that hands it out.

use serde_json::{Value, json};

use super::server::{Answer, Seen};
use crate::digest::Digest;
use crate::spec::{Descriptor, Platform};

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";

#[derive(Clone)]
pub struct Image {
    pub config: Vec<u8>,
    pub layer: Vec<u8>,
    pub manifest: Vec<u8>,
}

pub fn platform() -> Platform {
    Platform { architecture: "amd64".to_owned(), os: "linux".to_owned(), variant: None }
}

pub fn entry(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": Digest::of(bytes), "size": bytes.len()})
}

pub fn descriptor(bytes: &[u8]) -> Descriptor {
    serde_json::from_value(entry("", bytes)).unwrap()
}

pub fn image() -> Image {
    image_for("linux", "amd64")
}

pub fn image_for(os: &str, architecture: &str) -> Image {
    let layer: Vec<u8> = (0..100_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let diff_ids = [Digest::of(b"uncompressed")];
    let config = json!({"os": os, "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": diff_ids}});
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": entry("application/vnd.oci.image.config.v1+json", &config),
        "layers": [entry("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
    });
    Image { config, layer, manifest: manifest.to_string().into_bytes() }
}

impl Image {
    /// Answers as a registry does that has this image under every tag.
    pub fn answer(&self, seen: &Seen) -> Answer {
        let last = seen.path.rsplit('/').next().unwrap();
        let documents = [&self.config, &self.layer, &self.manifest];
        let found = documents.into_iter().find(|bytes| Digest::of(bytes).as_str() == last);
        match found {
            Some(bytes) if seen.method == "HEAD" => {
                Answer::new(200, &[("content-length", &bytes.len().to_string())], b"")
            }
            Some(bytes) => Answer::ok(bytes),
            None if seen.path.contains("/manifests/") && !last.contains(':') => Answer::ok(&self.manifest),
            None => Answer::new(404, &[], b""),
        }
    }
}
