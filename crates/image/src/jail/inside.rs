//! The processes in the jail that are ours: the entrant, and process 1.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal, setsid};
use rustix::thread::{UnshareFlags, set_no_new_privs, unshare_unsafe};

use super::launch::Spec;
use super::{filesystem, filter};
use crate::user_namespace;

/// In a network of its own, any port is free.
const PROXY_PORT: u16 = 3128;

const PROXY_VARIABLES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"];

const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

const ALL_BUT_USER: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWNET)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWCGROUP);

/// Enters the jail and runs mmdebstrap there. `launcher` gets the socket on which the proxy listens.
pub(super) fn enter(
    spec: &Spec,
    namespace: OwnedFd,
    launcher: UnixStream,
    arguments: Vec<OsString>,
) -> io::Result<ExitCode> {
    user_namespace::enter(&namespace, Signal::KILL).map_err(at("becoming another user"))?;
    // SAFETY: this process has one thread and shares no descriptor table, so no other code is affected.
    unsafe { unshare_unsafe(ALL_BUT_USER) }.map_err(|error| at("entering namespaces")(error.into()))?;
    let listener = listen().map_err(at("listening in the network namespace"))?;
    send(&launcher, &listener)?;
    drop((namespace, launcher, listener));
    // SAFETY: this process has one thread, so the copy is complete.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => run_first_process(spec, arguments),
        first => wait_for(first),
    }
}

/// As process 1: if it ends, the kernel ends all others.
fn run_first_process(spec: &Spec, arguments: Vec<OsString>) -> io::Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Without the operator's terminal, into which the build could otherwise type.
    setsid()?;
    rustix::system::sethostname(b"sandling")?;
    filesystem::enter(spec).map_err(at("making the file system"))?;
    // This process has the host's variables and the store's lock, which root in the jail must not read or release.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_no_new_privs(true)?;
    filter::install().map_err(|error| at("denying system calls")(io::Error::other(error)))?;
    let proxy = format!("http://{}:{PROXY_PORT}", Ipv4Addr::LOCALHOST);
    let kept = spec.variables.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mmdebstrap = Command::new("mmdebstrap")
        .args(arguments)
        .env_clear()
        .envs(kept)
        .envs(PROXY_VARIABLES.map(|name| (name, &proxy)))
        .envs([("PATH", SEARCH_PATH), ("LC_ALL", "C.UTF-8"), ("DEBIAN_FRONTEND", "noninteractive"), ("HOME", "/tmp")])
        .stdin(Stdio::null())
        .spawn()
        .map_err(at("starting mmdebstrap"))?;
    wait_for(mmdebstrap.id().cast_signed())
}

/// Waits for this child, and reaps all others. Returns its exit code as a shell would.
pub(super) fn wait_for(child: libc::pid_t) -> io::Result<ExitCode> {
    loop {
        let mut status = 0;
        // SAFETY: the pointer is valid for the call.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if ended == child {
            let code = match libc::WIFSIGNALED(status) {
                true => 128 + libc::WTERMSIG(status),
                false => libc::WEXITSTATUS(status),
            };
            return Ok(ExitCode::from(code as u8));
        }
        let error = io::Error::last_os_error();
        if ended < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A listening socket stays in the network namespace in which it was created, whichever process accepts connections.
fn listen() -> io::Result<TcpListener> {
    let any = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: all zeros are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l', b'o'].map(u8::cast_signed));
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: an open socket, and a request that is valid for the call.
    if unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))
}

fn send(socket: &UnixStream, listener: &TcpListener) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [listener.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(b"l")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the proxy's socket from the entrant; `None` if the entrant has ended.
pub(super) fn receive(socket: &UnixStream) -> io::Result<Option<TcpListener>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next().map(TcpListener::from),
        _ => None,
    }))
}

/// For `map_err`: adds the step that failed.
fn at(step: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{step}: {error}"))
}
