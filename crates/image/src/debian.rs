//! The package source that uses Debian's archive.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::apt::Apt;
use crate::builtin::builtin_recipes;
use crate::error::BuildError;
use crate::inputs;
use crate::kernel::{self, KernelOrigin};
use crate::progress::{Progress, Report, Step, while_waiting};
use crate::recipe::Recipe;
use crate::root::kept_tree::KeptTree;
use crate::root::{additions, bootstrap, ext4, tree};
use crate::space;
use crate::supply::{Session, Supply};
use crate::workspace::{TREE, Workspace};

pub(crate) struct Debian {
    /// The program that becomes the launcher of the build's jail.
    pub(crate) launcher: PathBuf,
}

impl Supply for Debian {
    fn begin<'a>(
        &'a self,
        store: &Path,
        recipe: &'a Recipe,
        lock: &'a File,
    ) -> Result<Box<dyn Session + 'a>, BuildError> {
        let workspace = Workspace::create(store, &self.launcher)?;
        Ok(Box::new(DebianSession { store: store.to_owned(), recipe, lock, workspace, apt: OnceCell::new() }))
    }
}

/// How much larger a tree is than its archive, at most.
const TREE_RATIO: u64 = 4;
/// What Node, and packages from npm and PyPI may take.
const ADDITIONS_BYTES: u64 = 1 << 30;

/// Whether other built-in templates begin with the same tree.
fn is_shared(recipe: &Recipe) -> bool {
    let tree = inputs::of_tree(recipe);
    builtin_recipes().iter().filter(|built_in| inputs::of_tree(built_in) == tree).count() > 1
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

    /// Unpacks the tree of an earlier build. Returns false if there is none.
    fn unpack(&self, kept: &KeptTree, report: Report<'_>) -> Result<bool, BuildError> {
        let Some(size) = kept.size() else { return Ok(false) };
        let bytes = size * TREE_RATIO + ADDITIONS_BYTES;
        space::check(&[(self.workspace.dir(), bytes), (&self.store, bytes)])?;
        kept.unpack(&self.workspace, report)
    }

    /// Installs Debian's packages.
    fn bootstrap(&self, report: Report<'_>) -> Result<(), BuildError> {
        let apt = self.apt(report)?;
        let progress = Progress::of(Step::PackageLists, "planning the installation");
        let plan = while_waiting(&progress, report, || apt.plan(&self.recipe.packages))?;
        // The packages are kept beside their unpacked files until the tree is finished.
        let in_store = plan.bytes + ADDITIONS_BYTES;
        space::check(&[(self.workspace.dir(), in_store + plan.bytes / 3), (&self.store, in_store)])?;
        bootstrap::bootstrap(self.recipe, apt, plan, &self.workspace, self.lock, report)
    }
}

impl Session for DebianSession<'_> {
    fn root(&self, image: &Path, fresh: bool, report: Report<'_>) -> Result<BTreeMap<String, String>, BuildError> {
        let kept = KeptTree::new(&self.store, &inputs::of_tree(self.recipe));
        if fresh || !self.unpack(&kept, report)? {
            self.bootstrap(report)?;
            if is_shared(self.recipe) {
                kept.keep(&self.workspace, report)?;
            }
        }
        additions::add(self.recipe, &self.workspace, self.lock, report)?;
        let tree = self.workspace.dir().join(TREE);
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
