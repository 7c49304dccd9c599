//! The running machines, observed from outside: what the kernel says is in force around QEMU and its supervisor.

use std::collections::HashMap;
use std::fs;

use anyhow::Context;
use serde_json::json;

use super::trial::Trial;
use super::world::World;

const CAPABILITIES: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
const NAMESPACES: [&str; 7] = ["user", "mnt", "net", "pid", "ipc", "uts", "cgroup"];
/// QEMU's filters: the answered calls, the hostile calls and the allow-list.
const FILTERS: u32 = 3;
/// The supervisor's filters: the hostile calls and the allow-list.
const SUPERVISOR_FILTERS: u32 = 2;

type Status = HashMap<String, String>;

fn status(pid: i32) -> anyhow::Result<Status> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid}"))?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    Ok(lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect())
}

/// The processes of the attacker's machine.
async fn processes(world: &World) -> anyhow::Result<[(&'static str, i32); 2]> {
    let ready = world.ready().await?;
    let (qemu, supervisor) = ready.server.processes(&ready.sandbox)?;
    Ok([("QEMU", qemu), ("its supervisor", supervisor)])
}

pub async fn privileges(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    for (name, pid) in processes(world).await? {
        let status = status(pid)?;
        let field = |key: &str| status.get(key).cloned().unwrap_or_default();
        let left: Vec<_> = CAPABILITIES.iter().filter(|set| field(set) != "0000000000000000").collect();
        trial.record(
            left.is_empty(),
            format!("capabilities of {name}"),
            match left.is_empty() {
                true => "none in any set".to_owned(),
                false => format!("left in {left:?}"),
            },
        );
        trial.record(field("NoNewPrivs") == "1", format!("no_new_privs of {name}"), field("NoNewPrivs"));
        let ids = [field("Uid"), field("Gid")].join(" ");
        trial.record(!ids.split_whitespace().any(|id| id == "0"), format!("users and groups of {name}"), ids.clone());
    }
    Ok(())
}

pub async fn filters(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    for ((name, pid), least) in processes(world).await?.into_iter().zip([FILTERS, SUPERVISOR_FILTERS]) {
        let status = status(pid)?;
        let mode = status.get("Seccomp").cloned().unwrap_or_default();
        // Kernels before 5.9 do not count the filters.
        let count = status.get("Seccomp_filters").and_then(|count| count.parse().ok()).unwrap_or(least);
        let happened = format!("mode {mode}, {count} filters");
        trial.record(mode == "2" && count >= least, format!("seccomp of {name}"), happened);
    }
    Ok(())
}

pub async fn namespaces(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let machines = processes(world).await?;
    for (name, pid) in machines {
        for kind in NAMESPACES {
            let theirs = fs::read_link(format!("/proc/{pid}/ns/{kind}"))?;
            let ours = fs::read_link(format!("/proc/self/ns/{kind}"))?;
            let happened = if theirs == ours { "the host's".to_owned() } else { theirs.display().to_string() };
            trial.record(theirs != ours, format!("{kind} namespace of {name}"), happened);
        }
    }
    let [(_, qemu), (_, supervisor)] = machines;
    let [own, above] = [qemu, supervisor].map(|pid| fs::read_link(format!("/proc/{pid}/ns/pid")));
    let (own, above) = (own?, above?);
    trial.record(own != above, "the supervisor as QEMU sees it", if own != above { "not at all" } else { "a process" });
    let interfaces = fs::read_to_string(format!("/proc/{qemu}/net/dev"))?;
    let names: Vec<_> =
        interfaces.lines().skip(2).filter_map(|line| line.split_once(':')).map(|(n, _)| n.trim()).collect();
    trial.record(names == ["lo"], "network interfaces of QEMU", names.join(", "));
    Ok(())
}

pub async fn mounts(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    const KNOWN: [&str; 7] = ["/usr/", "/lib", "/etc/ld.so.cache", "/dev/", "/layers/", "/vm", "/preload.so"];
    let [(_, qemu), _] = processes(world).await?;
    let table = fs::read_to_string(format!("/proc/{qemu}/mountinfo"))?;
    let mut count = 0;
    for line in table.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let [_, _, _, _, place, options, ..] = fields[..] else { continue };
        // A cached QEMU starts from a program of its own, which is mounted alone.
        let known =
            place == "/" || KNOWN.iter().any(|known| place.starts_with(known)) || place.matches('/').count() == 1;
        let is = |option: &str| options.split(',').any(|have| have == option);
        let writable = place == "/vm" || place.starts_with("/dev/");
        let holds = known && is("nosuid") && (writable || is("ro"));
        if !holds {
            trial.record(false, format!("mount at {place}"), options.to_owned());
        }
        count += 1;
    }
    trial.record(count > 0, "every mount is known, nosuid and read-only except /vm", format!("{count} mounts"));
    Ok(())
}

