//! Answers QEMU's open of guest memory.
//!
//! Guest memory is shared between machines, so no program may have it open for writing. QEMU 7.2 opens it for writing
//! even if it maps it privately. Seccomp forwards that call to the supervisor, which answers with a read-only
//! descriptor.
//!
//! The supervisor lets every other open with the same flags continue, under the permissions of the jail. So a program
//! gains nothing by changing the path after the supervisor has read it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::MEMORY;

pub(super) struct MemoryOpen {
    questions: OwnedFd,
    memory: Option<OwnedFd>,
}

impl MemoryOpen {
    pub fn new(questions: OwnedFd, memory: Option<OwnedFd>) -> Self {
        Self { questions, memory }
    }

    pub fn questions(&self) -> BorrowedFd<'_> {
        self.questions.as_fd()
    }

    /// Answers one question. Errors are ignored: they mean that the program has died meanwhile.
    pub fn answer(&self) {
        let Ok(question) = self.receive() else { return };
        let path_address = question.data.args[1];
        match &self.memory {
            Some(memory) if names_memory(question.pid, path_address) => self.answer_with(question.id, memory),
            _ => self.let_it_continue(question.id),
        }
    }

    fn receive(&self) -> io::Result<libc::seccomp_notif> {
        // SAFETY: all-zero is a valid notification, and what the kernel demands before it fills it in.
        let mut question: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut question)?;
        Ok(question)
    }

    fn answer_with(&self, id: u64, memory: &OwnedFd) {
        let mut answer = libc::seccomp_notif_addfd {
            id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: memory.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: libc::O_CLOEXEC as u32,
        };
        let _ = self.control(libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw mut answer);
    }

    fn let_it_continue(&self, id: u64) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
        let _ = self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer);
    }

    fn control<T>(&self, request: libc::Ioctl, argument: *mut T) -> io::Result<()> {
        // SAFETY: each caller passes a live structure of the type that belongs to its request.
        let done = unsafe { libc::ioctl(self.questions.as_raw_fd(), request, argument) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Whether the string at that address of the process is the path of guest memory.
fn names_memory(pid: u32, address: u64) -> bool {
    let mut path = [0u8; MEMORY.len() + 1];
    let local = libc::iovec { iov_base: path.as_mut_ptr().cast(), iov_len: path.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: path.len() };
    // SAFETY: the local part is a live buffer of that length; the remote address is checked by the kernel.
    let read = unsafe { libc::process_vm_readv(pid as i32, &raw const local, 1, &raw const remote, 1, 0) };
    read == path.len() as isize && path.strip_suffix(b"\0") == Some(MEMORY.as_bytes())
}
