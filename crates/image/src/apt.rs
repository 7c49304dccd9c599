//! Queries to Debian's archive, with a separate apt state in a work directory.
//!
//! Mirrors, proxies and certificates come from the host's apt configuration, because they are known to work on this
//! machine. The host's installed packages, pins and package lists are neither used nor changed. No privilege is needed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{BuildError, io_at};
use crate::progress::{Progress, Report, Step};
use crate::tool::{Event, Tool, ToolError};
use crate::workspace::Workspace;

/// The keys of Debian's archive. Debian's package of the same name has it, on other distributions, too.
pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The size of an installation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) packages: u64,
    pub(crate) bytes: u64,
}

/// An apt with fresh package lists.
pub(crate) struct Apt {
    dir: PathBuf,
    suite: String,
}

impl Apt {
    /// Downloads the package lists of `suite`.
    pub(crate) fn update(workspace: &Workspace, suite: &str, report: Report<'_>) -> Result<Self, BuildError> {
        let apt = Self { dir: workspace.share("apt", 0o755)?, suite: suite.to_owned() };
        for directory in ["state", "state/lists", "state/lists/partial", "cache", "cache/archives/partial"] {
            workspace.share(&format!("apt/{directory}"), 0o755)?;
        }
        workspace.write("apt/status", 0o644, "")?;
        workspace.write("apt/sources.list", 0o644, &sources(suite)?)?;
        workspace.write("apt/apt.conf", 0o644, &apt.configuration())?;
        let mut progress = Progress::of(Step::PackageLists, suite);
        report(&progress);
        apt.tool("apt-get").args(["update", "--error-on=any"]).follow(|event| {
            if let Event::Line(line) = event {
                progress.detail = line.to_owned();
            }
            report(&progress);
        })?;
        Ok(apt)
    }

    pub(crate) fn sources(&self) -> PathBuf {
        self.dir.join("sources.list")
    }

    /// Checks that these packages can be installed on top of Debian's minimal system, and computes the size of it all.
    pub(crate) fn plan(&self, packages: &BTreeSet<String>) -> Result<Plan, BuildError> {
        let names = self.tool("apt-cache").arg("pkgnames").capture()?;
        let known: BTreeSet<&str> = names.lines().collect();
        let mut missing = packages.iter().map(String::as_str).filter(|name| !known.contains(name)).peekable();
        if missing.peek().is_some() {
            return Err(self.no_such_packages(missing));
        }
        // `--print-uris` fetches nothing and, unlike `--simulate`, still prints the size.
        let install = self.tool("apt-get").args(["install", "--print-uris", "--no-install-recommends", "--quiet"]);
        let minimal = ["?essential", "?priority(required)", "apt", "usr-is-merged"];
        let said = install.args(minimal).args(packages).capture().map_err(|error| self.refused(error))?;
        let count = said.lines().find_map(newly_installed).unwrap_or(0);
        Ok(Plan { packages: count, bytes: installed_bytes(&said).unwrap_or(0) })
    }

    /// A known name may not be installable: it can be a virtual package, or have broken dependencies.
    fn refused(&self, error: ToolError) -> BuildError {
        match error {
            ToolError::Failed { said, .. } => BuildError::NotInstallable { said, suite: self.suite.clone() },
            other => other.into(),
        }
    }

