//! Installs Debian packages into a directory tree, with mmdebstrap.
//!
//! It runs in a jail, which ends with the build, so an interrupted build leaves no processes and no mounts on the host.

use std::fs::{self, File};
use std::time::Duration;

use super::additions::FINISH_HOOK;
use super::output::Output;
use crate::apt::{Apt, Plan, public_sources};
use crate::error::{BuildError, io_at};
use crate::jail;
use crate::progress::Report;
use crate::recipe::Recipe;
use crate::tool::{self, Event, Tool, is_ordinary_user};
use crate::workspace::{TREE, Workspace};

const HOOKS: &str = "hooks";
/// The file beside the hooks that becomes the `sources.list` of sandboxes.
pub(super) const PUBLIC_SOURCES: &str = "public-sources.list";

/// Only one build can install packages at a time, so a stuck one must not block the others for good.
const LONGEST: Duration = Duration::from_secs(20 * 60);

const LISTS: &str = include_str!("../hooks/lists.sh");

/// Part of a tree's inputs: any change to the script makes another tree.
pub(crate) const CUSTOMIZE: &str = include_str!("../hooks/system.sh");

/// Settings that stay in the image, because they also apply to packages installed in a sandbox: no manuals, no
/// translations (licences stay), and no waiting for a disk that is not durable anyway.
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

/// Without this hook, mmdebstrap makes directories instead of links like `/lib -> usr/lib`, and then `usrmerge` needs
/// Perl.
const MERGED_USR: &str = "/usr/share/mmdebstrap/hooks/merged-usr";

/// Installs the recipe's packages of Debian.
pub(crate) fn bootstrap(
    recipe: &Recipe,
    apt: &Apt,
    plan: Plan,
    workspace: &Workspace,
    lock: &File,
    report: Report<'_>,
) -> Result<(), BuildError> {
    if is_ordinary_user() && tool::find("newuidmap").is_none() {
        return Err(BuildError::NoUidMap);
    }
    let hooks = [("setup-lists.sh", LISTS), ("customize-1-system.sh", CUSTOMIZE), FINISH_HOOK];
    write_hooks(workspace, HOOKS, &hooks)?;
    workspace.write(PUBLIC_SOURCES, 0o644, &public_sources(&recipe.suite))?;
    run(mmdebstrap(recipe, apt, workspace)?, Output::new(plan.packages), workspace, lock, report)
}

/// Scripts for mmdebstrap, which runs them in the order of their names. The first word tells it when.
pub(super) fn write_hooks(
    workspace: &Workspace,
    directory: &str,
    hooks: &[(&'static str, &'static str)],
) -> Result<(), BuildError> {
    workspace.share(directory, 0o755)?;
    for (name, script) in hooks {
        workspace.write(&format!("{directory}/{name}"), 0o755, script)?;
    }
    Ok(())
}

/// Runs mmdebstrap to its end.
pub(super) fn run(
    tool: Tool,
    mut output: Output,
    workspace: &Workspace,
    lock: &File,
    report: Report<'_>,
) -> Result<(), BuildError> {
    // If this process is killed, the jail ends a moment later. The next build must not remove its workspace meanwhile, so
    // the jail's first process also holds the store's lock, as its stdin.
    let lock = lock.try_clone().map_err(io_at("share the lock of", workspace.dir()))?;
    tool.stdin(lock).within(LONGEST).follow(|event| {
        if let Event::Line(line) = event {
            output.add_line(line);
        }
        report(&output.progress());
    })?;
    Ok(())
}

fn mmdebstrap(recipe: &Recipe, apt: &Apt, workspace: &Workspace) -> Result<Tool, BuildError> {
    workspace.share("target", 0o777)?;
    let sources = fs::read_to_string(apt.sources()).map_err(io_at("read", &apt.sources()))?;
    let tool = jail::mmdebstrap(&sources, workspace, &workspace.dir().join(HOOKS))?
        .args(["--verbose", "--variant=minbase", "--format=directory"])
        // Scripts bring the lists and remove them. mmdebstrap would remove them with an apt that empties the host's
        // lists if its configuration gets lost.
        .arg("--skip=update,cleanup/apt")
        .args(DPKG_OPTIONS.iter().map(|option| format!("--dpkgopt={option}")))
        .arg(format!("--include={}", included(recipe)))
        .arg(format!("--hook-dir={MERGED_USR}"))
        .arg(format!("--hook-dir={}", workspace.dir().join(HOOKS).display()))
        .arg(&recipe.suite)
        .args([workspace.dir().join(TREE), apt.sources()]);
    Ok(tool)
}

fn included(recipe: &Recipe) -> String {
    let packages = recipe.packages.iter().map(String::as_str).chain(["usr-is-merged"]);
    packages.collect::<Vec<_>>().join(",")
}
