//! Debian packages into a directory tree, with mmdebstrap.
//!
//! Always in its `unshare` mode: as root that means a mount namespace, so that an interrupted build leaves no mounts
//! on the host; as an ordinary user also a user namespace.

use std::fs::File;
use std::path::PathBuf;

use super::output::Output;
use super::workspace::{Workspace, is_ordinary_user};
use crate::apt::{self, Apt, Plan};
use crate::error::{BuildError, io_at};
use crate::progress::Report;
use crate::recipe::Recipe;
use crate::tool::{self, Event, Tool};

/// Where the tree is within the workspace.
pub(crate) const TREE: &str = "target/tree";

const HOOKS: &str = "hooks";

const SETUP: &str = include_str!("../hooks/setup-lists.sh");

/// Part of a root's inputs: another script makes another root.
pub(crate) const CUSTOMIZE: &str = include_str!("../hooks/customize-system.sh");

/// Part of the inputs of a root with packages from npm.
pub(crate) const NPM: &str = include_str!("../hooks/customize-npm.sh");

/// Settings that stay in the image, because they hold for packages installed in a sandbox, too: no manuals, no
/// translations (licences stay), and no waiting for a disk whose writes outlive nothing.
pub(crate) const DPKG_OPTIONS: [&str; 8] = [
    "force-unsafe-io",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
    "path-exclude=/usr/share/lintian/*",
];

/// Directories, not `/lib -> usr/lib`, are what mmdebstrap makes without this hook, and then `usrmerge` brings Perl.
const MERGED_USR: &str = "/usr/share/mmdebstrap/hooks/merged-usr";

/// Installs what the recipe asks for; returns where the tree is.
pub(crate) fn bootstrap(
    recipe: &Recipe,
    apt: &Apt,
    plan: Plan,
    workspace: &Workspace,
    lock: &File,
    report: Report<'_>,
) -> Result<PathBuf, BuildError> {
    if is_ordinary_user() && tool::find("newuidmap").is_none() {
        return Err(BuildError::NoUidMap);
    }
    write_scripts(recipe, workspace)?;
    let tool = mmdebstrap(recipe, apt, workspace)?;
    // Should we be killed, mmdebstrap goes on until it wants to say something. Its workspace must not be swept from
    // under it meanwhile, so it holds the store's lock, too: as its standard input, which all its children inherit.
    let lock = lock.try_clone().map_err(io_at("share the lock of", workspace.dir()))?;
    let mut output = Output::new(plan.packages);
    tool.stdin(lock).follow(|event| {
        if let Event::Line(line) = event {
            output.hear(line);
        }
        report(&output.progress());
    })?;
    Ok(workspace.dir().join(TREE))
}

fn write_scripts(recipe: &Recipe, workspace: &Workspace) -> Result<(), BuildError> {
    // mmdebstrap knows by its name when to run a script.
    workspace.share(HOOKS, 0o755)?;
    workspace.write(&format!("{HOOKS}/setup-lists.sh"), 0o755, SETUP)?;
    workspace.write(&format!("{HOOKS}/customize-system.sh"), 0o755, CUSTOMIZE)?;
    if !recipe.npm.is_empty() {
        // Before the system's own, which takes the host's resolver away.
        workspace.write(&format!("{HOOKS}/customize-npm.sh"), 0o755, NPM)?;
        let packages: Vec<&str> = recipe.npm.iter().map(String::as_str).collect();
        workspace.write("npm-packages", 0o644, &packages.join("\n"))?;
    }
    // The host's mirrors may be reachable from the host only; a sandbox has no network unless it is given one.
    workspace.write(
        "public-sources.list",
        0o644,
        "# Debian's mirrors, for a sandbox that may reach them, go here.\n",
    )?;
    Ok(())
}

fn mmdebstrap(recipe: &Recipe, apt: &Apt, workspace: &Workspace) -> Result<Tool, BuildError> {
    workspace.share("target", 0o777)?;
    let tool = Tool::new("mmdebstrap")
        .args(["--verbose", "--mode=unshare", "--variant=minbase", "--format=directory"])
        // The lists are brought by a script and taken away by another. mmdebstrap would take them away with an apt
        // that, should its configuration have got lost on the way, empties the host's lists instead.
        .arg("--skip=update,cleanup/apt")
        .args(apt::host_options()?.iter().map(|option| format!("--aptopt={option}")))
        .args(DPKG_OPTIONS.iter().map(|option| format!("--dpkgopt={option}")))
        .arg(format!("--include={}", included(recipe)))
        .arg(format!("--hook-dir={MERGED_USR}"))
        .arg(format!("--hook-dir={}", workspace.dir().join(HOOKS).display()))
        .arg(&recipe.suite)
        .args([workspace.dir().join(TREE), apt.sources()]);
    Ok(tool.env("TMPDIR", workspace.dir()))
}

fn included(recipe: &Recipe) -> String {
    let packages = recipe.packages.iter().map(String::as_str).chain(["usr-is-merged"]);
    packages.collect::<Vec<_>>().join(",")
}
