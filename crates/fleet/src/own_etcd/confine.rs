//! The process that confines itself and becomes etcd.

use std::convert::Infallible;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

/// The first argument of a program that must call [`main`] at once. The parent's process ID, etcd's port, its program
/// and its arguments follow. The current directory is etcd's own.
pub const ARGUMENT: &str = "__etcd";

/// The newest version of Landlock whose rights are requested; an older kernel enforces those that it knows.
const WANTED: ABI = ABI::V6;
const LIBRARIES: [&str; 4] = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache"];
const NAME_RESOLUTION: [&str; 4] = ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf"];
const DEVICES: [&str; 3] = ["/dev/null", "/dev/urandom", "/dev/random"];

/// What a program does when its first argument is [`ARGUMENT`], before it starts a thread.
pub fn main() -> ExitCode {
    let Err(error) = run();
    eprintln!("cannot start etcd: {error}");
    ExitCode::FAILURE
}

fn run() -> io::Result<Infallible> {
    let mut arguments = std::env::args_os().skip(2);
    let mut number = || arguments.next().and_then(|text| text.to_str()?.parse::<u32>().ok());
    let (parent, port) = (number(), number().and_then(|port| u16::try_from(port).ok()));
    let (Some(parent), Some(port), Some(program)) = (parent, port, arguments.next()) else {
        return Err(io::Error::other("an argument is missing"));
    };
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The server may have died before the kernel knew that this process must die with it.
    if getppid().is_none_or(|found| found.as_raw_nonzero().get().unsigned_abs() != parent) {
        return Err(io::Error::other("the server has ended"));
    }
    restrict(Path::new(&program), port).map_err(io::Error::other)?;
    Err(Command::new(program).args(arguments).exec())
}

/// Best effort: an older kernel enforces less.
fn restrict(program: &Path, port: u16) -> Result<(), RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let rules = LIBRARIES.iter().map(|path| (Path::new(path), read | AccessFs::Execute));
    let rules = rules.chain(NAME_RESOLUTION.iter().map(|path| (Path::new(path), read)));
    let rules = rules.chain(DEVICES.iter().map(|path| (Path::new(path), read | AccessFs::WriteFile)));
    let own = AccessFs::from_all(WANTED) & !AccessFs::Execute & !AccessFs::MakeBlock & !AccessFs::MakeChar;
    let rules = rules.chain([(program, read | AccessFs::Execute), (Path::new("."), own)]);
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?;
    for (path, access) in rules {
        ruleset = allow(ruleset, path, access)?;
    }
    // The JSON gateway is a client of etcd itself.
    ruleset.add_rule(NetPort::new(port, AccessNet::BindTcp | AccessNet::ConnectTcp))?.restrict_self()?;
    Ok(())
}

/// Adds a rule, unless the path does not exist.
fn allow(ruleset: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(ruleset) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(WANTED) };
    ruleset.add_rule(PathBeneath::new(opened, access))
}
