//! Writes the files of a stream or an archive into the image.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use sandling_builder::{DIRECTORY, Place};
use tar::{Archive, Entry, EntryType};

use crate::owner::{self, Owner};
use crate::pack::Packer;
use crate::{Failure, archive, sources};

const DIRECTORY_MODE: u32 = 0o755;
/// As in Docker.
const DOWNLOADED_MODE: u32 = 0o600;

/// Copies what a source names in an archive.
pub fn copy(source: &str, place: &Place, input: impl Read) -> Result<(), Failure> {
    let failed = |error: io::Error| format!("cannot unpack the files: {error}");
    let unpacked = PathBuf::from(DIRECTORY).join("copy");
    let _ = fs::remove_dir_all(&unpacked);
    fs::create_dir_all(&unpacked).map_err(failed)?;
    let placer = Placer { owner: None, default_owner: Owner { uid: 0, gid: 0 }, mode: None };
    let file = stored(input).map_err(failed)?;
    let Some(mut archive) = archive::open(file)? else { return Err("the uploaded files are no archive".to_owned()) };
    placer.archive(&mut archive, &unpacked)?;
    let mut packer = Packer::new(io::BufWriter::new(archive::temporary().map_err(failed)?));
    for found in sources::find(&unpacked, source)? {
        packer.uploaded(&found)?;
    }
    let mut stream = packer.into_inner().map_err(failed)?.into_inner().map_err(|error| failed(error.into_error()))?;
    stream.seek(SeekFrom::Start(0)).map_err(failed)?;
    let placed = self::place(place, stream);
    let _ = fs::remove_dir_all(&unpacked);
    placed
}

/// Moves a file that was fetched to its place, if its content is what the Dockerfile expects.
pub fn adopt(file: &str, name: &str, sha256: Option<&str>, place: &Place) -> Result<(), Failure> {
    let failed = |error: io::Error| format!("{file}: {error}");
    let adopted = adopt_file(file, name, sha256, place, &failed);
    let _ = fs::remove_file(file);
    adopted
}

fn adopt_file(
    file: &str,
    name: &str,
    sha256: Option<&str>,
    place: &Place,
    failed: &dyn Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    use sha2::{Digest, Sha256};
    let mut opened = File::open(file).map_err(failed)?;
    if let Some(expected) = sha256 {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = opened.read(&mut buffer).map_err(failed)?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
        }
        let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if found != expected {
            return Err(format!("the checksum is sha256:{found}, and the Dockerfile expects sha256:{expected}"));
        }
        opened.seek(SeekFrom::Start(0)).map_err(failed)?;
    }
    let mut header = tar::Header::new_gnu();
    header.set_size(opened.metadata().map_err(failed)?.len());
    header.set_mode(DOWNLOADED_MODE);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    let mut stream = tar::Builder::new(archive::temporary().map_err(failed)?);
    stream.append_data(&mut header, Path::new("f").join(name), opened).map_err(failed)?;
    let mut stream = stream.into_inner().map_err(failed)?;
    stream.seek(SeekFrom::Start(0)).map_err(failed)?;
    self::place(place, stream)
}

fn stored(mut input: impl Read) -> io::Result<File> {
    let mut file = archive::temporary()?;
    io::copy(&mut input, &mut file)?;
    Ok(file)
}

/// Places the files of a stream.
pub fn place(place: &Place, input: impl Read) -> Result<(), Failure> {
    let owner = place.owner.as_deref().map(owner::find).transpose()?;
    let placer = Placer { owner, default_owner: owner.unwrap_or(Owner { uid: 0, gid: 0 }), mode: place.mode };
    let target = Path::new(&place.target);
    let into = place.into || place.target.ends_with('/') || target.is_dir();
    let mut archive = Archive::new(io::BufReader::with_capacity(1 << 16, input));
    for entry in archive.entries().map_err(|error| format!("cannot read the files: {error}"))? {
        let mut entry = entry.map_err(|error| format!("cannot read the files: {error}"))?;
        let name = entry.path_bytes().into_owned();
        let Some((kind, rest)) = name.split_first_chunk::<2>() else { continue };
        let rest = Path::new(std::ffi::OsStr::from_bytes(rest));
        let path = match kind {
            b"f/" if place.unpack && entry.header().entry_type().is_file() => {
                let file = stored(&mut entry).map_err(|error| about(rest, &error))?;
                placer.unpack(file, &entry, target, rest, into)?;
                continue;
            }
            b"f/" if into => target.join(rest),
            b"f/" => target.to_owned(),
            _ => below(target, rest)?,
        };
        placer.parents(&path)?;
        let attributes = attributes_of(&mut entry);
        let link_to = |link: &Path| match link.strip_prefix("d") {
            Ok(rest) => below(target, rest),
            Err(_) => Ok(target.join(link.strip_prefix("f").unwrap_or(link))),
        };
        placer.entry(&mut entry, &path, link_to)?;
        set_attributes(&path, &attributes);
    }
    // An empty directory also becomes the target.
    if into || !target.exists() {
        placer.directories(target)?;
    }
    Ok(())
}

