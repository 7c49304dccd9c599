//! Recognises what a file or directory is.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::error::ArchiveError;
use super::store::{Contents, Store, first_name};
use super::{docker, layout};
use crate::digest::Digest;
use crate::layers::LayerInput;
use crate::spec::ImageConfig;

/// An image whose layers can be unpacked.
#[derive(Debug)]
pub struct Image {
    pub config: ImageConfig,
    /// From bottom to top.
    pub layers: Vec<LayerInput>,
    /// The digest of the manifest; of the configuration for `docker save`; of the file for a root file system.
    pub digest: Digest,
}

/// Opens an image in a file or directory.
pub fn open_image(path: &Path) -> Result<Image, ArchiveError> {
    let failed = |source| ArchiveError::Read { path: path.to_owned(), source };
    if path.is_dir() {
        let store = Store::Directory(path.to_owned());
        return match store.has("index.json") {
            true => layout::read(&store),
            false => Err(ArchiveError::NotAnImage { path: path.to_owned() }),
        };
    }
    let mut file = File::open(path).map_err(failed)?;
    if is_compressed(&mut file).map_err(failed)? {
        return compressed(file, path);
    }
    match Store::index(&file, path)? {
        Contents::Image(store) if store.has("index.json") && store.has("oci-layout") => layout::read(&store),
        Contents::Image(store) => docker::read(&store),
        Contents::RootFileSystem => root_file_system(file).map_err(failed),
    }
}

/// Refuses images that this host cannot run.
pub(super) fn check_platform(config: &ImageConfig) -> Result<(), ArchiveError> {
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    match (or(&config.os, "linux"), or(&config.architecture, "amd64")) {
        (os, architecture) if os == "linux" && architecture == "amd64" => Ok(()),
        (os, architecture) => Err(ArchiveError::WrongPlatform { platforms: format!("{os}/{architecture}") }),
    }
}

fn is_compressed(file: &mut File) -> io::Result<bool> {
    let mut magic = Vec::new();
    file.take(4).read_to_end(&mut magic)?;
    file.rewind()?;
    Ok(magic.starts_with(&[0x1f, 0x8b]) || magic == [0x28, 0xb5, 0x2f, 0xfd])
}

/// The layers of a compressed archive of an image cannot be read in any order, so only a root file system can be
/// compressed.
fn compressed(file: File, path: &Path) -> Result<Image, ArchiveError> {
    let failed = |source| ArchiveError::Read { path: path.to_owned(), source };
    let mut copy = &file;
    let mut magic = [0; 1];
    copy.read_exact(&mut magic).and_then(|()| copy.rewind()).map_err(failed)?;
    let name = match magic {
        [0x1f] => first_name(flate2::read::MultiGzDecoder::new(copy)),
        _ => first_name(zstd::stream::read::Decoder::new(copy).map_err(failed)?),
    };
    let name = name.ok_or_else(|| ArchiveError::NotAnImage { path: path.to_owned() })?;
    let stem = name.trim_end_matches('/').split(['/', '.']).next().unwrap_or_default();
    let is_id = stem.len() == 64 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id || ["manifest.json", "oci-layout", "index.json"].contains(&name.as_str()) || name.starts_with("blobs/") {
        return Err(ArchiveError::Compressed { path: path.to_owned() });
    }
    root_file_system(file).map_err(failed)
}

/// A root file system is an image with one layer and no configuration.
fn root_file_system(mut file: File) -> io::Result<Image> {
    file.rewind()?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut length = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => {
                hasher.update(&buffer[..count]);
                length += count as u64;
            }
        }
    }
    let digest = Digest::finish(hasher);
    let config = ImageConfig { architecture: "amd64".into(), os: "linux".into(), ..ImageConfig::default() };
    let layer =
        LayerInput { file, offset: 0, length, media_type: String::new(), digest: Some(digest.clone()), diff_id: None };
    Ok(Image { config, layers: vec![layer], digest })
}
