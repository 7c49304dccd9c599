//! Taking a volume that another home sends, which is not trusted.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::error::VolumeError;
use super::make::{VolumeView, volume};
use super::send::MAGIC;
use super::volumes::Volumes;
use crate::hashing::Hashed;
use crate::model::{VolumeInfo, VolumeKind};
use crate::sparse::{PartsError, read_parts};

/// A volume that another home is about to send.
pub struct IncomingVolume(VolumeInfo);

impl Volumes {
    /// Checks that this home can take a copy of a volume, before the other one sends it. `from` is the volume's name there.
    pub fn prepare_receive(
        &self,
        workspace: &str,
        name: &str,
        from: &str,
        size_mib: u32,
    ) -> Result<IncomingVolume, VolumeError> {
        self.check_new(workspace, name, size_mib)?;
        let info = volume(workspace, name, size_mib, VolumeKind::Ordinary, None);
        Ok(IncomingVolume(VolumeInfo { from: Some(from.to_owned()), ..info }))
    }

    /// Makes a volume of what [`VolumeMoment::send`](super::VolumeMoment::send) wrote: of all of it, or none. Blocks.
    pub fn receive(&self, incoming: IncomingVolume, from: impl Read) -> Result<VolumeView, VolumeError> {
        let IncomingVolume(info) = incoming;
        let read = read(&self.file(&info.id), info.size_mib, from);
        let info = VolumeInfo { clean: matches!(read, Ok(true)), ..info };
        self.enter(info, read.map(drop))
    }
}

impl From<PartsError> for VolumeError {
    fn from(error: PartsError) -> Self {
        match error {
            PartsError::Outside => Self::Incomplete("a part lies outside of it"),
            PartsError::Read(error) => unreadable(&error),
            PartsError::Write(error) => Self::Files(error),
        }
    }
}

fn unreadable(error: &io::Error) -> VolumeError {
    VolumeError::Incomplete(match error.kind() {
        io::ErrorKind::UnexpectedEof => "its sender stopped in the middle",
        _ => "it cannot be decompressed",
    })
}

