//! The files and sockets that the launcher opens while it still has the caller's rights and sees the host's files.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, open, openat, unlinkat};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use super::MachineDir;
use super::cable::Cable;
use super::spec::{Inherit, Spec, Step, StepError};
use super::users::{MachineUser, OwnUser};

/// Above the number of every inherited descriptor, so that moving one into place never closes another.
pub(super) const ABOVE_INHERITED: i32 = 100;

pub(super) struct Resources {
    /// For the program, in order.
    pub inherit: Vec<OwnedFd>,
    pub output: OwnedFd,
    /// For the supervisor.
    pub supervisor_dir: OwnedFd,
    pub memory: Option<OwnedFd>,
    pub console: Option<OwnedFd>,
    pub cable: Option<Cable>,
    pub program_output: OwnedFd,
}

impl Resources {
    pub fn open(spec: &Spec, user: &MachineUser) -> Result<Self, StepError> {
        let directory = MachineDir::new(&spec.directory);
        let given = match user {
            MachineUser::OfRoot(user) => chown_directory(&directory, user),
            MachineUser::Subordinate(..) => share_directory(&directory),
            MachineUser::Caller => Ok(()),
        };
        given.step("giving the machine's directory to its user")?;
        let supervisor_dir = open(directory.supervisor(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .step("opening the supervisor's directory")?;
        let (mut console, mut cable) = (None, None);
        let mut inherit = Vec::new();
        for wanted in &spec.program.inherit {
            let fd = match wanted {
                Inherit::Listen { name } => listener(&supervisor_dir, name).step(format!("listening at {name}"))?,
                Inherit::Cable { name } => {
                    let listener = listener(&supervisor_dir, name).step(format!("listening at {name}"))?;
                    let (ours, theirs) = Cable::new(listener).step("making the cable")?;
                    cable = Some(ours);
                    theirs
                }
                Inherit::Read { path } => read_only(path).step(format!("opening {}", path.display()))?,
                Inherit::ReadWrite { path } => {
                    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    open(path, flags, Mode::empty()).step(format!("opening {}", path.display()))?
                }
                Inherit::Closed => stream_pair().step("making a closed stream")?.0,
                Inherit::Console => {
                    let (ours, theirs) = stream_pair().step("making the console")?;
                    console = Some(ours);
                    theirs
                }
            };
            inherit.push(fcntl_dupfd_cloexec(&fd, ABOVE_INHERITED).step("numbering descriptors")?);
        }
        let memory = spec.program.memory.as_deref();
        let memory = memory.map(|path| read_only(path).step(format!("opening {}", path.display()))).transpose()?;
        let (program_output, output) = pipe_with(PipeFlags::CLOEXEC).step("making the log pipe")?;
        let output = fcntl_dupfd_cloexec(&output, ABOVE_INHERITED).step("numbering descriptors")?;
        Ok(Self { inherit, output, supervisor_dir, memory, console, cable, program_output })
    }
}

/// Gives the directory, which root created, to the machine's own user, as whom the supervisor and the program run.
fn chown_directory(directory: &MachineDir, user: &OwnUser) -> io::Result<()> {
    let (uid, gid) = (Some(user.uid), Some(user.gid));
    chown(directory.supervisor(), uid, gid)?;
    chown(directory.files(), uid, gid)?;
    own_files(directory).try_for_each(|file| fchown(&file?, uid, gid))
}

/// Lets the machine's own user, a subordinate one of the caller, use the directory. Its files keep their owner: the
/// caller could not save a machine whose files belong to another user. The program can write them, but can create none.
/// The directory around all of this is closed to every other user, and the program has no path to the supervisor's.
fn share_directory(directory: &MachineDir) -> io::Result<()> {
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set(directory.path(), 0o700)?;
    set(&directory.supervisor(), 0o777)?;
    set(&directory.files(), 0o711)?;
    own_files(directory).try_for_each(|file| file?.set_permissions(fs::Permissions::from_mode(0o666)))
}

/// The regular files of the program's directory. A file with a second link could be one outside this directory, which
/// must stay as it is.
fn own_files(directory: &MachineDir) -> impl Iterator<Item = io::Result<fs::File>> {
    let entries = fs::read_dir(directory.files());
    let (entries, failed) = entries.map_or_else(|error| (None, Some(Err(error))), |entries| (Some(entries), None));
    let opened = entries.into_iter().flatten().filter_map(|entry| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) => return Some(Err(error)),
        };
        let file = fs::File::from(open(path, flags, Mode::empty()).ok()?);
        match file.metadata() {
            Ok(metadata) => (metadata.is_file() && metadata.nlink() == 1).then_some(Ok(file)),
            Err(error) => Some(Err(error)),
        }
    });
    failed.into_iter().chain(opened)
}

fn read_only(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Binds a socket relative to its directory: the absolute path may be too long for a socket address.
fn listener(supervisor_dir: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match unlinkat(supervisor_dir, name, rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let before = openat(CWD, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::process::fchdir(supervisor_dir)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(name)?)?;
    listen(&socket, 16)?;
    rustix::process::fchdir(before)?;
    Ok(socket)
}

fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}
