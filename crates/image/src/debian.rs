//! The package source that uses Debian's archive.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::apt::Apt;
use crate::error::BuildError;
use crate::kernel::{self, KernelOrigin};
use crate::progress::{Progress, Report, Step, while_waiting};
use crate::recipe::Recipe;
use crate::root::{bootstrap, ext4, tree};
use crate::space;
use crate::supply::{Session, Supply};
use crate::workspace::Workspace;

pub(crate) struct Debian;

impl Supply for Debian {
    fn begin<'a>(
        &'a self,
        store: &Path,
        recipe: &'a Recipe,
        lock: &'a File,
    ) -> Result<Box<dyn Session + 'a>, BuildError> {
        let workspace = Workspace::create(store)?;
        Ok(Box::new(DebianSession { store: store.to_owned(), recipe, lock, workspace, apt: OnceCell::new() }))
    }
}

struct DebianSession<'a> {
    store: PathBuf,
    recipe: &'a Recipe,
    lock: &'a File,
    workspace: Workspace,
    apt: OnceCell<Apt>,
}

impl DebianSession<'_> {
    fn apt(&self, report: Report<'_>) -> Result<&Apt, BuildError> {
        if let Some(apt) = self.apt.get() {
            return Ok(apt);
        }
        let apt = Apt::update(&self.workspace, &self.recipe.suite, report)?;
        Ok(self.apt.get_or_init(|| apt))
    }
}

impl Session for DebianSession<'_> {
    fn root(&self, image: &Path, report: Report<'_>) -> Result<BTreeMap<String, String>, BuildError> {
        let apt = self.apt(report)?;
        let progress = Progress::of(Step::PackageLists, "planning the installation");
        let plan = while_waiting(&progress, report, || apt.plan(&self.recipe.packages))?;
        // The packages are kept beside their unpacked files until the tree is finished.
        space::check(&[(self.workspace.dir(), plan.bytes + plan.bytes / 3), (&self.store, plan.bytes)])?;
        let tree = bootstrap::bootstrap(self.recipe, apt, plan, &self.workspace, self.lock, report)?;
        let installed = tree::installed_packages(&tree, self.recipe)?;
        ext4::make_image(&tree, image, self.recipe.disk_mib, report)?;
        self.workspace.discard_tree(report)?;
        Ok(installed)
    }

    fn kernel(
        &self,
        dest: &Path,
        known: &dyn Fn(&KernelOrigin) -> bool,
        report: Report<'_>,
    ) -> Result<KernelOrigin, BuildError> {
        let apt = self.apt(report)?;
        let progress = Progress::of(Step::Kernel, "looking for the newest");
        let (package, version) = while_waiting(&progress, report, || kernel::newest(apt, &self.recipe.suite))?;
        let origin = KernelOrigin::Debian { package: package.clone(), version };
        if !known(&origin) {
            kernel::from_debian(apt, &package, &self.workspace, dest, report)?;
        }
        Ok(origin)
    }
}
