//! A kernel and the modules that its guests load, from Debian's cloud kernel package or from the user's files.
//!
//! The package is downloaded and unpacked, never installed. Only the modules that go into an initrd are kept.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::apt::Apt;
use crate::error::{BuildError, io_at};
use crate::modules::Modules;
use crate::progress::{Progress, Report, Step};
use crate::tool::Tool;
use crate::workspace::Workspace;

/// The long-term series that the guest is tested with.
const PACKAGE_PATTERN: &str = r"^linux-image-6\.12\.[0-9.]+\+.*-cloud-amd64$";

pub(crate) const VMLINUZ: &str = "vmlinuz";
pub(crate) const MODULES: &str = "modules";
/// The file in [`MODULES`] that lists the others in load order.
pub(crate) const ORDER: &str = "order";

/// Where a kernel came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum KernelOrigin {
    Debian {
        package: String,
        version: String,
    },
    /// The user's own files.
    File,
}

/// A kernel of the user's own. Without modules, it must have everything built in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnKernel {
    pub vmlinuz: PathBuf,
    /// Its `lib/modules/<release>`.
    pub modules: Option<PathBuf>,
}

/// The newest kernel that Debian has, by package name and version.
pub(crate) fn newest(apt: &Apt, suite: &str) -> Result<(String, String), BuildError> {
    let mut packages = apt.search(PACKAGE_PATTERN)?;
    packages.retain(|package| !package.ends_with("-unsigned") && !package.ends_with("-dbg"));
    let package = packages.into_iter().max_by_key(|package| numbers(package));
    let package = package.ok_or_else(|| BuildError::NoKernelPackage { suite: suite.to_owned() })?;
    let version = apt.version(&package)?;
    Ok((package, version))
}

/// Copies the kernel and the modules of a Debian package into `dest`.
pub(crate) fn from_debian(
    apt: &Apt,
    package: &str,
    workspace: &Workspace,
    dest: &Path,
    report: Report<'_>,
) -> Result<(), BuildError> {
    let mut progress = Progress::of(Step::Kernel, package);
    report(&progress);
    let dir = workspace.share("kernel", 0o755)?;
    let file = apt.download(package, &dir, |_| report(&progress))?;
    progress.detail = format!("unpacking {package}");
    report(&progress);
    let unpacked = dir.join("unpacked");
    Tool::new("dpkg-deb").arg("-x").args([&file, &unpacked]).follow(|_| report(&progress))?;
    let vmlinuz = only_entry(&unpacked.join("boot"), "vmlinuz-")?;
    // Since Debian 13 below `usr`.
    let directories = ["usr/lib/modules", "lib/modules"].map(|path| unpacked.join(path));
    let directory = directories.iter().find(|path| path.exists()).unwrap_or(&directories[0]);
    let modules = only_entry(directory, "")?;
    from_files(&OwnKernel { vmlinuz, modules: Some(modules) }, dest)
}

/// Copies a kernel and the modules that its guests need into `dest`.
pub(crate) fn from_files(kernel: &OwnKernel, dest: &Path) -> Result<(), BuildError> {
    let image = fs::read(&kernel.vmlinuz).map_err(io_at("read", &kernel.vmlinuz))?;
    // The boot protocol's magic number, which every bzImage has had since 1995.
    if image.get(0x202..0x206) != Some(b"HdrS") {
        return Err(BuildError::NotAKernel { path: kernel.vmlinuz.clone() });
    }
    let vmlinuz = dest.join(VMLINUZ);
    fs::write(&vmlinuz, image).map_err(io_at("write", &vmlinuz))?;
    let modules = dest.join(MODULES);
    fs::create_dir(&modules).map_err(io_at("create", &modules))?;
    let mut order = String::new();
    if let Some(source) = &kernel.modules {
        for file in Modules::read(source)?.load_order()? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            fs::copy(&file, modules.join(&name)).map_err(io_at("copy", &file))?;
            order.push_str(&name);
            order.push('\n');
        }
    }
    let list = modules.join(ORDER);
    fs::write(&list, order).map_err(io_at("write", &list))
}

fn only_entry(dir: &Path, prefix: &str) -> Result<PathBuf, BuildError> {
    let entries = fs::read_dir(dir).map_err(io_at("list", dir))?;
    let mut names = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let starts = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    names.find(starts).ok_or_else(|| BuildError::NotAKernel { path: dir.to_owned() })
}

/// The numbers in `linux-image-6.12.115+deb12-cloud-amd64`, so that 115 compares as more than 99.
pub(crate) fn numbers(package: &str) -> Vec<u64> {
    package.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::modules::tests::fake_tree;

    pub(crate) fn fake_kernel(dir: &Path) -> OwnKernel {
        let mut image = vec![0; 1024];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        let vmlinuz = dir.join("vmlinuz-own");
        fs::write(&vmlinuz, image).unwrap();
        let modules = dir.join("own-modules");
        fake_tree(&modules);
        OwnKernel { vmlinuz, modules: Some(modules) }
    }

    #[test]
    fn the_newest_kernel_is_the_one_with_the_highest_number() {
        let older = numbers("linux-image-6.12.99+deb12-cloud-amd64");
        let newer = numbers("linux-image-6.12.115+deb12-cloud-amd64");
        assert!(newer > older);
    }

    #[test]
    fn an_own_kernel_is_copied_with_its_modules_in_load_order() {
        let dir = tempfile::tempdir().unwrap();
        let dest = dir.path().join("dest");
        fs::create_dir(&dest).unwrap();
        from_files(&fake_kernel(dir.path()), &dest).unwrap();
        let order = fs::read_to_string(dest.join("modules/order")).unwrap();
        assert!(
            order.starts_with("virtio_blk.ko\nscsi_common.ko\n") && order.ends_with("virtio-net.ko.xz\n"),
            "{order}"
        );
        assert!(order.lines().all(|name| dest.join("modules").join(name).is_file()));
    }

    #[test]
    fn a_file_that_is_not_a_kernel_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let vmlinuz = dir.path().join("vmlinuz");
        fs::write(&vmlinuz, "#!/bin/sh\n").unwrap();
        let error = from_files(&OwnKernel { vmlinuz, modules: None }, dir.path()).unwrap_err();
        assert!(matches!(error, BuildError::NotAKernel { .. }), "{error}");
    }
}
