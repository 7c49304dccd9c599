use std::sync::Mutex;

use serde_json::{Value, json};

use super::image::{INDEX, Image, MANIFEST, descriptor, entry, image, image_for, platform};
use super::server::{Answer, Server, client};
use crate::digest::Digest;

fn with_platform(mut entry: Value, os: &str, architecture: &str) -> Value {
    entry["platform"] = json!({"os": os, "architecture": architecture});
    entry
}

fn index(entries: &[Value]) -> Vec<u8> {
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string().into_bytes()
}

async fn error_of(manifest: Vec<u8>) -> String {
    let server = Server::start(move |_| Answer::ok(&manifest)).await;
    client().resolve(&server.reference(), &platform()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn an_image_resolves_to_its_manifest_and_configuration() {
    let image = image();
    let served = image.clone();
    let server = Server::start(move |seen| served.answer(seen)).await;
    let resolved = client().resolve(&server.reference(), &platform()).await.unwrap();
    assert_eq!(resolved.digest, Digest::of(&image.manifest));
    assert_eq!((&resolved.manifest_bytes, &resolved.config_bytes), (&image.manifest, &image.config));
    assert_eq!(resolved.manifest.layers[0].digest, descriptor(&image.layer).digest);
    assert_eq!(resolved.config.architecture, "amd64");
    assert!(server.seen()[0].header("accept").unwrap().contains(INDEX));
    let pinned = server.reference().with_digest(resolved.digest.clone());
    assert_eq!(client().resolve(&pinned, &platform()).await.unwrap().digest, resolved.digest);
}

#[tokio::test]
async fn nested_indexes_lead_to_the_platform() {
    let (image, other) = (image(), image_for("linux", "arm64"));
    let inner = index(&[
        with_platform(entry(MANIFEST, &other.manifest), "linux", "arm64"),
        with_platform(entry(MANIFEST, b"attestation"), "unknown", "unknown"),
        with_platform(entry(MANIFEST, &image.manifest), "linux", "amd64"),
    ]);
    let outer = index(&[entry(INDEX, &inner)]);
    let served = image.clone();
    let server = Server::start(move |seen| match seen.path.rsplit('/').next().unwrap() {
        "1" => Answer::ok(&outer),
        digest if digest == Digest::of(&inner).as_str() => Answer::ok(&inner),
        _ => served.answer(seen),
    })
    .await;
    let resolved = client().resolve(&server.reference(), &platform()).await.unwrap();
    assert_eq!(resolved.digest, Digest::of(&image.manifest));
}

#[tokio::test]
async fn a_missing_platform_is_refused_with_the_platforms_that_there_are() {
    let why = error_of(index(&[
        with_platform(entry(MANIFEST, b"a"), "windows", "amd64"),
        with_platform(entry(MANIFEST, b"b"), "linux", "arm64"),
        with_platform(entry(MANIFEST, b"c"), "unknown", "unknown"),
    ]))
    .await;
    assert!(why.ends_with("is not made for linux/amd64; there is linux/arm64, windows/amd64"), "{why}");
    let arm = image_for("linux", "arm64");
    let server = Server::start(move |seen| arm.answer(seen)).await;
    let why = client().resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
    assert!(why.ends_with("is not made for linux/amd64; there is linux/arm64"), "{why}");
}

#[tokio::test]
async fn documents_of_other_kinds_are_refused_by_name() {
    let image = image();
    let mut manifest: Value = serde_json::from_slice(&image.manifest).unwrap();
    manifest["config"]["mediaType"] = json!("application/vnd.cncf.helm.config.v1+json");
    let why = error_of(manifest.to_string().into_bytes()).await;
    assert!(why.contains("artifact of type application/vnd.cncf.helm.config.v1+json"), "{why}");
    manifest["manifests"] = json!([]);
    let why = error_of(manifest.to_string().into_bytes()).await;
    assert!(why.contains("also an index"), "{why}");
    let why = error_of(br#"{"schemaVersion": 1, "fsLayers": []}"#.to_vec()).await;
    assert!(why.contains("schema version 1"), "{why}");
    for strange in ["", "{}", "[]", "<html>", r#"{"manifests": 5}"#, r#"{"layers": [], "config": null}"#] {
        let why = error_of(strange.as_bytes().to_vec()).await;
        assert!(why.contains("is not a usable image"), "{strange}: {why}");
    }
}

#[tokio::test]
async fn indexes_nested_too_deeply_are_refused() {
    let innermost = index(&[with_platform(entry(INDEX, b"x"), "linux", "amd64")]);
    let mut chain = vec![innermost];
    for _ in 0..6 {
        let inner = chain.last().unwrap().clone();
        chain.push(index(&[with_platform(entry(INDEX, &inner), "linux", "amd64")]));
    }
    let chain = Mutex::new(chain);
    let server = Server::start(move |_| Answer::ok(&chain.lock().unwrap().pop().unwrap())).await;
    let why = client().resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
    assert!(why.contains("nested more than 4 deep"), "{why}");
}

#[tokio::test]
async fn layers_and_configuration_must_agree() {
    let mut image = image();
    let mut manifest: Value = serde_json::from_slice(&image.manifest).unwrap();
    manifest["layers"] = json!([]);
    image.manifest = manifest.to_string().into_bytes();
    let server = Server::start(move |seen| image.answer(seen)).await;
    let why = client().resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
    assert!(why.contains("its manifest has 0 layers, but its configuration lists 1"), "{why}");
}

#[tokio::test]
async fn an_image_without_layers_may_say_null() {
    let config = br#"{"os": "linux", "architecture": "amd64", "history": null, "rootfs": {"diff_ids": null}}"#.to_vec();
    let manifest = json!({"config": entry("", &config), "layers": null, "annotations": null});
    let image = Image { config, layer: Vec::new(), manifest: manifest.to_string().into_bytes() };
    let server = Server::start(move |seen| image.answer(seen)).await;
    let resolved = client().resolve(&server.reference(), &platform()).await.unwrap();
    assert!(resolved.manifest.layers.is_empty());
}
