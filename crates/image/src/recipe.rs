//! What a template is made of: a recipe, which is data, and the names a recipe is found by.

use std::collections::BTreeSet;

use sandling_protocol::Language;
use serde::{Deserialize, Serialize};

use crate::builtin;
use crate::name::TemplateName;

/// Everything that decides what a template becomes. Stored in the manifest, so that it can be built again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    pub name: TemplateName,
    pub description: String,
    /// Debian's release, by code name.
    pub suite: String,
    /// Debian packages, over and above the essential ones.
    pub packages: BTreeSet<String>,
    /// Packages from npm, `name` or `name@version`, installed for all users. Their own install scripts are not run.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub npm: BTreeSet<String>,
    /// The root disk's size as the guest sees it; the file is sparse.
    pub disk_mib: u32,
    pub vcpus: u32,
    pub memory_mib: u32,
    /// Processes and threads a sandbox's user may have.
    pub pids: u32,
    /// Interpreters that are running, imports done, when the snapshot is taken.
    pub warm: Vec<Warm>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warm {
    pub language: Language,
    pub imports: Vec<String>,
}

/// A recipe, and what to tell someone who asked for it by another name.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub recipe: Recipe,
    pub alias_note: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    #[error("there is no template `{name}`; there are {}", .known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("`{name}` cannot be a template's name: use 1 to 64 letters, digits, dots, dashes or underscores")]
    BadName { name: String },
    #[error("the name `{name}` is reserved for a built-in template; choose another")]
    Reserved { name: String },
    #[error("`{package}` cannot be a Debian package's name")]
    BadPackage { package: String },
    #[error("`{package}` cannot be a package of npm: give its name, or name@version")]
    BadNpm { package: String },
    #[error("{what} of {given} is outside {least} to {most}")]
    OutOfRange { what: &'static str, given: u32, least: u32, most: u32 },
}

impl Recipe {
    /// A template of one's own: another recipe with more packages.
    pub fn custom<'a>(
        name: &str,
        from: &Recipe,
        packages: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, RecipeError> {
        let name: TemplateName = name.parse()?;
        if builtin::is_reserved(name.as_str()) {
            return Err(RecipeError::Reserved { name: name.into() });
        }
        let added: BTreeSet<String> = packages.into_iter().map(str::to_owned).collect();
        let list = added.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut recipe = from.clone();
        recipe.description = if list.is_empty() { from.description.clone() } else { format!("{} + {list}", from.name) };
        recipe.name = name;
        recipe.packages.extend(added);
        recipe.check()?;
        Ok(recipe)
    }

    /// The same with packages from npm, and with what it takes to install and run them.
    pub fn with_npm<'a>(mut self, packages: impl IntoIterator<Item = &'a str>) -> Result<Self, RecipeError> {
        let added: BTreeSet<String> = packages.into_iter().map(str::to_owned).collect();
        if added.is_empty() {
            return Ok(self);
        }
        let list = added.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        self.description = format!("{} + {list} from npm", self.description);
        self.packages.extend(["nodejs", "npm"].map(str::to_owned));
        self.npm.extend(added);
        self.check()?;
        Ok(self)
    }

    /// A recipe may come from a manifest or a caller; what would fail deep inside a build fails here.
    pub fn check(&self) -> Result<(), RecipeError> {
        if let Some(package) = self.packages.iter().find(|package| !is_package_name(package)) {
            return Err(RecipeError::BadPackage { package: package.clone() });
        }
        if let Some(package) = self.npm.iter().find(|package| !is_npm_package(package)) {
            return Err(RecipeError::BadNpm { package: package.clone() });
        }
        within("a disk (MiB)", self.disk_mib, 512, 1024 * 1024)?;
        within("a number of vCPUs", self.vcpus, 1, 64)?;
        within("a memory size (MiB)", self.memory_mib, 128, 256 * 1024)?;
        within("a limit of processes", self.pids, 16, 1024 * 1024)
    }
}

/// The built-in recipe of this name, or of the name this is an alias of.
pub fn resolve(name: &str) -> Result<Resolved, RecipeError> {
    if let Some((_, stands_for, note)) = builtin::ALIASES.iter().find(|(alias, ..)| *alias == name) {
        let recipe = builtin::recipe(stands_for).ok_or_else(|| unknown(name))?;
        return Ok(Resolved { recipe, alias_note: Some(note) });
    }
    let recipe = builtin::recipe(name).ok_or_else(|| unknown(name))?;
    Ok(Resolved { recipe, alias_note: None })
}

pub(crate) fn unknown(name: &str) -> RecipeError {
    RecipeError::Unknown { name: name.to_owned(), known: builtin::known_names() }
}