struct Placer {
    /// The owner of all files, instead of their own.
    owner: Option<Owner>,
    /// The owner of directories that the stream does not have.
    default_owner: Owner,
    mode: Option<u32>,
}

impl Placer {
    /// Unpacks a file that is an archive, and copies any other.
    fn unpack<R: Read>(
        &self,
        mut file: File,
        entry: &Entry<'_, R>,
        target: &Path,
        name: &Path,
        into: bool,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| about(name, &error);
        if let Some(mut archive) = archive::open(file.try_clone().map_err(failed)?)? {
            self.directories(target)?;
            return self.archive(&mut archive, target);
        }
        let path = if into { target.join(name) } else { target.to_owned() };
        self.parents(&path)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        self.file(&mut file, &path)?;
        self.metadata(entry, &path)
    }

    /// Unpacks an archive into a directory. Its files keep their owners.
    fn archive<R: Read>(&self, archive: &mut Archive<R>, target: &Path) -> Result<(), Failure> {
        for entry in archive.entries().map_err(|error| format!("cannot read the archive: {error}"))? {
            let mut entry = entry.map_err(|error| format!("cannot read the archive: {error}"))?;
            let name = entry.path().map_err(|error| format!("cannot read the archive: {error}"))?.into_owned();
            let path = below(target, &name)?;
            self.parents(&path)?;
            let attributes = attributes_of(&mut entry);
            self.entry(&mut entry, &path, |link| below(target, link))?;
            set_attributes(&path, &attributes);
        }
        Ok(())
    }

    fn parents(&self, path: &Path) -> Result<(), Failure> {
        path.parent().map_or(Ok(()), |parent| self.directories(parent))
    }

    /// Creates a directory and those above it, if they are missing.
    fn directories(&self, path: &Path) -> Result<(), Failure> {
        if path.is_dir() {
            return Ok(());
        }
        self.parents(path)?;
        let failed = |error: io::Error| about(path, &error);
        fs::create_dir(path).map_err(failed)?;
        fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE)).map_err(failed)?;
        lchown(path, Some(self.default_owner.uid), Some(self.default_owner.gid)).map_err(failed)
    }

    fn entry<R: Read>(
        &self,
        entry: &mut Entry<'_, R>,
        path: &Path,
        link_to: impl Fn(&Path) -> Result<PathBuf, Failure>,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| about(path, &error);
        let kind = entry.header().entry_type();
        if kind == EntryType::Directory {
            if path.is_dir() {
                return Ok(());
            }
            make_room(path).map_err(failed)?;
            fs::create_dir(path).map_err(failed)?;
            return self.metadata(entry, path);
        }
        let link = entry.link_name().map_err(failed)?.map(|link| link.into_owned());
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => self.file(entry, path)?,
            EntryType::Symlink => {
                make_room(path).map_err(failed)?;
                symlink(link.unwrap_or_default(), path).map_err(failed)?;
            }
            EntryType::Link => {
                let original = link_to(&link.unwrap_or_default())?;
                make_room(path).map_err(failed)?;
                // The file has its metadata already.
                return fs::hard_link(original, path).map_err(failed);
            }
            EntryType::Fifo | EntryType::Char | EntryType::Block => {
                make_room(path).map_err(failed)?;
                let header = entry.header();
                let number = |number: io::Result<Option<u32>>| number.ok().flatten().unwrap_or_default();
                let (major, minor) = (number(header.device_major()), number(header.device_minor()));
                let kind = match kind {
                    EntryType::Fifo => FileType::Fifo,
                    EntryType::Char => FileType::CharacterDevice,
                    _ => FileType::BlockDevice,
                };
                let device = rustix::fs::makedev(major, minor);
                rustix::fs::mknodat(CWD, path, kind, Mode::empty(), device).map_err(|error| failed(error.into()))?;
            }
            // Descriptions of other entries.
            _ => return Ok(()),
        }
        self.metadata(entry, path)
    }

    fn file(&self, content: &mut impl Read, path: &Path) -> Result<(), Failure> {
        let failed = |error: io::Error| about(path, &error);
        make_room(path).map_err(failed)?;
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        io::copy(content, &mut file).map_err(failed)?;
        Ok(())
    }

    fn metadata<R: Read>(&self, entry: &Entry<'_, R>, path: &Path) -> Result<(), Failure> {
        let failed = |error: io::Error| about(path, &error);
        let header = entry.header();
        let number =
            |number: io::Result<u64>| number.ok().and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
        let owner = self.owner.unwrap_or(Owner { uid: number(header.uid()), gid: number(header.gid()) });
        lchown(path, Some(owner.uid), Some(owner.gid)).map_err(failed)?;
        let is_link = header.entry_type() == EntryType::Symlink;
        if !is_link {
            // After the owner, because changing the owner clears set-user-id bits.
            let mode = self.mode.or(header.mode().ok()).unwrap_or(0o644) & 0o7777;
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
        }
        let at = Timespec {
            tv_sec: header.mtime().ok().and_then(|time| time.try_into().ok()).unwrap_or_default(),
            tv_nsec: 0,
        };
        let times = Timestamps { last_access: at, last_modification: at };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| failed(error.into()))
    }
}

