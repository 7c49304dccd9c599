//! Installs Debian packages into a directory tree, with mmdebstrap.
//!
//! It runs in a jail, which ends with the build, so an interrupted build leaves no processes and no mounts on the host.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use super::output::Output;
use crate::apt::{Apt, Plan};
use crate::desktop;
use crate::error::{BuildError, io_at};
use crate::jail;
use crate::progress::Report;
use crate::recipe::Recipe;
use crate::tool::{self, Event, Tool, is_ordinary_user};
use crate::workspace::{TREE, Workspace};

const HOOKS: &str = "hooks";

/// Only one build can install packages at a time, so a stuck one must not block the others for good.
const LONGEST: Duration = Duration::from_secs(20 * 60);

const SETUP: &str = include_str!("../hooks/setup-lists.sh");

/// Part of a root's inputs: any change to the script makes another root.
pub(crate) const CUSTOMIZE: &str = include_str!("../hooks/customize-system.sh");

/// Part of the inputs of a root with packages from npm.
pub(crate) const NPM: &str = include_str!("../hooks/customize-npm.sh");

/// Part of the inputs of a root with a desktop.
pub(crate) const DESKTOP: &str = include_str!("../hooks/customize-desktop.sh");

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

/// Installs the recipe's packages. Returns the path of the tree.
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
    // If this process is killed, the jail ends a moment later. The next build must not remove its workspace meanwhile, so
    // the jail's first process also holds the store's lock, as its stdin.
    let lock = lock.try_clone().map_err(io_at("share the lock of", workspace.dir()))?;
    let mut output = Output::new(plan.packages);
    tool.stdin(lock).within(LONGEST).follow(|event| {
        if let Event::Line(line) = event {
            output.add_line(line);
        }
        report(&output.progress());
    })?;
    Ok(workspace.dir().join(TREE))
}

fn write_scripts(recipe: &Recipe, workspace: &Workspace) -> Result<(), BuildError> {
    // A script's name tells mmdebstrap when to run it.
    workspace.share(HOOKS, 0o755)?;
    workspace.write(&format!("{HOOKS}/setup-lists.sh"), 0o755, SETUP)?;
    workspace.write(&format!("{HOOKS}/customize-system.sh"), 0o755, CUSTOMIZE)?;
    if !recipe.npm.is_empty() {
        // Runs before `customize-system.sh`, which removes the host's resolver.
        workspace.write(&format!("{HOOKS}/customize-npm.sh"), 0o755, NPM)?;
        let packages: Vec<&str> = recipe.npm.iter().map(String::as_str).collect();
        workspace.write("npm-packages", 0o644, &packages.join("\n"))?;
    }
    if recipe.desktop.is_some() {
        workspace.write(&format!("{HOOKS}/customize-desktop.sh"), 0o755, DESKTOP)?;
        workspace.share("desktop", 0o755)?;
        for (name, content) in desktop::FILES {
            workspace.write(&format!("desktop/{name}"), 0o644, content)?;
        }
    }
    workspace.write("public-sources.list", 0o644, &public_sources(&recipe.suite))?;
    Ok(())
}

/// Debian's public mirrors, which a sandbox reaches if its policy allows the preset `debian`. The mirrors of the host may be
/// reachable from the host only.
pub(crate) fn public_sources(suite: &str) -> String {
    let main = format!("deb http://deb.debian.org/debian {suite} main\n");
    match suite {
        // They have no updates beside them.
        "sid" | "unstable" | "experimental" => main,
        _ => {
            let updates = format!("deb http://deb.debian.org/debian {suite}-updates main\n");
            let security = format!("deb http://deb.debian.org/debian-security {suite}-security main\n");
            main + &updates + &security
        }
    }
}

fn mmdebstrap(recipe: &Recipe, apt: &Apt, workspace: &Workspace) -> Result<Tool, BuildError> {
    workspace.share("target", 0o777)?;
    let tool = jail::mmdebstrap(apt, workspace, &workspace.dir().join(HOOKS))?
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_its_updates_and_sid_has_none() {
        let lines = |suite: &str| public_sources(suite).lines().count();
        assert_eq!((lines("bookworm"), lines("sid")), (3, 1));
        assert!(public_sources("bookworm").contains("/debian-security bookworm-security main\n"));
    }
}
