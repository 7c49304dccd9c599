//! Where a build's raw material comes from, as a seam: the store's rules are tested without downloading a system.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use crate::error::BuildError;
use crate::kernel::KernelOrigin;
use crate::progress::Report;
use crate::recipe::Recipe;

/// Makes one [`Session`] per build.
pub(crate) trait Supply: Send + Sync {
    /// `lock` is the store's, held.
    fn begin<'a>(
        &'a self,
        store: &Path,
        recipe: &'a Recipe,
        lock: &'a File,
    ) -> Result<Box<dyn Session + 'a>, BuildError>;
}

/// One build's access to packages. What it needs for both jobs (package lists) it fetches once, and only if asked.
pub(crate) trait Session {
    /// Writes the root disk to `image`; returns the installed packages with their versions.
    fn root(&self, image: &Path, report: Report<'_>) -> Result<BTreeMap<String, String>, BuildError>;

    /// Writes the newest kernel into the directory `dest`, unless that is the one `known` says yes to.
    fn kernel(
        &self,
        dest: &Path,
        known: &dyn Fn(&KernelOrigin) -> bool,
        report: Report<'_>,
    ) -> Result<KernelOrigin, BuildError>;
}
