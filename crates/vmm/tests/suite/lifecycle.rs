//! Boot, save, restore, stop, continue, resize, end.

use std::fs;
use std::time::Duration;

use sandling_vmm::machine::{Death, Machine, MachineError, Start};

use crate::fixture::*;

#[tokio::test]
async fn two_machines_restored_from_one_are_independent() {
    let memory_before = fs::metadata(TEMPLATE.memory()).unwrap().modified().unwrap();
    let (first, mut first_guest) = running("apart-1").await;
    let (second, mut second_guest) = running("apart-2").await;

    assert_eq!(first_guest.ask("asked").await, "2", "the template was asked once");
    assert_eq!(first_guest.ask("asked").await, "3");
    assert_eq!(second_guest.ask("asked").await, "2", "what the first did is not the second's");
    assert_eq!(first_guest.ask("read").await, "from the template");
    assert_eq!(first_guest.ask("write mine alone").await, "written");
    assert_eq!(second_guest.ask("read").await, "from the template");
    assert_eq!(first_guest.ask("read").await, "mine alone");

    assert_eq!(fs::metadata(TEMPLATE.memory()).unwrap().modified().unwrap(), memory_before);
    first.end().await.unwrap();
    second.end().await.unwrap();
}

#[tokio::test]
async fn a_restored_machine_is_stopped_until_it_is_continued() {
    let machine = Machine::restore(restore_config("stopped").await).await.unwrap();
    assert_eq!(machine.status().await.unwrap(), "paused");
    machine.cont().await.unwrap();
    assert_eq!(machine.status().await.unwrap(), "running");
    let mut guest = Guest::connect(&machine).await;
    assert_eq!(guest.ask("echo here").await, "here");
    machine.stop().await.unwrap();
    guest.tell("echo later").await;
    let silent = tokio::time::timeout(Duration::from_millis(300), guest.line()).await;
    assert!(silent.is_err(), "a stopped machine says nothing");
    machine.cont().await.unwrap();
    machine.end().await.unwrap();
}

#[tokio::test]
async fn the_guest_has_its_cpus_and_no_nested_virtualization() {
    let (machine, mut guest) = running("cpu").await;
    assert_eq!(guest.ask("cpus").await, "1");
    assert_eq!(guest.ask("flag svm").await, "false");
    assert_eq!(guest.ask("flag vmx").await, "false");
    assert_eq!(guest.ask("flag sse2").await, "true");
    machine.end().await.unwrap();
}

#[tokio::test]
async fn usage_of_a_running_machine_is_not_zero() {
    let (machine, mut guest) = running("usage").await;
    guest.ask("echo busy").await;
    let usage = machine.usage().await.unwrap();
    assert!(usage.rss_bytes > 10 << 20 && usage.pss_bytes <= usage.rss_bytes, "{usage:?}");
    assert!(usage.cpu > Duration::ZERO && usage.disk_bytes > 100_000, "{usage:?}");
    machine.end().await.unwrap();
}

#[tokio::test]
async fn a_directory_with_a_very_long_path_works() {
    let name = format!("{0}/{0}", "long".repeat(40));
    let (machine, mut guest) = running(&name).await;
    assert_eq!(guest.ask("echo far away").await, "far away");
    machine.end().await.unwrap();
}

#[tokio::test]
async fn ten_machines_start_at_once() {
    let mut starting = Vec::new();
    for number in 0..10 {
        let config = restore_config(&format!("many-{number}")).await;
        starting.push(tokio::spawn(Machine::restore(config)));
    }
    for machine in starting {
        let machine = machine.await.unwrap().unwrap();
        machine.cont().await.unwrap();
        assert_eq!(Guest::connect(&machine).await.ask("echo one of many").await, "one of many");
        machine.end().await.unwrap();
    }
}

#[tokio::test]
async fn ending_leaves_no_process_no_socket_and_no_group() {
    let (machine, _guest) = running("end").await;
    let (qemu, supervisor, dir) = (machine.pid(), machine.supervisor_pid(), machine.dir().clone());
    let groups = fs::read_to_string(format!("/proc/{qemu}/cgroup")).unwrap();
    assert_eq!(groups.contains("sandling-"), machine.boundary().cgroup.is_some());
    let death = machine.end().await.unwrap();
    assert_eq!(death, Death::Signalled { signal: 9 });
    assert!(!is_alive(qemu) && !is_alive(supervisor));
    assert!(!dir.supervisor().join("qmp.sock").exists() && !dir.supervisor().join("control.sock").exists());
    for line in groups.lines().filter(|line| line.contains("sandling-")) {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controller, path) = (fields.next().unwrap(), fields.next().unwrap());
        assert!(!fs::exists(format!("/sys/fs/cgroup/{controller}{path}")).unwrap(), "{line}");
    }
}

#[tokio::test]
async fn a_state_that_cannot_be_loaded_is_an_error_with_qemus_message() {
    let mut config = restore_config("bad-state").await;
    let state = WORK.join("rubbish");
    fs::write(&state, b"this is no device state").unwrap();
    config.start = Start::Restore { memory: base_memory(), state, cached: None };
    let error = Machine::restore(config).await.unwrap_err();
    assert!(matches!(error, MachineError::DiedEarly { death: Death::Exited { code: 1 }, .. }), "{error:?}");
    assert!(error.to_string().contains("Not a migration stream"), "{error}");
}

#[tokio::test]
async fn a_missing_layer_is_an_error_that_names_it() {
    let mut config = restore_config("no-layer").await;
    config.disk.backing[1].path = "/nonexistent".into();
    let error = Machine::restore(config).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("binding the layer base"), "{cause}");
}

#[tokio::test]
async fn a_cancelled_start_leaves_no_process() {
    let config = restore_config("given-up").await;
    let dir = config.dir.clone();
    let given_up = tokio::time::timeout(Duration::from_millis(15), Machine::restore(config)).await;
    assert!(given_up.is_err(), "a restore takes longer than that");
    drop(given_up);
    eventually("no process of it is left", Duration::from_secs(10), || !any_process_holds(&dir.supervisor()));
}
