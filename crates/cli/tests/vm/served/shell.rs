//! `shell` and `exec -it`, at a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::server::Server;

const PATIENCE: Duration = Duration::from_secs(120);

/// Somebody at a terminal.
struct Person {
    child: Child,
    keys: File,
    /// Kept open, so that its settings can be looked at when the command has ended.
    terminal: OwnedFd,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Person {
    fn sits_down(server: &Server, arguments: &[&str]) -> Self {
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
        let mut eyes = keys.try_clone().unwrap();
        let (sees, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = eyes.read(&mut buffer) {
                if sees.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, terminal, screen, seen: String::new() }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Looks at the screen until it says this, and forgets all up to there.
    #[track_caller]
    fn sees(&mut self, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        let end = loop {
            if let Some(at) = self.seen.find(what) {
                break at + what.len();
            }
            let wait = deadline.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(wait) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{what:?} never came, but {:?}", self.seen),
            }
        };
        self.seen.drain(..end);
    }

    /// Waits for the command's end; the terminal must be as it was.
    #[track_caller]
    fn stands_up(mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(Instant::now() < deadline, "it never ended: {:?}", self.seen);
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(is_cooked(&self.terminal), "the terminal was left raw");
        code
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open_pty() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: openpty(3) writes the two descriptors, and is asked for nothing else.
    let made = unsafe { libc::openpty(&mut ours, &mut theirs, none, none.cast(), none.cast()) };
    assert_eq!(made, 0);
    // SAFETY: both were just made, and nobody else has them. A command of another test must not get them.
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
    // SAFETY: an all-zero termios is a value like any other, and tcgetattr(3) fills it.
    let settings = unsafe {
        let mut settings = std::mem::zeroed::<libc::termios>();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &mut settings), 0);
        settings
    };
    settings.c_lflag & (libc::ICANON | libc::ECHO | libc::ISIG) == libc::ICANON | libc::ECHO | libc::ISIG
}

#[test]
fn a_shell_is_a_terminal_with_every_key_and_its_exit_code_is_ours() {
    let server = Server::shared();
    let mut person = Person::sits_down(&server, &["shell", server.sandbox()]);
    person.types("stty size; echo $((6 * 7))-$TERM\r");
    person.sees("30 90");
    person.sees("42-xterm");
    resize(&person.keys, 11, 22);
    person.types("while test \"$(stty size)\" != '11 22'; do sleep 0.05; done; echo re''sized\r");
    person.sees("resized");
    // A program that speaks and waits by itself: a shell about to start one may swallow the key.
    person.types("python3 -c 'import time; print(\"sle\" + \"eping\", flush=True); time.sleep(600)'\r");
    person.sees("sleeping");
    person.types("\x03");
    person.types("echo interrupted-$?\r");
    person.sees("interrupted-130");
    person.types("exit 9\r");
    assert_eq!(person.stands_up(), Some(9));
}

#[test]
fn a_command_can_have_our_terminal_and_one_can_walk_out() {
    let server = Server::shared();
    let line = ["exec", "-it", "-e", "A=b", server.sandbox(), "sh", "-c", "test -t 0 && read -r x; echo $A-$x; exit 3"];
    let mut person = Person::sits_down(&server, &line);
    person.types("typed\r");
    person.sees("b-typed");
    assert_eq!(person.stands_up(), Some(3));
    let mut person = Person::sits_down(&server, &["shell", server.sandbox()]);
    person.types("echo h''ere\r");
    person.sees("here");
    person.types("\r~.");
    assert_eq!(person.stands_up(), Some(1));
}
