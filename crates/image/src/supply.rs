//! The source of a build's packages, as a trait, so that tests of the store download nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use crate::error::BuildError;
use crate::kernel::KernelOrigin;
use crate::progress::Report;
use crate::recipe::Recipe;

/// Makes one [`Session`] per build.
pub(crate) trait Supply: Send + Sync {
    /// Begins a build. `lock` is the store's lock, which the caller holds.
    fn begin<'a>(
        &'a self,
        store: &Path,
        recipe: &'a Recipe,
        lock: &'a File,
    ) -> Result<Box<dyn Session + 'a>, BuildError>;
}

/// One build's access to packages. It fetches the package lists once, when it first needs them.
pub(crate) trait Session {
    /// Writes the root disk to `image`; `fresh` without anything of earlier builds. Returns the installed packages with
    /// their versions.
    fn root(&self, image: &Path, fresh: bool, report: Report<'_>) -> Result<BTreeMap<String, String>, BuildError>;

    /// Writes the newest kernel into the directory `dest`, unless `known` returns true for it.
    fn kernel(
        &self,
        dest: &Path,
        known: &dyn Fn(&KernelOrigin) -> bool,
        report: Report<'_>,
    ) -> Result<KernelOrigin, BuildError>;
}