/// Each machine has a user of its own, unless the server is an ordinary user without subordinate ids.
pub async fn own_user(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let third = ready.server.sandbox(&ready.attacker, json!({})).await?;
    let mut users = Vec::new();
    for sandbox in [&ready.sandbox, &ready.witness, &third] {
        let (qemu, _) = ready.server.processes(sandbox)?;
        let ids = status(qemu)?.get("Uid").cloned().unwrap_or_default();
        users.push(ids.split_whitespace().next().unwrap_or_default().to_owned());
    }
    third.remove().await;
    let own = rustix::process::geteuid();
    if !own.is_root() && users.iter().all(|user| *user == own.as_raw().to_string()) {
        trial.skip("users of three machines", "this user has no subordinate ids, so machines have its own");
        return Ok(());
    }
    let mut distinct = users.clone();
    distinct.sort();
    distinct.dedup();
    trial.record(distinct.len() == users.len(), "users of three machines", users.join(", "));
    Ok(())
}

/// The memory that a process has in use.
pub fn resident_mib(pid: i32) -> Option<u64> {
    let kib = status(pid).ok()?.get("VmRSS")?.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(kib / 1024)
}

pub async fn limits(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let [(_, qemu), _] = processes(world).await?;
    let text = fs::read_to_string(format!("/proc/{qemu}/limits"))?;
    for name in ["Max file size", "Max open files", "Max processes", "Max core file size"] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let hard = line[name.len()..].split_whitespace().nth(1).unwrap_or_default();
        trial.record(hard != "unlimited" && !hard.is_empty(), name, hard);
    }
    let groups = fs::read_to_string(format!("/proc/{qemu}/cgroup"))?;
    for (controller, file, file_v1) in
        [("memory", "memory.max", "memory.limit_in_bytes"), ("pids", "pids.max", "pids.max")]
    {
        match group_limit(&groups, controller, file, file_v1) {
            Some(limit) => trial.record(is_limit(&limit), format!("control group limit {file}"), limit),
            None => trial.skip(
                format!("control group limit {file}"),
                format!("this host gives the server no group with the controller {controller}"),
            ),
        }
    }
    Ok(())
}

/// Version 1 shows "no limit" as a number near the largest.
fn is_limit(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|number| number < 1 << 60)
}

/// The limit of a process's control group, or `None` if its group is not one that Sandling made.
fn group_limit(groups: &str, controller: &str, file: &str, file_v1: &str) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let ours = path.rsplit('/').next().is_some_and(|name| name.starts_with("sandling-"));
        let (place, file) = match controllers {
            "" => (format!("/sys/fs/cgroup{path}"), file),
            some if some.split(',').any(|name| name == controller) => {
                (format!("/sys/fs/cgroup/{controller}{path}"), file_v1)
            }
            _ => return None,
        };
        let limit = fs::read_to_string(format!("{place}/{file}")).ok()?;
        ours.then(|| limit.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_no_limit_in_either_version() {
        assert!(is_limit("536870912"));
        for none in ["max", "9223372036854771712", ""] {
            assert!(!is_limit(none), "{none}");
        }
    }
}
