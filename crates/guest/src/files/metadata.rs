//! What users store with a file: extended attributes below `user.e2b.`, where programs for E2B's sandboxes look for them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{XattrFlags, flistxattr, fremovexattr, fsetxattr, getxattr, listxattr};
use rustix::io::Errno;

const PREFIX: &str = "user.e2b.";
/// ext4 keeps all attributes of a file in one block, so no value is longer.
const LONGEST_VALUE: usize = 4096;
/// The kernel's limit of a list of names.
const LONGEST_LIST: usize = 64 * 1024;

/// The metadata of a file; nothing if the file system has none.
pub fn read(path: &Path) -> BTreeMap<String, String> {
    let Ok(names) = names(|list| listxattr(path, list)) else { return BTreeMap::new() };
    let value = |name: &String| {
        let mut value = vec![0; LONGEST_VALUE];
        let length = getxattr(path, format!("{PREFIX}{name}"), value.as_mut_slice()).ok()?;
        value.truncate(length);
        String::from_utf8(value).ok()
    };
    names.into_iter().filter_map(|name| Some((name.clone(), value(&name)?))).collect()
}

/// Gives a file this metadata in place of what it had. A file system without metadata is an error only if there is some.
pub fn replace(file: &File, metadata: &BTreeMap<String, String>) -> io::Result<()> {
    let present = match names(|list| flistxattr(file, list)) {
        Err(Errno::OPNOTSUPP) if metadata.is_empty() => return Ok(()),
        present => present?,
    };
    for gone in present.iter().filter(|name| !metadata.contains_key(*name)) {
        fremovexattr(file, format!("{PREFIX}{gone}"))?;
    }
    for (name, value) in metadata {
        fsetxattr(file, format!("{PREFIX}{name}"), value.as_bytes(), XattrFlags::empty())?;
    }
    Ok(())
}

fn names(mut list: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<String>, Errno> {
    // Most files have no attributes at all, so the first buffer is small.
    let mut small = [0; 256];
    let found = match list(&mut small) {
        Ok(length) => small[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut all = vec![0; LONGEST_LIST];
            let length = list(&mut all)?;
            all.truncate(length);
            all
        }
        Err(error) => return Err(error),
    };
    let found = found.split(|&byte| byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    Ok(found.filter_map(|name| name.strip_prefix(PREFIX)).map(str::to_owned).collect())
}
