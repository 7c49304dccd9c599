//! The same jail for a caller that is not root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::fixture::*;

const NOBODY: u32 = 65534;

#[tokio::test]
#[ignore = "the part of an ordinary user; started by another test"]
async fn an_ordinary_user_runs_a_machine() {
    assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
    let (machine, mut guest) = running("machine").await;
    assert_eq!(guest.ask("echo without root").await, "without root");
    let boundary = machine.boundary();
    assert!(boundary.missing(sandling_vmm::jail::Requirement::Required).is_empty(), "{boundary:?}");
    machine.stop().await.unwrap();
    machine.save_state("state").await.unwrap();
    machine.usage().await.unwrap();
    machine.end().await.unwrap();
}

#[test]
fn root_is_not_needed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this run is by an ordinary user already, in every test");
        return;
    }
    let place = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let copy = |from: &std::path::Path, name: &str| {
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

    let output = Command::new(test)
        .args(["--exact", "ordinary_user::an_ordinary_user_runs_a_machine", "--ignored", "--nocapture"])
        .env(TEMPLATE_VARIABLE, template)
        .env("SANDLING_TEST_LAUNCHER", launcher)
        .env(WORK_VARIABLE, &own)
        .current_dir(&own)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
