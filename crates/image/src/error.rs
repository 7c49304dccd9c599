//! Why a template could not be built or loaded.

use std::io;
use std::path::{Path, PathBuf};

use crate::name::{ContentId, TemplateName};
use crate::recipe::RecipeError;
use crate::tool::ToolError;
use crate::trust::Untrusted;

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error("{} in Debian {suite}", does_not_exist(packages))]
    NoSuchPackage { packages: Vec<String>, suite: String },
    #[error("these packages cannot be installed together in Debian {suite}: {said}")]
    NotInstallable { said: String, suite: String },
    #[error("not enough disk space at {}: {needed_mib} MiB are needed, {free_mib} MiB are free", .at.display())]
    NoSpace { at: PathBuf, needed_mib: u64, free_mib: u64 },
    #[error("a disk of {disk_mib} MiB is too small for these packages")]
    DiskTooSmall { disk_mib: u32 },
    #[error(
        "an ordinary user needs `newuidmap` to build a template; `apt-get install uidmap` brings it (or build as root)"
    )]
    NoUidMap,
    #[error("no kernel package of the 6.12 series for clouds was found in Debian {suite}")]
    NoKernelPackage { suite: String },
    #[error("{} is not a Linux kernel (a bzImage, often named vmlinuz)", .path.display())]
    NotAKernel { path: PathBuf },
    #[error("the kernel lacks `{module}`: it is neither built in nor among its modules")]
    NoModule { module: String },
    #[error("the kernel module {} cannot be read: {reason}", .path.display())]
    BadModule { path: PathBuf, reason: String },
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error("the disk is full (could not {doing} {})", .path.display())]
    DiskFull { doing: &'static str, path: PathBuf },
    #[error("could not {doing} {}", .path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Load(#[from] LoadError),
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("template `{name}` has not been built; `sandling template build {name}` builds it")]
    NotBuilt { name: TemplateName },
    #[error("template `{name}` is damaged ({what}); `sandling template build {name} --force` repairs it")]
    Damaged { name: TemplateName, what: String },
    #[error("image {id} is damaged ({what})")]
    DamagedImage { id: ContentId, what: String },
    #[error(
        "image {id} was written by a newer Sandling (its format is {format}); upgrade Sandling, or build the template \
         again with this release"
    )]
    TooNew { id: ContentId, format: u32 },
    #[error("a template's file cannot be trusted")]
    Untrusted(#[from] Untrusted),
    #[error("could not {doing} {}", .path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

fn does_not_exist(packages: &[String]) -> String {
    match packages {
        [one] => format!("package {one} does not exist"),
        many => format!("packages {} do not exist", many.join(", ")),
    }
}

/// For `map_err`: adds the action and the path to an I/O error.
pub(crate) fn io_at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull => BuildError::DiskFull { doing, path: path.to_owned() },
        _ => BuildError::Io { doing, path: path.to_owned(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_packages_are_named_in_one_sentence() {
        let one = BuildError::NoSuchPackage { packages: vec!["`foo`".into()], suite: "bookworm".into() };
        assert_eq!(one.to_string(), "package `foo` does not exist in Debian bookworm");
        let two = BuildError::NoSuchPackage { packages: vec!["`a`".into(), "`b`".into()], suite: "bookworm".into() };
        assert_eq!(two.to_string(), "packages `a`, `b` do not exist in Debian bookworm");
    }

    #[test]
    fn a_full_disk_is_a_separate_error() {
        let full = io_at("write", Path::new("/x"))(io::ErrorKind::StorageFull.into());
        assert!(matches!(full, BuildError::DiskFull { .. }));
    }
}
