//! Finds the line in which a package manager says what it could not install.

/// The line of a failed step's output that names the cause, without the package manager's own prefix.
pub(super) fn cause<'a>(lines: impl DoubleEndedIterator<Item = &'a str> + Clone) -> Option<String> {
    let of_npm = lines.clone().filter_map(npm_line);
    // npm says first which request failed, and then which package.
    let named =
        of_npm.clone().find(|line| line.contains("is not in this registry") || line.contains("No matching version"));
    let found = named.or_else(|| of_npm.into_iter().next());
    // pip's last error is about the package, the ones before about its versions.
    let found = found.or_else(|| lines.clone().rev().find_map(|line| line.strip_prefix("ERROR: ")));
    let found = found.or_else(|| lines.into_iter().find_map(|line| line.strip_prefix("E: ")));
    found.map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned)
}

/// An error of npm, without the code that begins it.
fn npm_line(line: &str) -> Option<&str> {
    let said = ["npm ERR! ", "npm error "].iter().find_map(|prefix| line.strip_prefix(prefix))?;
    let said = said.trim_start_matches(|c: char| c.is_ascii_digit()).trim();
    (!said.is_empty() && !said.starts_with("code ")).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_that_cannot_be_installed_is_named() {
        let of = |text: &str| cause(text.lines());
        let apt = "Reading package lists...\nE: Unable to locate package nosuch\nE: Couldn't find any package by regex 'nosuch'";
        assert_eq!(of(apt).as_deref(), Some("Unable to locate package nosuch"));
        let pip = "ERROR: Could not find a version that satisfies the requirement nosuch (from versions: none)\n\
                   ERROR: No matching distribution found for nosuch\nnotice";
        assert_eq!(of(pip).as_deref(), Some("No matching distribution found for nosuch"));
        let npm = "npm ERR! code E404\nnpm ERR! 404 Not Found - GET https://r/nosuch - Not found\nnpm ERR! 404 \n\
                   npm ERR! 404  'nosuch@*' is not in this registry.\nnpm ERR! A complete log";
        assert_eq!(of(npm).as_deref(), Some("'nosuch@*' is not in this registry."));
        let newer = "npm error code ETARGET\nnpm error notarget No matching version found for is-number@99.";
        assert_eq!(of(newer).as_deref(), Some("notarget No matching version found for is-number@99."));
        assert_eq!(of("one\ntwo"), None);
    }
}
