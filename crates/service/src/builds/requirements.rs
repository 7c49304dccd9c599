//! Python packages that a build installs from PyPI: names with versions, and requirements files.
//!
//! pip also takes options, addresses, paths and repositories in both places. All of these are refused.

/// The maximum size of a requirements file. The cache of steps stores a hash of it, and the log none of it.
const MOST_BYTES: usize = 256 * 1024;
/// pip takes these names as files.
const ARCHIVES: [&str; 8] = [".whl", ".zip", ".egg", ".tar", ".gz", ".tgz", ".bz2", ".xz"];
const OPERATORS: [&str; 8] = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];

/// Why something cannot be installed from PyPI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("`{0}` cannot be a package of PyPI: give its name, optionally with a version, like `six==1.16.0`")]
    Package(String),
    #[error("line {line} of the requirements: the option `{option}` is not taken; only --hash is")]
    Option { line: usize, option: String },
    #[error("line {line} of the requirements: `{text}` is no package of PyPI with an optional version")]
    Line { line: usize, text: String },
    #[error("the requirements may have {} KiB", MOST_BYTES >> 10)]
    TooLarge,
}

/// Splits a list of packages at commas and line ends, but not between the versions or extras of one package.
pub fn split_requirements(text: &str) -> Vec<String> {
    let mut packages: Vec<String> = Vec::new();
    for part in text.split([',', '\n']) {
        let begun = packages.last_mut().filter(|last| {
            part.trim_start().starts_with(['<', '>', '=', '!', '~']) || (last.contains('[') && !last.contains(']'))
        });
        match begun {
            Some(begun) => *begun = format!("{begun},{part}"),
            None => packages.push(part.trim().to_owned()),
        }
    }
    packages.retain(|package| !package.is_empty());
    packages
}

/// Checks a package that is given on its own.
pub(super) fn check_package(text: &str) -> Result<(), RequirementError> {
    if is_requirement(text) { Ok(()) } else { Err(RequirementError::Package(text.to_owned())) }
}

/// The requirements of a file, one in each line, without comments. Empty if there are none.
pub(super) fn parse(text: &str) -> Result<String, RequirementError> {
    if text.len() > MOST_BYTES {
        return Err(RequirementError::TooLarge);
    }
    let mut parsed = String::new();
    let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    while let Some((number, first)) = lines.next() {
        let mut joined = without_comment(first).trim_end().to_owned();
        while let Some(begun) = joined.strip_suffix('\\') {
            let next = lines.next().map_or("", |(_, next)| without_comment(next).trim_end());
            joined = format!("{begun} {}", next.trim_start());
        }
        let wanted = joined.trim();
        if !wanted.is_empty() {
            parsed += &requirement(number + 1, wanted)?;
            parsed.push('\n');
        }
    }
    Ok(parsed)
}

/// As in pip, a `#` begins a comment at the start of a line and after a space.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (at, character) in line.char_indices() {
        if character == '#' && before.is_whitespace() {
            return &line[..at];
        }
        before = character;
    }
    line
}

/// A requirement with its hashes.
fn requirement(line: usize, text: &str) -> Result<String, RequirementError> {
    let (wanted, options) = match text.find(" --") {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let wanted = wanted.trim_end();
    if wanted.starts_with('-') {
        let option = wanted.split([' ', '=']).next().unwrap_or_default().to_owned();
        return Err(RequirementError::Option { line, option });
    }
    if !is_requirement(wanted) {
        return Err(RequirementError::Line { line, text: wanted.to_owned() });
    }
    let mut checked = wanted.to_owned();
    for option in options.split_whitespace() {
        if !option.strip_prefix("--hash=").is_some_and(is_hash) {
            let option = option.split('=').next().unwrap_or_default().to_owned();
            return Err(RequirementError::Option { line, option });
        }
        checked = format!("{checked} {option}");
    }
    Ok(checked)
}

fn is_hash(text: &str) -> bool {
    let digits = |digest: &str| digest.len() >= 56 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.split_once(':').is_some_and(|(kind, digest)| ["sha256", "sha384", "sha512"].contains(&kind) && digits(digest))
}

/// `name[extra,…] ==1.0,<2 ; marker`, as in PEP 508 without addresses.
fn is_requirement(text: &str) -> bool {
    let (wanted, marker) = text.split_once(';').unwrap_or((text, ""));
    let wanted = wanted.trim();
    let end = wanted.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).unwrap_or(wanted.len());
    let (name, rest) = wanted.split_at(end);
    let (extras, versions) = match rest.trim_start().strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((extras, versions))) => (Some(extras), versions),
        Some(None) => return false,
        None => (None, rest),
    };
    text.len() <= 200
        && is_name(name)
        && extras.is_none_or(|extras| extras.split(',').all(|extra| is_name(extra.trim())))
        && (versions.trim().is_empty() || versions.split(',').all(is_version))
        && marker.chars().all(|c| c.is_ascii_alphanumeric() || " _.,'\"<>=!~()+-*".contains(c))
}

