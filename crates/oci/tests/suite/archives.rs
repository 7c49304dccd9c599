//! Images from files.

use std::fs;
use std::path::Path;

use sandling_oci::{Digest, Image, open_image, unpack};
use serde_json::{Value, json};
use tar::{Builder, Header};
use tempfile::TempDir;

use crate::support::{Disk, Layer, gzip, options};

fn config(architecture: &str, layers: &[&[u8]]) -> Vec<u8> {
    let diff_ids: Vec<String> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"Cmd": ["/app"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    config.to_string().into_bytes()
}

fn archive(path: &Path, files: &[(&str, &[u8])]) {
    let mut builder = Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    fs::write(path, builder.into_inner().unwrap()).unwrap();
}

fn unpacked(image: &Image) -> Disk {
    let disk = Disk::new();
    unpack(&image.layers, &disk.file, &options(16), &mut |_| ()).unwrap();
    disk.check();
    disk
}

fn error_of(path: &Path) -> String {
    open_image(path).unwrap_err().to_string()
}

/// Writes an OCI layout, and returns the descriptors of its manifests.
fn layout(directory: &Path, architectures: &[&str]) -> Vec<Value> {
    let blobs = directory.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).unwrap();
        json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest, "size": bytes.len()})
    };
    let plain = Layer::default().file("app", b"app").bytes();
    let layer = blob(&gzip(&plain));
    let manifests: Vec<Value> = architectures
        .iter()
        .map(|architecture| {
            let config = blob(&config(architecture, &[&plain]));
            let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
            let mut descriptor = blob(manifest.to_string().as_bytes());
            descriptor["mediaType"] = "application/vnd.oci.image.manifest.v1+json".into();
            descriptor["platform"] = json!({"os": "linux", "architecture": architecture});
            descriptor
        })
        .collect();
    fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    fs::write(directory.join("index.json"), json!({"manifests": manifests}).to_string()).unwrap();
    manifests
}

#[test]
fn a_layout_has_one_image_for_linux_amd64() {
    let directory = TempDir::new().unwrap();
    let manifests = layout(directory.path(), &["arm64", "amd64", "s390x"]);
    let image = open_image(directory.path()).unwrap();
    assert_eq!(json!(image.digest), manifests[1]["digest"]);
    assert_eq!(image.config.config.as_ref().unwrap().cmd, Some(vec!["/app".to_owned()]));
    assert_eq!(unpacked(&image).debugfs("cat /app"), "app");

    let other = TempDir::new().unwrap();
    layout(other.path(), &["arm64", "s390x"]);
    let error = error_of(other.path());
    assert_eq!(error, "the image is for linux/arm64, linux/s390x; only linux/amd64 can run here");
}

#[test]
fn a_layout_whose_documents_were_changed_is_refused() {
    let directory = TempDir::new().unwrap();
    let manifests = layout(directory.path(), &["amd64"]);
    let digest = manifests[0]["digest"].as_str().unwrap();
    let blob = directory.path().join("blobs/sha256").join(&digest["sha256:".len()..]);
    fs::write(&blob, "{}").unwrap();
    assert_eq!(
        error_of(directory.path()),
        format!("the content of `{digest}` in the image archive does not match its digest")
    );
    fs::remove_file(&blob).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &blob).unwrap();
    assert!(error_of(directory.path()).starts_with("cannot read "), "{}", error_of(directory.path()));
}

#[test]
fn a_saved_image_is_read_in_place() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("saved.tar");
    let (lower, upper) = (Layer::default().file("app", b"old").bytes(), Layer::default().file("app", b"new").bytes());
    let config = config("amd64", &[&lower, &upper]);
    let manifest = json!([{"Config": "c.json", "RepoTags": ["app:1"], "Layers": ["a/layer.tar", "b/layer.tar"]}]);
    let manifest = manifest.to_string();
    let files: [(&str, &[u8]); 4] =
        [("a/layer.tar", &lower), ("b/layer.tar", &upper), ("c.json", &config), ("manifest.json", manifest.as_bytes())];
    archive(&path, &files);
    let image = open_image(&path).unwrap();
    assert_eq!(image.digest, Digest::of(&config));
    assert_eq!(unpacked(&image).debugfs("cat /app"), "new");

    let packed = directory.path().join("saved.tar.gz");
    let id = "0".repeat(64);
    archive(&packed, &[(&format!("{id}/layer.tar"), &lower), ("manifest.json", b"[]")]);
    fs::write(&packed, gzip(&fs::read(&packed).unwrap())).unwrap();
    assert!(error_of(&packed).contains("is a compressed image archive; decompress it first"));
}

#[test]
fn an_archive_of_several_images_or_another_platform_is_refused() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("saved.tar");
    let arm = config("arm64", &[]);
    let one = json!([{"Config": "c.json", "Layers": []}]).to_string();
    archive(&path, &[("c.json", &arm), ("manifest.json", one.as_bytes())]);
    assert_eq!(error_of(&path), "the image is for linux/arm64; only linux/amd64 can run here");
    let two = json!([{"Config": "c.json", "RepoTags": ["a:1"]}, {"Config": "d.json", "RepoTags": null}]).to_string();
    archive(&path, &[("c.json", &arm), ("manifest.json", two.as_bytes())]);
    assert_eq!(error_of(&path), "the archive has 2 images (a:1, d.json); save one image per file");
}

#[test]
fn a_root_file_system_is_an_image_without_configuration() {
    let directory = TempDir::new().unwrap();
    let plain = Layer::default().file("bin/app", b"app").bytes();
    for (name, bytes) in [("root.tar", plain.clone()), ("root.tar.gz", gzip(&plain))] {
        let path = directory.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let image = open_image(&path).unwrap();
        assert_eq!(image.digest, Digest::of(&bytes));
        assert_eq!(unpacked(&image).debugfs("cat /bin/app"), "app");
    }
    let path = directory.path().join("text");
    fs::write(&path, "not an archive".repeat(100)).unwrap();
    assert!(error_of(&path).ends_with("is not an image: it is neither an OCI layout nor a tar archive"));
}
