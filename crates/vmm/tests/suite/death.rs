//! However a machine ends, its end and the reason are reported.

use std::time::{Duration, Instant};

use sandling_vmm::machine::{Death, Machine};

use crate::fixture::*;

async fn death_of(machine: &Machine) -> Death {
    let mut died = machine.died();
    let death = tokio::time::timeout(PATIENCE, died.wait_for(Option::is_some)).await.expect("noticed");
    death.unwrap().clone().unwrap()
}

fn kill(pid: i32) {
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
}

#[tokio::test]
async fn a_killed_qemu_is_noticed_at_once() {
    let (machine, _guest) = running("killed").await;
    let begun = Instant::now();
    kill(machine.pid());
    assert_eq!(death_of(&machine).await, Death::Signalled { signal: 9 });
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(!is_alive(machine.supervisor_pid()));
}

#[tokio::test]
async fn qemu_dies_with_its_supervisor() {
    let (machine, _guest) = running("supervisor").await;
    let qemu = machine.pid();
    kill(machine.supervisor_pid());
    assert_eq!(death_of(&machine).await, Death::SupervisorLost);
    assert!(!is_alive(qemu));
}

#[tokio::test]
async fn a_guest_that_panics_ends_its_machine() {
    let (machine, mut guest) = running("panic").await;
    guest.tell("panic").await;
    assert_eq!(death_of(&machine).await, Death::Exited { code: 0 });
    let log = std::fs::read_to_string(machine.dir().console_log()).unwrap();
    assert!(log.contains("Kernel panic"), "the console's last output is in the log: {log}");
}

#[tokio::test]
async fn a_deadline_holds_and_can_be_moved() {
    let (machine, mut guest) = running("deadline").await;
    machine.set_deadline(Some(now_ms() + 600_000)).unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(guest.ask("echo still here").await, "still here");
    machine.set_deadline(Some(now_ms())).unwrap();
    let begun = Instant::now();
    assert_eq!(death_of(&machine).await, Death::Deadline);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_machine_without_a_deadline_has_none() {
    let (machine, mut guest) = running("no-deadline").await;
    machine.set_deadline(Some(now_ms() + 700)).unwrap();
    machine.set_deadline(None).unwrap();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(guest.ask("echo still here").await, "still here");
    machine.end().await.unwrap();
}
