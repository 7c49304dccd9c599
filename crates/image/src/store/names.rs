//! The image of each template's name. Names are the only entries of a store that change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::name::{ContentId, TemplateName};
use crate::publish::write_json;

#[derive(Serialize, Deserialize)]
struct Entry {
    image: ContentId,
}

fn directory(store: &Path) -> PathBuf {
    store.join("names")
}

fn file(store: &Path, name: &TemplateName) -> PathBuf {
    directory(store).join(format!("{name}.json"))
}

/// The image of a name; `None` if the name does not exist.
pub(super) fn get(store: &Path, name: &TemplateName) -> io::Result<Option<ContentId>> {
    match fs::read(file(store, name)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice::<Entry>(&bytes)?.image)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn set(store: &Path, name: &TemplateName, image: &ContentId) -> io::Result<()> {
    write_json(&file(store, name), &Entry { image: image.clone() })
}

pub(super) fn unset(store: &Path, name: &TemplateName) -> io::Result<()> {
    fs::remove_file(file(store, name))?;
    fs::File::open(directory(store))?.sync_all()
}

/// Sets the time of the entry. If this user may not, the template also cannot be evicted by this user.
pub(super) fn mark_used(store: &Path, name: &TemplateName) {
    let _ = fs::File::open(file(store, name)).and_then(|file| file.set_modified(SystemTime::now()));
}

pub(super) fn used_at(store: &Path, name: &TemplateName) -> Option<SystemTime> {
    fs::metadata(file(store, name)).and_then(|file| file.modified()).ok()
}

/// All names, in alphabetical order.
pub(super) fn all(store: &Path) -> io::Result<Vec<TemplateName>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory(store))? {
        let file = entry?.file_name();
        names.extend(file.to_str().and_then(|file| file.strip_suffix(".json")).and_then(|name| name.parse().ok()));
    }
    names.sort();
    Ok(names)
}
