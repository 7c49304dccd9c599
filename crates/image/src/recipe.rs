//! A recipe: the data that says what a template is made of.

use std::collections::BTreeSet;

use sandling_oci::{Config, Digest};
use sandling_protocol::Language;
use serde::{Deserialize, Serialize};

use crate::desktop::Desktop;
use crate::name::{BadTemplateName, TemplateName};

/// Everything that a template is built from. The manifest holds it, so that the template can be built again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    pub name: TemplateName,
    pub description: String,
    /// The code name of Debian's release.
    pub suite: String,
    /// Debian packages, in addition to the essential ones.
    pub packages: BTreeSet<String>,
    /// Packages from npm, `name` or `name@version`, installed for all users. Their install scripts are not run.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub npm: BTreeSet<String>,
    /// Wheels from PyPI, `name==version`, with all that they need: nothing else is installed for them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pip: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeRelease>,
    /// The OCI image that the root disk is made of. Then there are no packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciImage>,
    /// The size of the root disk in the guest. The file on the host is sparse.
    pub disk_mib: u32,
    pub vcpus: u32,
    pub memory_mib: u32,
    /// The limit for the user's processes and threads.
    pub pids: u32,
    /// Interpreters that run, with their imports done, when the snapshot is taken.
    pub warm: Vec<Warm>,
    /// The screen and session that run when the snapshot is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desktop: Option<Desktop>,
}

/// An OCI image, as its registry or archive described it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OciImage {
    /// The name that a user gave, for display.
    pub reference: String,
    /// The digest of its manifest.
    pub digest: Digest,
    /// The digests of its layers as the registry or archive stores them, the lowest first.
    pub blobs: Vec<Digest>,
    /// The digests of its uncompressed layers, in the same order.
    pub layers: Vec<Digest>,
    /// How to run its program.
    pub config: Config,
}

