//! The kernel modules that a guest needs, and their load order.
//!
//! Debian's package has no `modules.dep`, which depmod would write at installation, so the dependencies are read from
//! each module's own `depends=`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use elf::ElfBytes;
use elf::endian::LittleEndian;

use crate::error::{BuildError, io_at};

/// For the root disk, volumes, the network and the memory balloon. (Consoles, virtio-serial for the control channel, ext4
/// and FUSE are built into Debian's kernel.)
const NEEDED: [&str; 5] = ["virtio_blk", "virtio_scsi", "sd_mod", "virtio_net", "virtio_balloon"];

/// For containers and disk images inside a sandbox. Other modules are left out, because a root that had them would work
/// with one kernel only.
const OPTIONAL: [&str; 2] = ["overlay", "loop"];

const COMPRESSED: [&str; 4] = ["", ".xz", ".zst", ".gz"];

/// A kernel's modules: files, and built-in ones.
pub(crate) struct Modules {
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

impl Modules {
    /// Reads `lib/modules/<release>`.
    pub(crate) fn read(release_dir: &Path) -> Result<Self, BuildError> {
        let mut files = BTreeMap::new();
        collect(release_dir, &mut files).map_err(io_at("list", release_dir))?;
        let list = release_dir.join("modules.builtin");
        let built_in =
            if list.exists() { fs::read_to_string(&list).map_err(io_at("read", &list))? } else { String::new() };
        let built_in = built_in.lines().filter_map(|line| module_name(Path::new(line))).collect();
        Ok(Self { files, built_in })
    }

    /// The files to load, each after its dependencies.
    pub(crate) fn load_order(&self) -> Result<Vec<PathBuf>, BuildError> {
        let mut order = Vec::new();
        for module in NEEDED {
            self.add(module, &mut order)?;
        }
        for module in OPTIONAL.iter().filter(|module| self.files.contains_key(**module)) {
            self.add(module, &mut order)?;
        }
        Ok(order)
    }

    fn add(&self, module: &str, order: &mut Vec<PathBuf>) -> Result<(), BuildError> {
        if self.built_in.contains(module) {
            return Ok(());
        }
        let path = self.files.get(module).ok_or_else(|| BuildError::NoModule { module: module.to_owned() })?;
        if order.contains(path) {
            return Ok(());
        }
        for dependency in dependencies(path)? {
            self.add(&dependency, order)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

fn collect(dir: &Path, files: &mut BTreeMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        // Links (`build`, `source`) point out of the tree.
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if let Some(name) = module_name(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// The module's name: `virtio_rng` for `virtio-rng.ko.xz`.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let stem = COMPRESSED.iter().find_map(|suffix| file.strip_suffix(&format!(".ko{suffix}")))?;
    Some(stem.replace('-', "_"))
}

fn dependencies(path: &Path) -> Result<Vec<String>, BuildError> {
    let bytes = fs::read(path).map_err(io_at("read", path))?;
    let bad = |reason: String| BuildError::BadModule { path: path.to_owned(), reason };
    let object = match path.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => bytes,
        Some("xz") => {
            let mut object = Vec::new();
            lzma_rs::xz_decompress(&mut Cursor::new(bytes), &mut object).map_err(|error| bad(format!("{error:?}")))?;
            object
        }
        _ => return Err(bad("only plain and xz-compressed modules are understood".to_owned())),
    };
    let info = modinfo(&object).map_err(|error| bad(error.to_string()))?;
    Ok(depends(&info))
}

fn modinfo(object: &[u8]) -> Result<Vec<u8>, elf::ParseError> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(object)?;
    match file.section_header_by_name(".modinfo")? {
        Some(header) => Ok(file.section_data(&header)?.0.to_vec()),
        None => Ok(Vec::new()),
    }
}

/// Parses `.modinfo`: `key=value` strings, each ended by a zero byte.
fn depends(info: &[u8]) -> Vec<String> {
    let mut fields = info.split(|byte| *byte == 0).filter_map(|field| std::str::from_utf8(field).ok());
    let list = fields.find_map(|field| field.strip_prefix("depends=")).unwrap_or_default();
    list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A minimal ELF object with a `.modinfo` section.
    pub(crate) fn fake_module(depends: &str) -> Vec<u8> {
        let info = format!("license=GPL\0depends={depends}\0");
        let names = b"\0.modinfo\0.shstrtab\0";
        let mut object = vec![0; 64];
        let at_info = object.len() as u64;
        object.extend(info.as_bytes());
        let at_names = object.len() as u64;
        object.extend(names);
        let at_headers = object.len() as u64;
        let mut header = |name: u32, kind: u32, offset: u64, size: u64| {
            object.extend(name.to_le_bytes());
            object.extend(kind.to_le_bytes());
            object.extend([0; 16]);
            object.extend(offset.to_le_bytes());
            object.extend(size.to_le_bytes());
            object.extend([0; 24]);
        };
        header(0, 0, 0, 0);
        header(1, 1, at_info, info.len() as u64);
        header(10, 3, at_names, names.len() as u64);
        object[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        object[16..20].copy_from_slice(&[1, 0, 62, 0]);
        object[20] = 1;
        object[40..48].copy_from_slice(&at_headers.to_le_bytes());
        object[52..64].copy_from_slice(&[64, 0, 0, 0, 0, 0, 64, 0, 3, 0, 2, 0]);
        object
    }

    /// A modules directory like a kernel package's: some built in, some plain, some compressed.
    pub(crate) fn fake_tree(dir: &Path) {
        let drivers = dir.join("kernel/drivers");
        fs::create_dir_all(&drivers).unwrap();
        fs::write(dir.join("modules.builtin"), "kernel/drivers/virtio_balloon.ko\nkernel/crc64-rocksoft.ko\n").unwrap();
        for (name, depends) in [
            ("virtio_blk", ""),
            ("virtio_scsi", "scsi_mod"),
            ("scsi_mod", "scsi-common"),
            ("scsi_common", ""),
            ("sd_mod", "scsi_mod,scsi_common,crc64_rocksoft"),
            ("net_failover", "failover"),
            ("failover", ""),
        ] {
            fs::write(drivers.join(format!("{name}.ko")), fake_module(depends)).unwrap();
        }
        let mut compressed = Vec::new();
        lzma_rs::xz_compress(&mut Cursor::new(fake_module("net_failover")), &mut compressed).unwrap();
        fs::write(drivers.join("virtio-net.ko.xz"), compressed).unwrap();
    }

    #[test]
    fn dependencies_are_loaded_first_and_built_in_modules_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        fake_tree(dir.path());
        let order = Modules::read(dir.path()).unwrap().load_order().unwrap();
        let names: Vec<String> = order.iter().filter_map(|path| module_name(path)).collect();
        let expected = [
            "virtio_blk",
            "scsi_common",
            "scsi_mod",
            "virtio_scsi",
            "sd_mod",
            "failover",
            "net_failover",
            "virtio_net",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_kernel_without_a_needed_module_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        fake_tree(dir.path());
        fs::remove_file(dir.path().join("kernel/drivers/failover.ko")).unwrap();
        let error = Modules::read(dir.path()).unwrap().load_order().unwrap_err();
        assert!(matches!(&error, BuildError::NoModule { module } if module == "failover"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_a_module_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fake_tree(dir.path());
        fs::write(dir.path().join("kernel/drivers/virtio_blk.ko"), b"not an object").unwrap();
        let error = Modules::read(dir.path()).unwrap().load_order().unwrap_err();
        assert!(matches!(error, BuildError::BadModule { .. }), "{error}");
    }
}