    /// The names of packages that match a regular expression.
    pub(crate) fn search(&self, pattern: &str) -> Result<Vec<String>, BuildError> {
        let found = self.tool("apt-cache").args(["search", "--names-only", pattern]).capture()?;
        Ok(found.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
    }

    pub(crate) fn version(&self, package: &str) -> Result<String, BuildError> {
        let shown = self.tool("apt-cache").args(["show", "--no-all-versions", package]).capture()?;
        let version = shown.lines().find_map(|line| line.strip_prefix("Version: "));
        version.map(str::to_owned).ok_or_else(|| self.no_such_packages([package]))
    }

    /// Downloads a package's file into `directory` and returns its path. Apt verifies it.
    pub(crate) fn download(
        &self,
        package: &str,
        directory: &Path,
        mut on: impl FnMut(Event<'_>),
    ) -> Result<PathBuf, BuildError> {
        self.tool("apt-get").args(["download", package]).current_dir(directory).follow(&mut on)?;
        let entries = fs::read_dir(directory).map_err(io_at("list", directory))?;
        let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let file = files.find(|path| path.extension().is_some_and(|extension| extension == "deb"));
        file.ok_or_else(|| self.no_such_packages([package]))
    }

    fn no_such_packages<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> BuildError {
        let packages = names.into_iter().map(|name| format!("`{name}`")).collect();
        BuildError::NoSuchPackage { packages, suite: self.suite.clone() }
    }

    fn tool(&self, program: &'static str) -> Tool {
        Tool::new(program).arg("-c").arg(self.dir.join("apt.conf"))
    }

    /// The configuration that apt reads after the host's own. It clears hooks that belong to the host's state.
    fn configuration(&self) -> String {
        let dir = self.dir.display();
        format!(
            r#"Dir::State "{dir}/state";
Dir::State::status "{dir}/status";
Dir::Cache "{dir}/cache";
Dir::Etc::sourcelist "{dir}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
APT::Architecture "amd64";
#clear APT::Architectures;
#clear APT::Update;
#clear Acquire::IndexTargets::deb::DEP-11;
Acquire::Languages "none";
"#
        )
    }
}

/// The host's settings for reaching an archive, as lines for `mmdebstrap --aptopt`.
pub(crate) fn host_options() -> Result<Vec<String>, ToolError> {
    const PREFIXES: [&str; 6] = [
        "acquire::http::",
        "acquire::https::",
        "acquire::check-valid-until",
        "acquire::check-date",
        "acquire::retries",
        "acquire::force",
    ];
    let dump = Tool::new("apt-config").arg("dump").capture()?;
    let wanted = |line: &&str| PREFIXES.iter().any(|prefix| line.to_ascii_lowercase().starts_with(prefix));
    let options = dump.lines().filter(wanted).filter(|line| !line.ends_with(" \"\";")).map(str::to_owned);
    // GnuTLS, which apt uses, does not know this variable. What the host's apt is configured with comes later and wins.
    let bundle = std::env::var("SSL_CERT_FILE").ok().filter(|path| !path.contains('"'));
    Ok(bundle.map(|path| format!("Acquire::https::CaInfo \"{path}\";")).into_iter().chain(options).collect())
}

/// A `sources.list` of the suite with the host's mirrors, or Debian's own on a host of another distribution.
fn sources(suite: &str) -> Result<String, ToolError> {
    let format = "$(REPO_URI)|$(RELEASE)|$(CODENAME)|$(COMPONENT)|$(ORIGIN)";
    let targets = Tool::new("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]).capture()?;
    let signed_by = if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
    let own = host_sources(&targets, suite).or_else(|| mirrored_sources(&targets, suite));
    let own = own.unwrap_or_else(|| public_archive(suite));
    Ok(own.iter().map(|entry| format!("deb {signed_by}{entry}\n")).collect())
}

/// One line of apt's `indextargets`: a part of an archive.
struct ArchivePart<'a> {
    uri: &'a str,
    release: &'a str,
    codename: &'a str,
    component: &'a str,
}

/// What the host's sources have of Debian, as far as the new system can reach it, too.
fn debian_parts(targets: &str) -> impl Iterator<Item = ArchivePart<'_>> {
    targets.lines().filter_map(|line| {
        let [uri, release, codename, component, origin] = line.split('|').collect::<Vec<_>>()[..] else { return None };
        let reachable = uri.starts_with("http://") || uri.starts_with("https://");
        let wanted = reachable && (origin == "Debian" || origin.is_empty()) && !component.is_empty();
        wanted.then_some(ArchivePart { uri, release, codename, component })
    })
}

/// The host's own sources of the suite.
fn host_sources(targets: &str, suite: &str) -> Option<Vec<String>> {
    let releases = [suite.to_owned(), format!("{suite}-updates"), format!("{suite}-security")];
    // Without a Release file, the name in sources.list identifies the suite.
    let of_suite = |part: &ArchivePart<'_>| releases.iter().any(|name| name == part.codename || name == part.release);
    let entry = |part: ArchivePart<'_>| format!("{} {} {}", part.uri, part.release, part.component);
    let found: Vec<String> = debian_parts(targets).filter(of_suite).map(entry).collect();
    // Updates without the release itself are of no use.
    let complete = found
        .iter()
        .any(|entry| entry.ends_with(" main") && !entry.contains("-updates ") && !entry.contains("-security "));
    complete.then_some(found)
}

/// The suite from the mirrors of the release that the host itself runs: a mirror has all of Debian's releases.
fn mirrored_sources(targets: &str, suite: &str) -> Option<Vec<String>> {
    let mirror = |is_security: bool| {
        let fits =
            |part: &ArchivePart<'_>| part.codename.ends_with("-security") == is_security && part.component == "main";
        debian_parts(targets).find(fits).map(|part| part.uri.to_owned())
    };
    let main = mirror(false)?;
    let mut found = vec![format!("{main} {suite} main"), format!("{main} {suite}-updates main")];
    found.extend(mirror(true).map(|security| format!("{security} {suite}-security main")));
    Some(found)
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

/// The suite from the mirrors that everybody can reach.
fn public_archive(suite: &str) -> Vec<String> {
    let public = public_sources(suite);
    public.lines().filter_map(|line| line.strip_prefix("deb ")).map(str::to_owned).collect()
}

/// Parses `0 upgraded, 60 newly installed, 0 to remove and 1 not upgraded.`
fn newly_installed(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" newly installed, ")?;
    before.split_whitespace().next_back()?.parse().ok()
}

/// Parses `After this operation, 955 MB of additional disk space will be used.`
fn installed_bytes(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.starts_with("After this operation, "))?;
    let mut words = line["After this operation, ".len()..].split_whitespace();
    let number: f64 = words.next()?.replace(',', "").parse().ok()?;
    let unit = match words.next()? {
        "GB" => 1e9,
        "MB" => 1e6,
        "kB" => 1e3,
        _ => 1.0,
    };
    Some((number * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hosts_mirrors_of_the_suite_are_used() {
        let targets = "http://mirror.example/debian/|bookworm|bookworm|main|Debian\n\
                       http://mirror.example/debian/|stable-updates|bookworm-updates|main|Debian\n\
                       https://node.example/node_20.x/|nodistro|nodistro|main|. nodistro\n\
                       cdrom://x/|bookworm|bookworm|main|Debian\n\
                       http://other.example/|trixie|trixie|main|Debian\n";
        let expected =
            ["http://mirror.example/debian/ bookworm main", "http://mirror.example/debian/ stable-updates main"];
        assert_eq!(host_sources(targets, "bookworm").unwrap(), expected);
    }

    #[test]
    fn another_release_comes_from_the_hosts_mirrors() {
        let targets = "https://node.example/node_20.x/|nodistro|nodistro|main|. nodistro\n\
                       http://mirror.example/debian/|bookworm|bookworm|main|Debian\n\
                       http://mirror.example/security/|bookworm-security|bookworm-security|main|Debian\n";
        assert_eq!(host_sources(targets, "trixie"), None);
        let expected = [
            "http://mirror.example/debian/ trixie main",
            "http://mirror.example/debian/ trixie-updates main",
            "http://mirror.example/security/ trixie-security main",
        ];
        assert_eq!(mirrored_sources(targets, "trixie").unwrap(), expected);
    }

    #[test]
    fn mirrors_of_an_incomplete_suite_are_not_used() {
        let targets = "http://other.example/ubuntu/|noble|noble|main|Ubuntu\n\
                       http://mirror.example/debian-security/|bookworm-security|bookworm-security|main|Debian\n";
        assert!(host_sources(targets, "bookworm").is_none());
        let ubuntu = "http://other.example/ubuntu/|noble|noble|main|Ubuntu\n";
        assert!(mirrored_sources(ubuntu, "trixie").is_none());
        assert_eq!(public_archive("sid"), ["http://deb.debian.org/debian sid main"]);
    }

    #[test]
    fn a_release_has_its_updates_and_sid_has_none() {
        let lines = |suite: &str| public_sources(suite).lines().count();
        assert_eq!((lines("bookworm"), lines("sid")), (3, 1));
        assert!(public_sources("bookworm").contains("/debian-security bookworm-security main\n"));
    }

    #[test]
    fn apts_summary_of_an_installation_is_parsed() {
        assert_eq!(newly_installed("0 upgraded, 60 newly installed, 0 to remove and 1 not upgraded."), Some(60));
        let said =
            "Need to get 194 MB of archives.\nAfter this operation, 1,234 kB of additional disk space will be used.\n";
        assert_eq!(installed_bytes(said), Some(1_234_000));
        assert_eq!(installed_bytes("nothing of the kind"), None);
    }
}
