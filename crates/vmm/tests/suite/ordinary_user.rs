//! The same jail for a caller that is not root, with and without subordinate users.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use sandling_vmm::machine::Machine;
use tempfile::TempDir;

use crate::fixture::*;
use crate::memory::{child, resumed, save};

const NOBODY: u32 = 65534;
/// The subordinate ids that a test gives to nobody, with 4 of each.
const FIRST_USER: u32 = 2_000_000_000;
const FIRST_GROUP: u32 = 2_000_001_000;

#[tokio::test]
#[ignore = "the part of an ordinary user; started by another test"]
async fn an_ordinary_user_runs_a_machine() {
    assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
    let (machine, mut guest) = running("machine").await;
    assert_eq!(guest.ask("echo without root").await, "without root");
    let boundary = machine.boundary();
    assert!(boundary.missing(sandling_vmm::jail::Requirement::Required).is_empty(), "{boundary:?}");
    assert_eq!((boundary.own_user, user(&machine)), (Some(false), NOBODY), "and it says so");
    machine.stop().await.unwrap();
    machine.save_state("state").await.unwrap();
    machine.usage().await.unwrap();
    machine.end().await.unwrap();
}

#[tokio::test]
#[ignore = "the part of an ordinary user with subordinate ids; started by another test"]
async fn an_ordinary_user_runs_machines_with_users_of_their_own() {
    assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
    let (first, mut guest) = running("first").await;
    assert_eq!(guest.ask("echo without root").await, "without root");
    assert_eq!(guest.ask("write by a subordinate user").await, "written");
    assert_own(&first);
    // Its memory, its disk and its process are saved, and other machines with other users continue from them.
    let saved = save(&first, None, "subordinate").await;
    let (second, mut second_guest) = child(&saved, "second").await;
    assert_eq!(second_guest.ask("echo a child").await, "a child");
    let (third, mut third_guest) = resumed(&saved, "third").await;
    assert_eq!(third_guest.ask("echo a resumed child").await, "a resumed child");
    let machines = [first, second, third];
    let mut users: Vec<_> = machines.iter().map(user).collect();
    users.sort_unstable();
    users.dedup();
    assert_eq!(users.len(), 3, "each has its own: {users:?}");
    for machine in machines {
        assert_own(&machine);
        machine.usage().await.unwrap();
        machine.guest_pages().await.unwrap();
        machine.stop().await.unwrap();
        machine.save_state("state").await.unwrap();
        machine.end().await.unwrap();
        fs::remove_dir_all(machine.dir().path()).unwrap();
    }
}

fn assert_own(machine: &Machine) {
    let boundary = machine.boundary();
    assert!(boundary.missing(sandling_vmm::jail::Requirement::Required).is_empty(), "{boundary:?}");
    assert_eq!(boundary.own_user, Some(true));
    assert!((FIRST_USER..FIRST_USER + 4).contains(&user(machine)), "{}", user(machine));
    let status = fs::read_to_string(format!("/proc/{}/status", machine.pid())).unwrap();
    assert!(status.contains(&format!("Gid:\t{}\t", user(machine) - FIRST_USER + FIRST_GROUP)), "{status}");
    assert!(status.contains("Groups:\t \n"), "none of the caller's groups: {status}");
}

/// The user of a machine's QEMU, on the host.
fn user(machine: &Machine) -> u32 {
    std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{}", machine.pid())).unwrap())
}

/// What a test needs when it runs as another user.
struct Stage {
    place: TempDir,
    launcher: PathBuf,
    test: PathBuf,
    template: PathBuf,
    own: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let place = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
        let copy = |from: &Path, name: &str| {
            let to = place.path().join(name);
            fs::copy(from, &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
            to
        };
        let launcher = copy(env!("CARGO_BIN_EXE_sandling-jail").as_ref(), "launcher");
        let test = copy(&std::env::current_exe().unwrap(), "test");
        let template = place.path().join("template");
        fs::create_dir(&template).unwrap();
        for name in ["memory", "state", "root", "base"] {
            copy(&TEMPLATE.dir.join(name), &format!("template/{name}"));
        }
        let own = place.path().join("own");
        fs::create_dir(&own).unwrap();
        chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
        Self { place, launcher, test, template, own }
    }

    /// Runs a test as nobody, who has these subordinate ids: a mount namespace of its own hides the host's files.
    fn run(&self, subordinate: [&str; 2], name: &str) {
        let mut binds = Vec::new();
        for (file, text) in ["subuid", "subgid"].iter().zip(subordinate) {
            let path = self.place.path().join(file);
            fs::write(&path, text).unwrap();
            binds.push(format!("mount --bind {} /etc/{file}", path.display()));
        }
        let become_nobody = format!("exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \"$@\"");
        let script = format!("{} && {become_nobody}", binds.join(" && "));
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script, "sh"])
            .arg(&self.test)
            .args(["--exact", name, "--ignored", "--nocapture"])
            .env(TEMPLATE_VARIABLE, &self.template)
            .env("SANDLING_TEST_LAUNCHER", &self.launcher)
            .env(WORK_VARIABLE, &self.own)
            .current_dir(&self.own)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: only root can become another user");
    }
    root
}

#[test]
fn root_is_not_needed() {
    if is_root() {
        Stage::new().run(["", ""], "ordinary_user::an_ordinary_user_runs_a_machine");
    }
}

#[test]
fn machines_of_an_ordinary_user_have_users_of_their_own() {
    if is_root() {
        let ids = [format!("nobody:{FIRST_USER}:4\n"), format!("nobody:{FIRST_GROUP}:4\n")];
        let name = "ordinary_user::an_ordinary_user_runs_machines_with_users_of_their_own";
        Stage::new().run([&ids[0], &ids[1]], name);
    }
}