/// Writes the file. Returns whether the last writer unmounted the volume.
fn read(path: &Path, size_mib: u32, mut from: impl Read) -> Result<bool, VolumeError> {
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic).map_err(|error| unreadable(&error))?;
    if magic != MAGIC {
        return Err(VolumeError::Incomplete("what arrived is no volume"));
    }
    let mut stream = zstd::Decoder::new(from).map_err(|error| unreadable(&error))?;
    let mut hashed = Hashed::new(&mut stream);
    let (mut size, mut is_clean) = ([0; 4], [0; 1]);
    for field in [&mut size[..], &mut is_clean[..]] {
        hashed.read_exact(field).map_err(|error| unreadable(&error))?;
    }
    if u32::from_le_bytes(size) != size_mib {
        return Err(VolumeError::Incomplete("its size has changed"));
    }
    let length = u64::from(size_mib) << 20;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(length)?;
    read_parts(&mut hashed, &file, length)?;
    let seen = hashed.digest();
    let mut told = [0; 32];
    stream.read_exact(&mut told).map_err(|error| unreadable(&error))?;
    if seen != told {
        return Err(VolumeError::Incomplete("it is not as it was sent"));
    }
    Ok(is_clean == [1])
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::sync::Arc;

    use sandling_vmm::disk::copy_sparse;
    use tempfile::TempDir;

    use super::super::send::VolumeMoment;
    use super::*;
    use crate::store::{Claim, Store};

    const WORKSPACE: &str = "default";
    const SIZE_MIB: u32 = 64;
    const LENGTH: u64 = (SIZE_MIB as u64) << 20;

    struct Place {
        volumes: Volumes,
        dir: TempDir,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let store = Arc::new(Store::open(&dir.path().join("s.db")).unwrap());
            let files = dir.path().join("volumes");
            fs::create_dir(&files).unwrap();
            Self { volumes: Volumes::new(store, files, "e".to_owned()), dir }
        }

        /// With a volume that has something at its beginning and at its end.
        fn with_volume() -> (Self, VolumeInfo) {
            let place = Self::new();
            let info = VolumeInfo { clean: false, ..VolumeInfo::example("data") };
            let file = File::create(place.volumes.file(&info.id)).unwrap();
            file.set_len(LENGTH).unwrap();
            file.write_all_at(b"begin", 4096).unwrap();
            file.write_all_at(b"end", LENGTH - 3).unwrap();
            assert!(place.volumes.store.insert_volume(&info).unwrap());
            (place, info)
        }

        fn moment(&self) -> VolumeMoment {
            let copying = self.volumes.begin_moment(WORKSPACE, "data").unwrap();
            let copied = copy_sparse(&copying.from, &copying.to).map_err(VolumeError::from);
            self.volumes.finish_moment(copying, copied).unwrap()
        }

        fn receive(&self, stream: &[u8]) -> Result<VolumeView, VolumeError> {
            let incoming = self.volumes.prepare_receive(WORKSPACE, "copy", "data", SIZE_MIB).unwrap();
            self.volumes.receive(incoming, stream)
        }

        fn files(&self) -> usize {
            fs::read_dir(self.dir.path().join("volumes")).unwrap().count()
        }

        /// Refuses a stream, and keeps nothing of it.
        #[track_caller]
        fn refuses(&self, stream: &[u8], why: &str) {
            let refusal = self.receive(stream).unwrap_err().to_string();
            assert!(refusal.contains(why), "{refusal}");
            assert_eq!(self.files(), 0);
            assert!(self.volumes.list(WORKSPACE).unwrap().is_empty());
        }
    }

    /// The stream of the volume, and what is compressed in it.
    fn sent() -> (Vec<u8>, Vec<u8>) {
        let mut stream = Vec::new();
        Place::with_volume().0.moment().send(&mut stream).unwrap();
        let plain = zstd::decode_all(&stream[MAGIC.len()..]).unwrap();
        (stream, plain)
    }

    fn compressed(plain: &[u8]) -> Vec<u8> {
        [MAGIC, &zstd::encode_all(plain, 1).unwrap()].concat()
    }

    /// The stream of these parts, with the right digest.
    fn of_parts(size_mib: u32, parts: &[(u64, u32)]) -> Vec<u8> {
        let mut plain = [&size_mib.to_le_bytes()[..], &[1]].concat();
        for (offset, length) in parts {
            plain.extend([&offset.to_le_bytes()[..], &length.to_le_bytes(), &vec![7; *length as usize]].concat());
        }
        let digest = *blake3::hash(&plain).as_bytes();
        plain.extend(digest);
        compressed(&plain)
    }

    #[test]
    fn a_volume_arrives_as_it_was_at_one_moment() {
        let (home, source) = Place::with_volume();
        let moment = home.moment();
        assert_eq!(home.files(), 1, "the copy has no name");
        assert_eq!(home.volumes.store.volume_uses().unwrap(), []);
        let file = File::options().write(true).open(home.volumes.file(&source.id)).unwrap();
        file.write_all_at(b"later", 4096).unwrap();
        let mut stream = Vec::new();
        moment.send(&mut stream).unwrap();
        assert!(stream.len() < 1 << 20, "holes are not sent");

        let other = Place::new();
        let copy = other.receive(&stream).unwrap().info;
        assert_eq!((&*copy.name, copy.from.as_deref(), copy.size_mib), ("copy", Some("data"), SIZE_MIB));
        assert_eq!((&copy.kind, copy.clean), (&VolumeKind::Ordinary, false));
        assert_eq!(other.volumes.find(WORKSPACE, "copy").unwrap().unwrap().info, copy);
        let file = File::open(other.volumes.file(&copy.id)).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!((meta.len(), meta.mode() & 0o777), (LENGTH, 0o600));
        assert!(meta.blocks() * 512 < 1 << 20);
        let (mut begin, mut end) = ([0; 5], [0; 3]);
        file.read_exact_at(&mut begin, 4096).unwrap();
        file.read_exact_at(&mut end, LENGTH - 3).unwrap();
        assert_eq!((&begin, &end), (b"begin", b"end"));
        let taken = other.volumes.prepare_receive(WORKSPACE, "copy", "data", SIZE_MIB);
        assert!(matches!(taken, Err(VolumeError::Exists(_))));
    }

    #[test]
    fn a_moment_that_cannot_be_copied_leaves_nothing() {
        let (home, source) = Place::with_volume();
        let copying = home.volumes.begin_moment(WORKSPACE, "data").unwrap();
        fs::write(&copying.to, "half").unwrap();
        assert!(home.volumes.finish_moment(copying, Err(VolumeError::CutOff)).is_err());
        assert_eq!(home.files(), 1);
        assert_eq!(home.volumes.store.remove_volume(&source.id).unwrap(), Claim::Granted, "nobody holds it");
        assert!(matches!(home.volumes.begin_moment(WORKSPACE, "data"), Err(VolumeError::Unknown(_))));
    }

    #[test]
    fn a_stream_that_ends_early_is_no_volume() {
        let (stream, _) = sent();
        let place = Place::new();
        for length in [0, 5, MAGIC.len(), MAGIC.len() + 3, stream.len() / 2, stream.len() - 8] {
            place.refuses(&stream[..length], "its sender stopped in the middle");
        }
        place.receive(&stream).unwrap();
    }

    #[test]
    fn a_damaged_stream_is_no_volume() {
        let (stream, plain) = sent();
        let place = Place::new();
        place.refuses(&[&b"x"[..], &stream[1..]].concat(), "no volume");
        place.refuses(&[MAGIC, b"no zstd stream"].concat(), "cannot be decompressed");
        // In the content, and in the digest.
        let content = plain.windows(5).position(|bytes| bytes == b"begin").unwrap();
        for at in [content, plain.len() - 1] {
            let mut wrong = plain.clone();
            wrong[at] ^= 1;
            place.refuses(&compressed(&wrong), "not as it was sent");
        }
    }

    #[test]
    fn a_stream_of_another_size_or_with_parts_outside_is_no_volume() {
        let place = Place::new();
        let end = (LENGTH, 0);
        place.refuses(&of_parts(SIZE_MIB + 1, &[end]), "its size has changed");
        for parts in [&[(LENGTH, 1), end][..], &[(u64::MAX, 2), end], &[(8192, 1), (4096, 1), end]] {
            place.refuses(&of_parts(SIZE_MIB, parts), "lies outside");
        }
        place.receive(&of_parts(SIZE_MIB, &[(LENGTH - 1, 1), end])).unwrap();
        for size_mib in [0, 15, 65_537, u32::MAX] {
            let refusal = place.volumes.prepare_receive(WORKSPACE, "other", "data", size_mib);
            assert!(matches!(refusal, Err(VolumeError::Size(_))), "{size_mib}");
        }
        assert!(matches!(place.volumes.prepare_receive(WORKSPACE, "../x", "data", SIZE_MIB), Err(VolumeError::Name)));
    }

    #[test]
    fn a_receiver_that_goes_away_ends_the_sender() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (home, _) = Place::with_volume();
        assert_eq!(home.moment().send(Gone).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(home.files(), 1);
    }
}
