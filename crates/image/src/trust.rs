//! Whether files can be trusted: only this user and root can have written them.
//!
//! Templates, bakes and cached processes become the memory, the disk and the code of every sandbox. A digest in a
//! directory that others can write to proves nothing, because they could replace it together with the file. So such a
//! directory is refused.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{getegid, geteuid};

const ROOT: u32 = 0;
/// The owner of files whose real owner has no id in this process's user namespace.
const UNMAPPED: u32 = 65534;
const GROUP_WRITABLE: u32 = 0o020;
const WRITABLE_BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// A file or directory that another user could have changed.
#[derive(Debug, thiserror::Error)]
#[error("{} {problem}, so it is not used; {remedy}", path.display())]
pub struct Untrusted {
    path: PathBuf,
    problem: String,
    remedy: String,
}

/// Checks a file or directory and every directory above it. A path that does not exist is not checked.
pub fn check_trusted(path: &Path) -> Result<(), Untrusted> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let owners = TrustedOwners::of_this_process();
    // A link in the path could be changed, too.
    let by_name = path.ancestors().filter(|_| path.is_absolute() && real != path);
    by_name.chain(real.ancestors()).try_for_each(|path| check(path, &owners))
}

/// Checks files of a directory that is trusted itself.
pub fn check_trusted_files<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<(), Untrusted> {
    let owners = TrustedOwners::of_this_process();
    files.into_iter().try_for_each(|path| check(path, &owners))
}

struct TrustedOwners {
    users: Vec<u32>,
    /// The group that has no other member by convention: its id is that of its user.
    private_group: Option<u32>,
}

impl TrustedOwners {
    fn of_this_process() -> Self {
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let mut users = vec![ROOT, user];
        if user == ROOT {
            // The operator, who has become root by means of sudo.
            users.extend(std::env::var("SUDO_UID").ok().and_then(|id| id.parse::<u32>().ok()));
        }
        if is_in_user_namespace() {
            users.push(UNMAPPED);
        }
        Self { users, private_group: (group == user).then_some(group) }
    }
}

fn is_in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let all = ["0", "0", "4294967295"];
    !map.is_empty() && !map.split_whitespace().eq(all)
}

fn check(path: &Path, owners: &TrustedOwners) -> Result<(), Untrusted> {
    let Ok(metadata) = path.symlink_metadata() else { return Ok(()) };
    let untrusted = |problem: String, remedy: String| Err(Untrusted { path: path.to_owned(), problem, remedy });
    if !owners.users.contains(&metadata.uid()) {
        let remedy = "use a directory that belongs to this user or to root, or change its owner".to_owned();
        return untrusted(format!("belongs to the user {}", metadata.uid()), remedy);
    }
    // Others cannot replace what is not theirs in a sticky directory; and a link has no mode of its own.
    if metadata.is_symlink() || metadata.is_dir() && metadata.mode() & STICKY != 0 {
        return Ok(());
    }
    let by_group = metadata.mode() & GROUP_WRITABLE != 0 && Some(metadata.gid()) != owners.private_group;
    if by_group || metadata.mode() & WRITABLE_BY_ALL != 0 {
        let remedy = format!("`chmod go-w {}` makes it safe, if nobody has changed it", path.display());
        return untrusted("can be written by other users".to_owned(), remedy);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_above_that_others_can_write_to_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let inner = place.path().join("open/inner");
        fs::create_dir_all(&inner).unwrap();
        let file = inner.join("file");
        fs::write(&file, "x").unwrap();
        for path in [place.path(), &place.path().join("open"), &inner] {
            set(path, 0o755);
        }
        set(&file, 0o644);
        check_trusted(&file).unwrap();
        set(&place.path().join("open"), 0o777);
        let error = check_trusted(&file).unwrap_err().to_string();
        assert!(error.contains("open can be written by other users, so it is not used; `chmod go-w"), "{error}");
        set(&place.path().join("open"), 0o1777);
        check_trusted(&file).expect("others cannot replace files in a sticky directory");
        set(&file, 0o646);
        check_trusted(&file).unwrap_err();
        check_trusted_files([file.as_path()]).unwrap_err();
    }

    #[test]
    fn a_group_with_other_members_is_refused() {
        let place = tempfile::tempdir().unwrap();
        set(place.path(), 0o775);
        let metadata = fs::metadata(place.path()).unwrap();
        let with = |private_group| TrustedOwners { users: vec![metadata.uid()], private_group };
        check(place.path(), &with(Some(metadata.gid()))).unwrap();
        check(place.path(), &with(None)).unwrap_err();
    }

    #[test]
    fn a_link_does_not_hide_the_directory_behind_it() {
        let place = tempfile::tempdir().unwrap();
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        set(&open, 0o777);
        symlink(&open, place.path().join("link")).unwrap();
        check_trusted(&place.path().join("link")).unwrap_err();
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !geteuid().is_root() {
            eprintln!("SKIPPED: only root can give files away");
            return;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        check_trusted(file.path()).unwrap();
        chown(file.path(), Some(1234), Some(1234)).unwrap();
        let error = check_trusted(file.path()).unwrap_err().to_string();
        assert!(error.contains("belongs to the user 1234"), "{error}");
    }
}
