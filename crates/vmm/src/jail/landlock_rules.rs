//! Landlock: restricts the program to the same files again, even if it could change its mounts; and the supervisor to
//! its own directory.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use serde::{Deserialize, Serialize};

use super::filesystem::library_paths;
use super::spec::Program;
use super::{FILES, LAYERS, PRELOAD};

/// The newest version of Landlock whose rights are requested; an older kernel enforces those that it knows.
const WANTED: ABI = ABI::V6;

/// The loader is executed by the kernel, together with the program.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// How much of the Landlock rules the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Landlock {
    Full,
    /// An older kernel: some of the rights cannot be restricted.
    Partial,
    Absent,
}

impl fmt::Display for Landlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::Absent => "absent",
        })
    }
}

/// Restricts this process to the intended use of the jail's file system. Best effort: returns how much is enforced.
pub(super) fn restrict(program: &Program) -> Result<Landlock, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let execute = AccessFs::ReadFile | AccessFs::Execute;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let own = read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;

    let mut rules = vec![(program.place(), execute), (Path::new(LOADER), execute)];
    let libraries = library_paths();
    let readable = libraries.iter().chain(&program.data).map(|path| path.as_path());
    rules.extend(readable.chain([Path::new(LAYERS), Path::new(PRELOAD)]).map(|path| (path, read)));
    rules.extend([(Path::new("/dev"), device), (Path::new(FILES), own)]);

    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?;
    for (path, access) in rules {
        ruleset = add_rule(ruleset, path, access)?;
    }
    Ok(match ruleset.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Landlock::Full,
        RulesetStatus::PartiallyEnforced => Landlock::Partial,
        RulesetStatus::NotEnforced => Landlock::Absent,
    })
}

/// The supervisor's rules: its own directory and nothing else. They are made in advance, because its system call filter
/// leaves it only the call that puts them into force; see [`SupervisorRules::enforce`].
pub(super) struct SupervisorRules(RulesetCreated);

impl SupervisorRules {
    pub fn new(directory: &OwnedFd) -> Result<Self, RulesetError> {
        let own =
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
        let created = Ruleset::default()
            .handle_access(AccessFs::from_all(WANTED))?
            .handle_access(AccessNet::from_all(WANTED))?
            // Not signals: the supervisor must be able to end the program, which is not below these rules.
            .scope(Scope::AbstractUnixSocket)?
            .create()?
            .add_rule(PathBeneath::new(directory.as_fd(), own))?;
        Ok(Self(created.no_new_privs(false)))
    }

    /// Best effort: a kernel without Landlock enforces nothing.
    pub fn enforce(self) {
        let _ = self.0.restrict_self();
    }
}

/// Adds a rule, unless the path does not exist.
fn add_rule(
    ruleset: landlock::RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<landlock::RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(ruleset) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(WANTED) };
    ruleset.add_rule(PathBeneath::new(opened, access))
}