fn is_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.ends_with(|last: char| last.is_ascii_alphanumeric())
        && !ARCHIVES.iter().any(|archive| lower.ends_with(archive))
}

fn is_version(text: &str) -> bool {
    let text = text.trim();
    let Some(version) = OPERATORS.iter().find_map(|operator| text.strip_prefix(operator)) else { return false };
    let version = version.trim_start();
    version.starts_with(|first: char| first.is_ascii_alphanumeric())
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".*+!_-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_of_the_registry_are_taken() {
        let marker = "tomli>=1; python_version < \"3.11\" and os_name == 'posix'";
        for good in
            ["six", "six==1.16.0", "requests[socks,security] >= 2.0, <3", "ruamel.yaml~=0.18", "x===1!2+a", marker]
        {
            assert_eq!(check_package(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "-r",
            "--index-url=http://x",
            "-e.",
            ".",
            "./six",
            "/six",
            "..",
            "six @ https://x/six.whl",
            "a b",
            "git+https://x/y",
            "https://x/y.whl",
            "six.whl",
            "Six.tar.gz",
            "six==",
            "six=1",
            "six==1;$(id)",
            "six;`id`",
            "six|id",
            "six&id",
            "$HOME",
            "six\n-r x",
            "six==1\t--pre",
            "six[",
            "six[-x]",
            "six[]",
            "six==/x",
            "six==-1",
            "ſix",
        ] {
            assert_eq!(check_package(bad), Err(RequirementError::Package(bad.to_owned())), "{bad:?}");
        }
        assert!(check_package(&"x".repeat(201)).is_err());
    }

    #[test]
    fn a_list_is_split_between_packages() {
        let list = "six, requests[socks,security]>=2,<3,idna\nurllib3 >= 2 , != 2.1,";
        let expected = ["six", "requests[socks,security]>=2,<3", "idna", "urllib3 >= 2, != 2.1"];
        assert_eq!(split_requirements(list), expected);
    }

    #[test]
    fn a_requirements_file_is_read_as_pip_does() {
        let hash = format!("--hash=sha256:{}", "ab".repeat(32));
        let text = format!("\u{feff}# a comment\r\n\nsix == 1.16.0  # why\nrequests>=2 \\\n    {hash} \\\n  {hash}\n");
        assert_eq!(parse(&text).unwrap(), format!("six == 1.16.0\nrequests>=2 {hash} {hash}\n"));
        assert_eq!(parse("# nothing\n").unwrap(), "");
    }

    #[test]
    fn options_addresses_and_paths_are_refused_with_their_line() {
        for (text, option) in [
            ("six\n-r other.txt", "-r"),
            ("six\n--index-url https://x", "--index-url"),
            ("six\n--extra-index-url=https://x", "--extra-index-url"),
            ("six\n-e .", "-e"),
            ("six\nx --global-option=y", "--global-option"),
            ("six\nx --hash=md5:00", "--hash"),
            ("six\n\\\n--pre", "--pre"),
        ] {
            assert_eq!(parse(text), Err(RequirementError::Option { line: 2, option: option.to_owned() }), "{text}");
        }
        for bad in ["./x", "x @ https://y", "git+https://x", "${X}", "x\\y", "x;$(id)"] {
            let refused = RequirementError::Line { line: 1, text: bad.to_owned() };
            assert_eq!(parse(bad), Err(refused), "{bad}");
        }
        assert_eq!(parse(&"x\n".repeat(MOST_BYTES)), Err(RequirementError::TooLarge));
    }
}
