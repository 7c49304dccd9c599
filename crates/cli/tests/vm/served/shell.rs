//! `shell` and `exec -it` at a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::server::Server;

const PATIENCE: Duration = Duration::from_secs(120);

/// A simulated user at a terminal.
struct User {
    child: Child,
    keys: File,
    /// Kept open, so that its settings can be checked after the command has ended.
    terminal: OwnedFd,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl User {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let (ours, terminal) = open_pty();
        resize(&ours, 30, 90);
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = server.command(arguments);
        command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        // SAFETY: setsid(2) and ioctl(2) may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        let keys = File::from(ours);
        let mut output = keys.try_clone().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, terminal, screen, seen: String::new() }
    }

    fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows `what`, and discards the output up to there.
    #[track_caller]
    fn wait_for(&mut self, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        let end = loop {
            if let Some(at) = self.seen.find(what) {
                break at + what.len();
            }
            let wait = deadline.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(wait) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{what:?} was not shown; the screen has {:?}", self.seen),
            }
        };
        self.seen.drain(..end);
    }

    /// Waits for the command's end and checks that the terminal was restored.
    #[track_caller]
    fn wait_for_exit(mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(Instant::now() < deadline, "the command did not end: {:?}", self.seen);
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(is_cooked(&self.terminal), "the terminal was left raw");
        code
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open_pty() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: openpty(3) writes the two descriptors; the other arguments may be null.
    let made = unsafe { libc::openpty(&mut ours, &mut theirs, none, none.cast(), none.cast()) };
    assert_eq!(made, 0);
    // SAFETY: both descriptors are new and owned here. FD_CLOEXEC keeps them out of other tests' commands.
    unsafe {
        for end in [ours, theirs] {
            assert_eq!(libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC), 0);
        }
        (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}

fn resize(terminal: &impl AsFd, rows: u16, cols: u16) {
    let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open, and the structure is what TIOCSWINSZ reads.
    let set = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &size) };
    assert_eq!(set, 0);
}

fn is_cooked(terminal: &OwnedFd) -> bool {
    // SAFETY: an all-zero termios is valid, and tcgetattr(3) fills it.
    let settings = unsafe {
        let mut settings = std::mem::zeroed::<libc::termios>();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &mut settings), 0);
        settings
    };
    settings.c_lflag & (libc::ICANON | libc::ECHO | libc::ISIG) == libc::ICANON | libc::ECHO | libc::ISIG
}

#[test]
fn a_shell_forwards_keys_resizes_and_its_exit_code() {
    let server = Server::shared();
    let mut user = User::start(&server, &["shell", server.sandbox()]);
    user.type_keys("stty size; echo $((6 * 7))-$TERM\r");
    user.wait_for("30 90");
    user.wait_for("42-xterm");
    resize(&user.keys, 11, 22);
    user.type_keys("while test \"$(stty size)\" != '11 22'; do sleep 0.05; done; echo re''sized\r");
    user.wait_for("resized");
    // Wait until the program prints: the shell could swallow a key before it starts the program. It is no Python program:
    // Python notes an interrupt that comes right before its sleep, but raises it only after the sleep.
    user.type_keys("sh -c 'echo sle\"\"eping; exec sleep 600'\r");
    user.wait_for("sleeping");
    user.type_keys("\x03");
    user.type_keys("echo interrupted-$?\r");
    user.wait_for("interrupted-130");
    user.type_keys("exit 9\r");
    assert_eq!(user.wait_for_exit(), Some(9));
}

#[test]
fn exec_uses_the_terminal_and_the_escape_sequence_disconnects() {
    let server = Server::shared();
    let line = ["exec", "-it", "-e", "A=b", server.sandbox(), "sh", "-c", "test -t 0 && read -r x; echo $A-$x; exit 3"];
    let mut user = User::start(&server, &line);
    user.type_keys("typed\r");
    user.wait_for("b-typed");
    assert_eq!(user.wait_for_exit(), Some(3));
    let mut user = User::start(&server, &["shell", server.sandbox()]);
    user.type_keys("echo h''ere\r");
    user.wait_for("here");
    user.type_keys("\r~.");
    assert_eq!(user.wait_for_exit(), Some(1));
}