/// Debian Policy 5.6.1. The names become arguments of apt, where a leading dash would be an option.
fn is_package_name(name: &str) -> bool {
    let starts_well = name.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit());
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    // apt reads a trailing `-` as "remove" and a trailing `+` as "install"; `g++` is the one shape that must pass.
    let ends_well = !name.ends_with('-') && (!name.ends_with('+') || name.ends_with("++"));
    name.len() >= 2 && starts_well && ends_well && name.bytes().all(allowed)
}

/// The name of an npm package, without the version that it may be given with.
pub(crate) fn npm_name(package: &str) -> &str {
    // The first character may be a scope's.
    let version = package.char_indices().skip(1).find(|(_, character)| *character == '@');
    version.map_or(package, |(at, _)| &package[..at])
}

/// From the registry and from nowhere else: npm would also take paths, addresses and repositories.
fn is_npm_package(package: &str) -> bool {
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
    let is_version = |version: &str| {
        version.starts_with(|first: char| first.is_ascii_alphanumeric())
            && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.+".contains(&byte))
    };
    is_name && package[name.len()..].strip_prefix('@').is_none_or(is_version)
}

fn within(what: &'static str, given: u32, least: u32, most: u32) -> Result<(), RecipeError> {
    if (least..=most).contains(&given) { Ok(()) } else { Err(RecipeError::OutOfRange { what, given, least, most }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_says_what_it_stands_for() {
        let resolved = resolve("ubuntu-24.04").unwrap();
        assert_eq!(resolved.recipe.name.as_str(), "base");
        assert!(resolved.alias_note.unwrap().contains("no Ubuntu"));
        assert_eq!(resolve("python-data").unwrap().recipe.name.as_str(), "code-interpreter");
        assert!(resolve("base").unwrap().alias_note.is_none());
    }

    #[test]
    fn an_unknown_name_is_answered_with_what_exists() {
        let error = resolve("windows").unwrap_err().to_string();
        assert!(error.contains("`windows`") && error.contains("base") && error.contains("python-data"), "{error}");
    }

    #[test]
    fn a_custom_recipe_adds_to_its_parent_and_may_not_take_a_reserved_name() {
        let base = resolve("base").unwrap().recipe;
        let mine = Recipe::custom("mine", &base, ["ripgrep", "jq"]).unwrap();
        assert!(mine.packages.is_superset(&base.packages) && mine.packages.contains("ripgrep"));
        assert_eq!(mine.description, "base + jq, ripgrep");
        for reserved in ["base", "code-interpreter", "python-data", "ubuntu-24.04"] {
            assert_eq!(
                Recipe::custom(reserved, &base, []).unwrap_err(),
                RecipeError::Reserved { name: reserved.to_owned() }
            );
        }
    }

    #[test]
    fn a_package_name_that_apt_would_read_as_something_else_is_refused() {
        let base = resolve("base").unwrap().recipe;
        for bad in ["-oDebug=1", "a", "Foo", "foo bar", "foo=1", "foo-", "foo+", "foo,bar", "?installed"] {
            let refused = Recipe::custom("mine", &base, [bad]).unwrap_err();
            assert_eq!(refused, RecipeError::BadPackage { package: bad.to_owned() });
        }
        Recipe::custom("mine", &base, ["g++", "libstdc++6", "python3.11", "0ad"]).unwrap();
    }

    #[test]
    fn npm_gets_names_and_versions_and_nothing_that_it_would_read_as_something_else() {
        let base = resolve("base").unwrap().recipe;
        let with = |package| Recipe::custom("mine", &base, []).unwrap().with_npm([package]);
        for bad in
            ["", "-g", "./x", "/x", "@x", "@x/", "a@", "a@-1", "a b", "git+ssh://x", "user/repo", "a@file:x", "A"]
        {
            assert_eq!(with(bad).unwrap_err(), RecipeError::BadNpm { package: bad.to_owned() });
        }
        for (good, name) in [("cowsay", "cowsay"), ("@a/b.c@1.2.3-x+y", "@a/b.c"), ("semver@latest", "semver")] {
            let recipe = with(good).unwrap();
            assert!(recipe.packages.contains("npm") && recipe.packages.contains("nodejs"));
            assert_eq!((recipe.npm.contains(good), npm_name(good)), (true, name));
        }
        assert_eq!(with("cowsay").unwrap().description, format!("{} + cowsay from npm", base.description));
    }

    #[test]
    fn a_recipe_without_npm_is_written_as_it_always_was() {
        let base = resolve("base").unwrap().recipe;
        assert!(!serde_json::to_string(&base).unwrap().contains("\"npm\""));
    }

    #[test]
    fn sizes_that_cannot_boot_are_refused() {
        let mut recipe = resolve("base").unwrap().recipe;
        recipe.memory_mib = 8;
        assert!(recipe.check().unwrap_err().to_string().contains("128 to"));
    }
}
