//! The packages in a finished tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::error::{BuildError, io_at};
use crate::recipe::{Recipe, npm_name, pinned_wheel};

/// The installed packages and their versions: Debian's by name, others as `npm:NAME` and `pip:NAME`.
pub(crate) fn installed_packages(tree: &Path, recipe: &Recipe) -> Result<BTreeMap<String, String>, BuildError> {
    let path = tree.join("var/lib/dpkg/status");
    let status = fs::read_to_string(&path).map_err(io_at("read", &path))?;
    let mut installed = parse_status(&status);
    for name in recipe.npm.iter().map(|package| npm_name(package)) {
        let path = tree.join("usr/local/lib/node_modules").join(name).join("package.json");
        let description = fs::read(&path).map_err(io_at("read", &path))?;
        let described: Value = serde_json::from_slice(&description).unwrap_or_default();
        installed.insert(format!("npm:{name}"), described["version"].as_str().unwrap_or_default().to_owned());
    }
    let pinned = recipe.pip.iter().filter_map(|package| pinned_wheel(package));
    installed.extend(pinned.map(|(name, version)| (format!("pip:{name}"), version.to_owned())));
    if let Some(release) = &recipe.node {
        let archives = [("npm:node", &release.node), ("npm:npm", &release.npm)];
        installed.extend(archives.map(|(name, archive)| (name.to_owned(), archive.version.clone())));
    }
    Ok(installed)
}

fn parse_status(status: &str) -> BTreeMap<String, String> {
    let field = |paragraph: &str, name: &str| {
        let line = paragraph.lines().find(|line| line.starts_with(name));
        line.map(|line| line[name.len()..].trim().to_owned())
    };
    let installed = |paragraph: &&str| field(paragraph, "Status:").is_some_and(|status| status.ends_with(" installed"));
    let paragraphs = status.split("\n\n").filter(installed);
    paragraphs.filter_map(|paragraph| Some((field(paragraph, "Package:")?, field(paragraph, "Version:")?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_are_listed() {
        let status = "Package: bash\nStatus: install ok installed\nVersion: 5.2.15-2+b13\nDescription: shell\n Version: x\n\n\
                      Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n";
        assert_eq!(parse_status(status), BTreeMap::from([("bash".to_owned(), "5.2.15-2+b13".to_owned())]));
    }
}
