//! Who on this host can read a home.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use sandling_wire::Home;
use walkdir::WalkDir;

use super::trial::Trial;
use super::world::World;

/// How many wrong files are listed one by one.
const LISTED: usize = 10;

/// The home that this version made for the private server.
pub async fn private_home(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    world.ready().await?;
    check(world.home(), trial)
}

/// The home of the user who runs this command.
pub async fn own_home(_: &World, trial: &mut Trial) -> anyhow::Result<()> {
    match Home::from_environment() {
        Some(home) if home.root().is_dir() => check(&home, trial),
        _ => {
            trial.skip("modes of the home", "this user has no home yet");
            Ok(())
        }
    }
}

fn check(home: &Home, trial: &mut Trial) -> anyhow::Result<()> {
    let root = fs::metadata(home.root())?;
    let mode = root.permissions().mode() & 0o7777;
    trial.record(
        mode & 0o077 == 0,
        format!("{} is closed to others", home.root().display()),
        format!("mode {mode:04o}"),
    );
    let own = rustix::process::geteuid().as_raw();
    trial.record(root.uid() == own, "the home belongs to this user", format!("user {}", root.uid()));
    let mut wrong = 0;
    let mut count = 0;
    let entries = WalkDir::new(home.root()).into_iter().filter_entry(|entry| entry.path() != home.templates());
    for entry in entries.flatten() {
        let Ok(found) = entry.metadata() else { continue };
        count += 1;
        if let Some(bad) = exposed(entry.path(), found.permissions().mode()) {
            wrong += 1;
            if wrong <= LISTED {
                trial.record(false, bad, format!("mode {:04o}", found.permissions().mode() & 0o7777));
            }
        }
    }
    trial.record(wrong == 0, "files and directories that other users could write to", format!("{wrong} of {count}"));
    Ok(())
}

/// A file that others could write to even if they reached it. Links have no mode of their own.
fn exposed(path: &Path, mode: u32) -> Option<String> {
    (mode & libc::S_IFMT != libc::S_IFLNK && mode & libc::S_IFMT != libc::S_IFSOCK && mode & 0o022 != 0)
        .then(|| path.display().to_string())
}
