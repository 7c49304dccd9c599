//! A network namespace for every test.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::thread::UnshareFlags;

/// Set in the process that has the namespace.
const INSIDE: &str = "SANDLING_NETWORK_NAMESPACE";
/// No test takes longer than this, even on a busy host.
const DEADLINE: Duration = Duration::from_secs(300);

/// Runs a test in a namespace: first starts a new process, then runs the test there.
pub fn run(path: &str, test: impl Future<Output = ()>) {
    if std::env::var_os(INSIDE).is_none() {
        return enter(path);
    }
    ip(&["link", "set", "lo", "up"]);
    ip(&["route", "add", "local", "0.0.0.0/0", "dev", "lo"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await.expect("the test took too long") });
}

/// Changes a setting of the namespace.
pub fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

fn enter(path: &str) {
    let (_, name) = path.split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    // SAFETY: the called functions need no lock except the allocator's, which glibc makes usable in the child of a
    // fork.
    unsafe { command.pre_exec(unshare) };
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{name} failed inside\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn unshare() -> std::io::Result<()> {
    // SAFETY: the child has one thread, and shares no file descriptors with another.
    if unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.is_ok() {
        return Ok(());
    }
    // An ordinary user is root in their own namespace, which suffices for a network.
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // SAFETY: as above.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) }?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Declares tests that run in a namespace.
#[macro_export]
macro_rules! isolated {
    ($($(#[$meta:meta])* async fn $name:ident() $body:block)*) => {
        $(#[test] $(#[$meta])* fn $name() {
            $crate::namespace::run(concat!(module_path!(), "::", stringify!($name)), async $body);
        })*
    };
}
