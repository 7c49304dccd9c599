//! What this host lacks to build templates, and how to get it.

use std::path::Path;

use crate::apt::KEYRING;
use crate::tool::{TOOLS, find, is_ordinary_user};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub what: String,
    /// The Debian package that has it.
    pub package: Option<&'static str>,
    /// A command.
    pub fix: String,
}

/// What is missing; empty if a build can start.
pub fn preflight() -> Vec<Missing> {
    let mut missing: Vec<Missing> = TOOLS
        .iter()
        .filter(|(program, _)| find(program).is_none())
        .map(|(program, package)| lacks(program, package))
        .collect();
    if !Path::new(KEYRING).exists() {
        missing.push(needs(format!("the keys of Debian's archive, {KEYRING}"), "debian-archive-keyring"));
    }
    if is_ordinary_user() {
        if find("newuidmap").is_none() {
            missing.push(lacks("newuidmap", "uidmap"));
        }
        missing.extend(without_subordinate_ids());
    }
    missing
}

fn lacks(program: &str, package: &'static str) -> Missing {
    needs(format!("the program `{program}`"), package)
}

fn needs(what: String, package: &'static str) -> Missing {
    let fix = format!("sudo apt-get install --no-install-recommends {package}");
    Missing { what, package: Some(package), fix }
}

/// A build by an ordinary user needs a range of user ids, which the administrator assigns.
fn without_subordinate_ids() -> Option<Missing> {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok()?;
    let listed = std::fs::read_to_string("/etc/subuid").unwrap_or_default();
    let has = listed.lines().any(|line| line.split(':').next() == Some(user.as_str()));
    (!has).then(|| Missing {
        what: format!("subordinate user ids for `{user}` in /etc/subuid"),
        package: None,
        fix: format!("sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_listed_with_the_command_that_installs_it() {
        let missing = lacks("mke2fs", "e2fsprogs");
        assert_eq!((missing.what.as_str(), missing.package), ("the program `mke2fs`", Some("e2fsprogs")));
        assert_eq!(missing.fix, "sudo apt-get install --no-install-recommends e2fsprogs");
    }

    #[test]
    fn installed_programs_are_not_listed() {
        for missing in preflight() {
            let program = missing.what.trim_start_matches("the program `").trim_end_matches('`').to_owned();
            assert!(find(&program).is_none(), "{missing:?}");
        }
    }
}