/// A Node that is newer than Debian's. npm's registry has its program and npm as packages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRelease {
    pub node: PinnedArchive,
    pub npm: PinnedArchive,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedArchive {
    pub version: String,
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warm {
    pub language: Language,
    pub imports: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    #[error("there is no template `{name}`; there are {}", .known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error(transparent)]
    BadName(#[from] BadTemplateName),
    #[error("the name `{name}` is reserved for a built-in template; choose another")]
    Reserved { name: String },
    #[error("`{package}` cannot be a Debian package's name")]
    BadPackage { package: String },
    #[error("`{package}` cannot be a package of npm: give its name, or name@version")]
    BadNpm { package: String },
    #[error("`{package}` cannot be a pinned package of PyPI: give name==version")]
    BadPip { package: String },
    #[error("`{version}` cannot be a version of Node or npm, or it has no SHA-256")]
    BadNode { version: String },
    #[error("{what} of {given} is outside {least} to {most}")]
    OutOfRange { what: &'static str, given: u32, least: u32, most: u32 },
}

impl Recipe {
    /// Validates a recipe from a manifest or a caller, so that a bad one fails here and not deep inside a build.
    pub fn check(&self) -> Result<(), RecipeError> {
        if let Some(package) = self.packages.iter().find(|package| !is_debian_package(package)) {
            return Err(RecipeError::BadPackage { package: package.clone() });
        }
        if let Some(package) = self.npm.iter().find(|package| !is_npm_package(package)) {
            return Err(RecipeError::BadNpm { package: package.clone() });
        }
        if let Some(package) = self.pip.iter().find(|package| !is_pinned_wheel(package)) {
            return Err(RecipeError::BadPip { package: package.clone() });
        }
        let archives = self.node.iter().flat_map(|release| [&release.node, &release.npm]);
        if let Some(archive) = archives.into_iter().find(|archive| !archive.is_valid()) {
            return Err(RecipeError::BadNode { version: archive.version.clone() });
        }
        within("a disk (MiB)", self.disk_mib, 512, 1024 * 1024)?;
        within("a number of vCPUs", self.vcpus, 1, 64)?;
        within("a memory size (MiB)", self.memory_mib, 128, 256 * 1024)?;
        within("a limit of processes", self.pids, 16, 1024 * 1024)
    }
}

impl PinnedArchive {
    fn is_valid(&self) -> bool {
        is_version(&self.version) && self.sha256.len() == 64 && self.sha256.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

/// Follows Debian Policy 5.6.1. Names become arguments of apt, where a leading dash would start an option.
pub fn is_debian_package(name: &str) -> bool {
    let starts_well = name.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit());
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    // To apt, a trailing `-` means "remove" and a trailing `+` means "install"; only names like `g++` may end so.
    let ends_well = !name.ends_with('-') && (!name.ends_with('+') || name.ends_with("++"));
    name.len() >= 2 && starts_well && ends_well && name.bytes().all(allowed)
}

/// The name of an npm package without its version.
pub(crate) fn npm_name(package: &str) -> &str {
    // An `@` at the start belongs to a scope.
    let version = package.char_indices().skip(1).find(|(_, character)| *character == '@');
    version.map_or(package, |(at, _)| &package[..at])
}

/// Allows packages from the registry only; npm would also take paths, URLs and repositories.
pub fn is_npm_package(package: &str) -> bool {
    let name = npm_name(package);
    let is_part = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
        part.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
            && part.bytes().all(allowed)
    };
    let is_name = match name.strip_prefix('@').map(|scoped| scoped.split_once('/')) {
        Some(scoped) => scoped.is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
        None => is_part(name),
    };
    // npm takes these as files, wherever they stand.
    let is_file = [".tgz", ".tar.gz", ".tar"].iter().any(|end| package.to_ascii_lowercase().ends_with(end));
    !is_file && is_name && package[name.len()..].strip_prefix('@').is_none_or(is_version)
}

/// The name and the version of a package from PyPI.
pub(crate) fn pinned_wheel(package: &str) -> Option<(&str, &str)> {
    let (name, version) = package.split_once("==")?;
    let is_name = name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    (is_name && is_version(version)).then_some((name, version))
}

fn is_pinned_wheel(package: &str) -> bool {
    pinned_wheel(package).is_some()
}

fn is_version(version: &str) -> bool {
    version.starts_with(|first: char| first.is_ascii_alphanumeric())
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.+".contains(&byte))
}

fn within(what: &'static str, given: u32, least: u32, most: u32) -> Result<(), RecipeError> {
    if (least..=most).contains(&given) { Ok(()) } else { Err(RecipeError::OutOfRange { what, given, least, most }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::resolve;

    #[test]
    fn a_package_name_with_another_meaning_to_apt_is_refused() {
        let mut recipe = resolve("base").unwrap().recipe;
        for bad in
            ["-oDebug=1", "a", "Foo", "foo bar", "foo=1", "foo-", "foo+", "foo,bar", "?installed", "foo/sid", "a;b"]
        {
            assert!(!is_debian_package(bad), "{bad}");
        }
        for good in ["g++", "libstdc++6", "python3.11", "0ad"] {
            assert!(is_debian_package(good), "{good}");
        }
        recipe.packages.insert("-oDebug=1".to_owned());
        assert_eq!(recipe.check(), Err(RecipeError::BadPackage { package: "-oDebug=1".to_owned() }));
    }

    #[test]
    fn an_npm_package_must_be_a_name_with_or_without_a_version() {
        for bad in [
            "",
            "-g",
            "./x",
            "/x",
            "@x",
            "@x/",
            "a@",
            "a@-1",
            "a b",
            "git+ssh://x",
            "user/repo",
            "a@file:x",
            "A",
            "x.tgz",
            "a@x.TAR",
            "a@npm:b",
        ] {
            assert!(!is_npm_package(bad), "{bad}");
        }
        for (good, name) in [("cowsay", "cowsay"), ("@a/b.c@1.2.3-x+y", "@a/b.c"), ("semver@latest", "semver")] {
            assert!(is_npm_package(good), "{good}");
            assert_eq!(npm_name(good), name);
        }
        let mut recipe = resolve("base").unwrap().recipe;
        recipe.npm.insert("./x".to_owned());
        assert_eq!(recipe.check(), Err(RecipeError::BadNpm { package: "./x".to_owned() }));
    }

    #[test]
    fn a_package_of_pypi_and_a_node_must_be_pinned() {
        let mut recipe = resolve("base").unwrap().recipe;
        recipe.pip = ["six".to_owned()].into();
        assert_eq!(recipe.check(), Err(RecipeError::BadPip { package: "six".to_owned() }));
        for bad in ["-r==1", "six==", "six==-1", "six @ file:x==1", "a b==1", "six==1 --pre"] {
            assert_eq!(pinned_wheel(bad), None, "{bad}");
        }
        assert_eq!(pinned_wheel("et-xmlfile==2.0.0"), Some(("et-xmlfile", "2.0.0")));
        let mut recipe = resolve("code-interpreter").unwrap().recipe;
        recipe.node.as_mut().unwrap().npm.version = "../x".to_owned();
        assert_eq!(recipe.check(), Err(RecipeError::BadNode { version: "../x".to_owned() }));
    }

    #[test]
    fn a_recipe_without_npm_and_desktop_has_no_such_fields() {
        let base = serde_json::to_string(&resolve("base").unwrap().recipe).unwrap();
        assert!(!base.contains("\"npm\"") && !base.contains("\"desktop\"") && !base.contains("\"node\""));
    }

    #[test]
    fn sizes_that_cannot_boot_are_refused() {
        let mut recipe = resolve("base").unwrap().recipe;
        recipe.memory_mib = 8;
        assert!(recipe.check().unwrap_err().to_string().contains("128 to"));
    }
}
