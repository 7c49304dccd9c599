//! Runs a command with the mounts of its `RUN`.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use sandling_builder::{CACHES, Mount, Run, SECRETS, STAGED};

use crate::owner::{self, Owner};
use crate::{Failure, root};

pub fn run(run: &Run) -> Result<ExitCode, Failure> {
    root::private_mounts()?;
    if !run.network {
        // SAFETY: this process has one thread, and a network namespace shares no memory or descriptors.
        let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
        unshared.map_err(|error| format!("cannot take the network away: {error}"))?;
    }
    let mut mounts = Mounts::default();
    let ended = mounts.all(&run.mounts).and_then(|()| command(run, &mounts));
    mounts.undo();
    ended
}

fn command(run: &Run, mounts: &Mounts) -> Result<ExitCode, Failure> {
    let (program, arguments) = run.argv.split_first().ok_or("the command is empty")?;
    let owner = owner::find(&run.user)?;
    let (groups, home) = owner::groups_and_home(owner, &run.user);
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&run.directory).env("HOME", home);
    command.envs(mounts.variables.iter().map(|(name, value)| (name, value)));
    // SAFETY: between fork and exec, this only makes system calls.
    unsafe {
        command.pre_exec(move || {
            let groups: Vec<_> = groups.iter().map(|group| rustix::process::Gid::from_raw(*group)).collect();
            rustix::thread::set_thread_groups(&groups)?;
            rustix::thread::set_thread_gid(rustix::process::Gid::from_raw(owner.gid))?;
            Ok(rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(owner.uid))?)
        });
    }
    let status = command.status().map_err(|error| format!("{program}: {error}"))?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// What was mounted, and what has to be removed afterwards.
#[derive(Default)]
struct Mounts {
    mounted: Vec<PathBuf>,
    /// Mount points that the image did not have.
    created: Vec<PathBuf>,
    secrets: Vec<PathBuf>,
    variables: Vec<(String, String)>,
}

impl Mounts {
    fn all(&mut self, mounts: &[Mount]) -> Result<(), Failure> {
        // The service sends all secrets of the step before it starts.
        self.secrets = fs::read_dir(SECRETS).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        mounts.iter().try_for_each(|mount| self.one(mount))
    }

    fn one(&mut self, wanted: &Mount) -> Result<(), Failure> {
        match wanted {
            Mount::Cache { id, target, mode, uid, gid, read_only } => {
                let source = Path::new(CACHES).join(id);
                if !source.exists() {
                    fs::create_dir_all(&source).map_err(|error| about(&source, &error))?;
                    give(&source, *mode, Owner { uid: *uid, gid: *gid })?;
                }
                self.bind(&source, target, *read_only)
            }
            Mount::Bind { staged, target, read_only } => self.bind(&Path::new(STAGED).join(staged), target, *read_only),
            Mount::Tmpfs { target, size_bytes } => {
                self.directory(target)?;
                let options = size_bytes.map(|size| format!("size={size},")).unwrap_or_default() + "mode=1777";
                let options = std::ffi::CString::new(options).map_err(|error| error.to_string())?;
                mount("tmpfs", target, "tmpfs", MountFlags::NODEV, options.as_c_str())
                    .map_err(|error| about(Path::new(target), &error.into()))?;
                self.mounted.push(target.into());
                Ok(())
            }
            Mount::Secret { id, target, variable, mode, uid, gid } => {
                let source = Path::new(SECRETS).join(id);
                if let Some(variable) = variable {
                    let value = fs::read_to_string(&source).map_err(|error| about(&source, &error))?;
                    self.variables.push((variable.clone(), value));
                }
                let Some(target) = target else { return Ok(()) };
                give(&source, *mode, Owner { uid: *uid, gid: *gid })?;
                self.bind(&source, target, true)
            }
        }
    }

    fn bind(&mut self, source: &Path, target: &str, read_only: bool) -> Result<(), Failure> {
        let path = Path::new(target);
        match source.is_dir() {
            true => self.directory(target)?,
            false => {
                path.parent().map_or(Ok(()), |parent| self.directory(&parent.to_string_lossy()))?;
                if !path.exists() {
                    fs::write(path, "").map_err(|error| about(path, &error))?;
                    self.created.push(path.to_owned());
                }
            }
        }
        mount_bind(source, path).map_err(|error| about(path, &error.into()))?;
        self.mounted.push(path.to_owned());
        if read_only {
            let flags = MountFlags::BIND | root::READ_ONLY;
            mount_remount(path, flags, "").map_err(|error| about(path, &error.into()))?;
        }
        Ok(())
    }

    /// Creates a mount point, and remembers what was missing.
    fn directory(&mut self, target: &str) -> Result<(), Failure> {
        let path = Path::new(target);
        let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
        for path in missing.into_iter().rev() {
            fs::create_dir(path).map_err(|error| about(path, &error))?;
            self.created.push(path.to_owned());
        }
        Ok(())
    }

    /// Unmounts, removes mount points, and overwrites secrets. Best effort: the mounts end with this process.
    fn undo(&self) {
        for path in self.mounted.iter().rev() {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
        for path in self.created.iter().rev() {
            // A directory that the command filled through another path stays.
            let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
        for path in &self.secrets {
            let _ = fs::set_permissions(path, Permissions::from_mode(0o600));
            let length = fs::metadata(path).map(|meta| meta.len()).unwrap_or_default();
            let opened = fs::OpenOptions::new().write(true).open(path);
            let _ = opened.and_then(|mut file| file.write_all(&vec![0; usize::try_from(length).unwrap_or_default()]));
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_dir(SECRETS);
        let _ = fs::remove_dir_all(STAGED);
    }
}

fn give(path: &Path, mode: u32, owner: Owner) -> Result<(), Failure> {
    let failed = |error: std::io::Error| about(path, &error);
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    lchown(path, Some(owner.uid), Some(owner.gid)).map_err(failed)
}

fn about(path: &Path, error: &std::io::Error) -> Failure {
    format!("{}: {error}", path.display())
}
