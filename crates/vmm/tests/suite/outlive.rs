//! Machines whose caller has died: they continue, end at their deadline, and can be adopted or ended.
//!
//! The caller that dies is this test binary, started again for one of the ignored tests.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sandling_vmm::jail::MachineDir;
use sandling_vmm::machine::{self, Death, Machine, MachineError};

use crate::fixture::*;

const NAME_VARIABLE: &str = "SANDLING_TEST_NAME";
const DEADLINE_VARIABLE: &str = "SANDLING_TEST_DEADLINE_MS";

/// Starts this binary again for one test, with the same template.
fn start_caller(test: &str, name: &str, deadline_ms: Option<u64>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(TEMPLATE_VARIABLE, &TEMPLATE.dir);
    command.env(NAME_VARIABLE, name).env(WORK_VARIABLE, &*WORK).stdout(Stdio::null());
    command.envs(deadline_ms.map(|deadline| (DEADLINE_VARIABLE, deadline.to_string())));
    command.spawn().unwrap()
}

fn named() -> String {
    std::env::var(NAME_VARIABLE).expect("started by another test")
}

#[tokio::test]
#[ignore = "the part of a caller that dies; started by other tests"]
async fn caller_that_dies_with_a_machine_running() {
    let mut config = restore_config(&named()).await;
    config.deadline_ms = std::env::var(DEADLINE_VARIABLE).ok().and_then(|deadline| deadline.parse().ok());
    let machine = Machine::restore(config).await.unwrap();
    machine.cont().await.unwrap();
    std::process::abort();
}

#[tokio::test]
#[ignore = "the part of a caller that dies; started by other tests"]
async fn caller_that_dies_in_the_middle() {
    let config = restore_config(&named()).await;
    tokio::select! {
        _ = Machine::restore(config) => panic!("too fast to be interrupted"),
        () = tokio::time::sleep(Duration::from_millis(20)) => std::process::abort(),
    }
}

fn die_with_machine(name: &str, deadline_ms: Option<u64>) -> MachineDir {
    let mut caller = start_caller("outlive::caller_that_dies_with_a_machine_running", name, deadline_ms);
    let status = caller.wait().unwrap();
    assert!(!status.success() && status.code().is_none(), "the caller dies by a signal: {status}");
    MachineDir::new(WORK.join(name))
}

/// The processes of a machine whose caller has died.
struct Orphan {
    qemu: i32,
    supervisor: i32,
}

/// Reads the machine's record, and checks that its processes still run.
fn recorded(dir: &MachineDir) -> Orphan {
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.record()).unwrap()).unwrap();
    let pid = |process: &str| record[process]["pid"].as_i64().unwrap() as i32;
    let orphan = Orphan { qemu: pid("qemu"), supervisor: pid("keeper") };
    assert!(is_alive(orphan.qemu) && is_alive(orphan.supervisor), "still running");
    orphan
}

#[tokio::test]
async fn a_machine_outlives_its_caller_and_is_adopted() {
    let dir = die_with_machine("adopted", None);
    let orphan = recorded(&dir);
    let machine = Machine::adopt(dir.clone()).await.unwrap().expect("still running");
    assert_eq!((machine.pid(), machine.supervisor_pid()), (orphan.qemu, orphan.supervisor));
    assert_eq!(machine.status().await.unwrap(), "running");
    assert!(machine.boundary().seccomp);
    assert_eq!(Guest::connect(&machine).await.ask("echo new master").await, "new master");
    assert_eq!(machine.end().await.unwrap(), Death::Signalled { signal: 9 });
    assert!(!is_alive(orphan.qemu) && !is_alive(orphan.supervisor));
    assert!(Machine::adopt(dir).await.unwrap().is_none());
}

#[tokio::test]
async fn a_deadline_holds_after_the_callers_death() {
    let dir = die_with_machine("deadline-alone", Some(now_ms() + 6000));
    let orphan = recorded(&dir);
    eventually("QEMU ends", Duration::from_secs(60), || !is_alive(orphan.qemu));
    eventually("its supervisor, too", Duration::from_secs(30), || !is_alive(orphan.supervisor));
    let report = std::fs::read_to_string(dir.exit_report()).unwrap();
    assert_eq!(report, r#"{"reason":"deadline"}"#);
    assert!(!machine::kill_leftover(&dir).await.unwrap(), "nothing was left to kill");
}

#[tokio::test]
async fn a_dead_callers_machine_is_ended() {
    let dir = die_with_machine("leftover", None);
    let orphan = recorded(&dir);
    assert!(machine::kill_leftover(&dir).await.unwrap());
    assert!(!is_alive(orphan.qemu) && !is_alive(orphan.supervisor));
    assert!(!machine::kill_leftover(&dir).await.unwrap());
}

#[tokio::test]
async fn a_machine_with_an_unreadable_record_is_kept_until_it_is_ended() {
    let dir = die_with_machine("unreadable", None);
    let orphan = recorded(&dir);
    std::fs::write(dir.record(), "{").unwrap();
    assert!(matches!(Machine::adopt(dir.clone()).await, Err(MachineError::UnreadableRecord { .. })));
    assert!(is_alive(orphan.qemu), "it runs on");
    assert!(machine::kill_leftover(&dir).await.unwrap());
    eventually("QEMU ends", Duration::from_secs(30), || !is_alive(orphan.qemu));
    assert!(!machine::kill_leftover(&dir).await.unwrap());
}

#[tokio::test]
async fn a_caller_that_dies_in_the_middle_of_a_start_leaves_nothing() {
    let mut caller = start_caller("outlive::caller_that_dies_in_the_middle", "middle", None);
    assert!(caller.wait().unwrap().code().is_none(), "the caller dies by a signal");
    let dir = MachineDir::new(WORK.join("middle"));
    let supervisor = dir.supervisor();
    eventually("no supervisor is left", Duration::from_secs(30), || !any_process_holds(&supervisor));
    assert!(!machine::kill_leftover(&dir).await.unwrap());
}
