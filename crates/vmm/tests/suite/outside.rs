//! The running process, observed from outside.

use std::collections::HashMap;
use std::fs;

use sandling_vmm::jail::Landlock;
use sandling_vmm::machine::Machine;

use crate::fixture::*;

fn proc(pid: i32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap()
}

fn status(pid: i32) -> HashMap<String, String> {
    let text = proc(pid, "status");
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()
}

async fn machine(name: &str) -> Machine {
    Machine::restore(restore_config(name).await).await.unwrap()
}

#[tokio::test]
async fn qemu_and_its_supervisor_have_no_privilege() {
    let machine = machine("privilege").await;
    for pid in [machine.pid(), machine.supervisor_pid()] {
        let status = status(pid);
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status[set], "0000000000000000", "{set} of {pid}");
        }
        assert_eq!(status["NoNewPrivs"], "1");
        assert_eq!(status["Seccomp"], "2");
        for ids in [&status["Uid"], &status["Gid"]] {
            assert!(ids.split_whitespace().all(|id| id.parse::<u32>().unwrap() > 0), "{ids}");
        }
    }
    machine.end().await.unwrap();
}

#[tokio::test]
async fn as_root_every_machine_has_its_own_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give machines users of their own");
        return;
    }
    let (first, second) = (machine("user-1").await, machine("user-2").await);
    let (first_status, second_status) = (status(first.pid()), status(second.pid()));
    assert_ne!(first_status["Uid"], second_status["Uid"]);
    assert_ne!(first_status["Gid"], second_status["Gid"]);
    assert_eq!((first.boundary().own_user, second.boundary().own_user), (Some(true), Some(true)));
    assert_eq!(first_status["Groups"], "");
    first.end().await.unwrap();
    second.end().await.unwrap();
}

#[tokio::test]
async fn qemu_has_its_own_namespaces() {
    let machine = machine("namespaces").await;
    let link = |pid: &str, kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
    for kind in ["user", "mnt", "net", "pid", "ipc", "uts", "cgroup"] {
        assert_ne!(link(&machine.pid().to_string(), kind), link("self", kind), "{kind}");
    }
    assert_eq!(status(machine.pid())["NSpid"].split_whitespace().last(), Some("1"), "it is alone with itself");
    let interfaces = proc(machine.pid(), "net/dev").lines().skip(2).count();
    assert_eq!(interfaces, 1, "only lo");
    machine.end().await.unwrap();
}

#[tokio::test]
async fn qemu_and_its_supervisor_see_no_processes_of_the_host() {
    let machine = machine("pid-namespaces").await;
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
    let [qemu, supervisor] = [machine.pid(), machine.supervisor_pid()].map(|pid| namespace(&pid.to_string()));
    assert!(supervisor != namespace("self") && qemu != supervisor);
    let pids = |pid| status(pid)["NSpid"].split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<i32>>();
    let (of_qemu, of_supervisor) = (pids(machine.pid()), pids(machine.supervisor_pid()));
    assert_eq!(of_supervisor.last(), Some(&1));
    assert_eq!((of_qemu.len(), of_qemu.last()), (of_supervisor.len() + 1, Some(&1)), "it does not see its supervisor");
    machine.end().await.unwrap();
}

#[tokio::test]
async fn only_what_the_description_names_is_mounted() {
    let machine = machine("mounts").await;
    let mounts = proc(machine.pid(), "mountinfo");
    for line in mounts.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let (place, options) = (fields[4], fields[5]);
        let known = ["/", "/usr/", "/lib", "/etc/ld.so.cache", "/dev/", "/layers/", "/vm", "/preload.so"];
        assert!(known.iter().any(|known| place == *known || known.len() > 1 && place.starts_with(known)), "{line}");
        assert!(options.contains("nosuid"), "{line}");
        let writable = place == "/vm" || place.starts_with("/dev/");
        assert!(writable || options.split(',').any(|option| option == "ro"), "{line}");
    }
    for absent in ["/proc", "/sys", "/home", "/root", "/tmp", "/dev/kvm"] {
        assert!(!mounts.lines().any(|line| line.split(' ').nth(4) == Some(absent)), "{absent}");
    }
    machine.end().await.unwrap();
}

#[tokio::test]
async fn qemu_inherits_no_descriptor_of_its_caller() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    let leaked = secret.as_file().try_clone().unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let machine = machine("descriptors").await;
    let allowed = ["socket:", "pipe:", "anon_inode:", "/dev/null", "/vm/", "/layers/"];
    for pid in [machine.pid(), machine.supervisor_pid()] {
        for target in open_files(pid) {
            assert_ne!(target, secret.path().to_string_lossy());
            let own = target.contains("/descriptors/") || target.contains("template/memory");
            let expected = allowed.iter().any(|prefix| target.starts_with(prefix)) || own || target == "/keeper";
            assert!(expected || target.starts_with("/memfd"), "{pid} has {target}");
        }
    }
    machine.end().await.unwrap();
}