/// The extended attributes that an entry names.
fn attributes_of<R: Read>(entry: &mut Entry<'_, R>) -> Vec<(String, Vec<u8>)> {
    let extensions = entry.pax_extensions().ok().flatten();
    let named = extensions.into_iter().flatten().flatten().filter_map(|extension| {
        let name = extension.key().ok()?.strip_prefix("SCHILY.xattr.")?;
        Some((name.to_owned(), extension.value_bytes().to_vec()))
    });
    named.collect()
}

/// Sets extended attributes, after the owner: changing the owner clears file capabilities.
fn set_attributes(path: &Path, attributes: &[(String, Vec<u8>)]) {
    for (name, value) in attributes {
        // Some cannot be set, such as those of SELinux.
        let _ = rustix::fs::lsetxattr(path, name.as_str(), value, rustix::fs::XattrFlags::empty());
    }
}

/// Removes what is at a path, so that something else can be there. A directory with files is not removed.
fn make_room(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// A path of an archive below a directory, which it cannot leave.
fn below(target: &Path, name: &Path) -> Result<PathBuf, Failure> {
    let mut path = target.to_owned();
    for part in name.components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::ParentDir => return Err(format!("{} leaves its directory", name.display())),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(path)
}

fn about(path: &Path, error: &io::Error) -> Failure {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn stream(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o640);
            header.set_mtime(1_000);
            let own = rustix::process::geteuid().as_raw();
            header.set_uid(own.into());
            header.set_gid(rustix::process::getegid().as_raw().into());
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn placed(target: &Path, more: &str, into: bool, entries: &[(&str, &str)]) -> Result<(), Failure> {
        let target = format!("{}{more}", target.display());
        let own = format!("{}:{}", rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        place(&Place { target, into, owner: Some(own), ..Place::default() }, stream(entries).as_slice())
    }

    #[test]
    fn a_file_becomes_the_target_or_goes_into_it_as_in_docker() {
        let dir = tempfile::tempdir().unwrap();
        let read = |path: &str| fs::read_to_string(dir.path().join(path)).unwrap_or_default();
        placed(dir.path(), "/new/name", false, &[("f/x", "1")]).unwrap();
        assert_eq!(read("new/name"), "1");
        placed(dir.path(), "/new", false, &[("f/x", "2")]).unwrap();
        assert_eq!(read("new/x"), "2");
        placed(dir.path(), "/other/", false, &[("f/x", "3")]).unwrap();
        assert_eq!(read("other/x"), "3");
        placed(dir.path(), "/tree", false, &[("d/a/b", "4"), ("d/c", "5")]).unwrap();
        assert_eq!((read("tree/a/b"), read("tree/c")), ("4".to_owned(), "5".to_owned()));
        placed(dir.path(), "/new/name", false, &[("f/x", "6")]).unwrap();
        assert_eq!(read("new/name"), "6");
        let meta = fs::metadata(dir.path().join("new/name")).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.mtime()), (0o640, 1_000));
    }

    #[test]
    fn links_of_an_upload_stay_links() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/no/such/file", dir.path().join("link")).unwrap();
        fs::write(dir.path().join("file"), "1").unwrap();
        let mut packer = Packer::new(Vec::new());
        for found in sources::find(dir.path(), "*").unwrap() {
            packer.uploaded(&found).unwrap();
        }
        let mut archive = tar::Archive::new(io::Cursor::new(packer.into_inner().unwrap()));
        let kinds = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.path().unwrap().into_owned(), entry.header().entry_type())
        });
        let expected = [("f/file", EntryType::Regular), ("f/link", EntryType::Symlink)];
        assert_eq!(kinds.collect::<Vec<_>>(), expected.map(|(name, kind)| (PathBuf::from(name), kind)));
    }

    #[test]
    fn names_cannot_leave_the_target() {
        assert!(below(Path::new("/x"), Path::new("../y")).is_err());
        assert_eq!(below(Path::new("/x"), Path::new("/./y")), Ok(PathBuf::from("/x/y")));
    }
}