#[tokio::test]
async fn qemu_does_not_inherit_its_callers_environment() {
    let machine = machine("environment").await;
    let environment = proc(machine.pid(), "environ");
    let variables: Vec<_> = environment.split_terminator('\0').collect();
    let own = ["SANDLING_MEMORY=268435456", "SANDLING_COPY_FD=8", "LD_PRELOAD=/preload.so"];
    assert_eq!(variables, own);
    assert_eq!(proc(machine.supervisor_pid(), "environ"), "");
    machine.end().await.unwrap();
}

#[tokio::test]
async fn limits_are_set() {
    let mut config = restore_config("limits").await;
    config.jail.limits.file_bytes = 1 << 30;
    let machine = Machine::restore(config).await.unwrap();
    let limits = proc(machine.pid(), "limits");
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let mut numbers = line[name.len()..].split_whitespace().map(str::to_owned);
        (numbers.next().unwrap(), numbers.next().unwrap())
    };
    assert_eq!(limit("Max file size"), ("1073741824".into(), "1073741824".into()));
    assert_eq!(limit("Max core file size"), ("0".into(), "0".into()));
    assert_eq!(limit("Max open files"), ("512".into(), "512".into()));
    assert_eq!(limit("Max processes"), ("256".into(), "256".into()));
    machine.end().await.unwrap();
}

#[tokio::test]
async fn the_boundary_reports_the_layers_in_effect() {
    let mut config = restore_config("boundary").await;
    config.jail.limits.cgroup.memory_bytes = Some(1 << 30);
    let machine = Machine::restore(config).await.unwrap();
    let boundary = machine.boundary();
    assert!(boundary.missing(sandling_vmm::jail::Requirement::Required).is_empty());
    let survey = sandling_vmm::jail::survey();
    let host_has = |name| survey.iter().any(|layer| layer.name == name && layer.available);
    assert_eq!(boundary.landlock != Landlock::Absent, host_has("landlock"));
    assert_eq!(boundary.cgroup.is_some(), host_has("cgroup"));
    if let Some(cgroup) = &boundary.cgroup {
        assert!(cgroup.controllers.contains(&"memory".to_owned()), "{cgroup:?}");
    }
    let text = serde_json::to_value(boundary).unwrap();
    assert_eq!(text["accelerator"], "tcg");
    machine.end().await.unwrap();
}

#[tokio::test]
async fn machines_of_one_tenant_share_a_group_and_keep_their_limits() {
    let (mut config, mut sibling) = (restore_config("tenant-1").await, restore_config("tenant-2").await);
    for config in [&mut config, &mut sibling] {
        config.jail.limits.cgroup.memory_bytes = Some(1 << 30);
        config.jail.limits.cgroup.cpu_milli = Some(1500);
    }
    let (first, second) = (Machine::restore(config).await.unwrap(), Machine::restore(sibling).await.unwrap());
    if first.boundary().cgroup.is_none() {
        eprintln!("SKIPPED: this host has no control groups for this user");
        return;
    }
    for machine in [&first, &second] {
        machine.join_tenant("someone", std::time::Duration::ZERO).await.unwrap();
        machine.join_tenant("someone", std::time::Duration::ZERO).await.unwrap();
    }
    let group = |pid| {
        let groups = proc(pid, "cgroup");
        let line =
            groups.lines().find(|line| line.starts_with("0::/") || line.contains(":cpu:") || line.contains("cpu,"));
        line.unwrap().rsplit_once(':').unwrap().1.to_owned()
    };
    let (one, two) = (group(first.pid()), group(second.pid()));
    assert_ne!(one, two);
    let tenant = |group: &str| group.rsplit_once('/').unwrap().0.to_owned();
    assert_eq!(tenant(&one), tenant(&two), "{one} and {two}");
    assert!(tenant(&one).contains("/sandling-tenant-"), "{one}");
    assert_eq!(group(first.supervisor_pid()), one);
    let record = fs::read_to_string(first.dir().record()).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let directories: Vec<_> = record["cgroup"]["directories"].as_array().unwrap().clone();
    let read = |file: &str| {
        let paths = directories.iter().map(|directory| std::path::Path::new(directory.as_str().unwrap()).join(file));
        paths.into_iter().find_map(|path| fs::read_to_string(path).ok())
    };
    let memory = read("memory.max").or_else(|| read("memory.limit_in_bytes")).unwrap();
    assert_eq!(memory.trim(), (1u64 << 30).to_string());
    first.end().await.unwrap();
    second.end().await.unwrap();
    for directory in directories {
        let group = std::path::Path::new(directory.as_str().unwrap()).to_owned();
        eventually("the groups' end", PATIENCE, || !group.exists() && !group.parent().unwrap().exists());
    }
}
