//! The list of attacks.

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::trial::Trial;
use super::world::World;
use super::{credentials, files, gateway, guest, host, jail, live, neighbors, previews, tenants};

type Run = for<'a> fn(&'a World, &'a mut Trial) -> BoxFuture<'a, anyhow::Result<()>>;

/// One attack. Its id stays the same between versions, so that reports can be compared.
pub struct Entry {
    pub id: &'static str,
    /// What is attacked.
    pub title: &'static str,
    pub limit: Duration,
    pub run: Run,
}

const fn entry(id: &'static str, title: &'static str, seconds: u64, run: Run) -> Entry {
    Entry { id, title, limit: Duration::from_secs(seconds), run }
}

#[rustfmt::skip] // one entry to a line reads like the report
pub const ENTRIES: &[Entry] = &[
    entry("host.mitigations", "vulnerabilities of the CPU", 5, |w, t| Box::pin(host::mitigations(w, t))),
    entry("host.smt", "threads that share a core", 5, |w, t| Box::pin(host::smt(w, t))),
    entry("host.microcode", "the CPU's microcode", 5, |w, t| Box::pin(host::microcode(w, t))),
    entry("host.landlock", "the kernel's Landlock", 5, |w, t| Box::pin(host::landlock(w, t))),
    entry("host.layers", "what else the jail needs of the kernel", 20, |w, t| Box::pin(host::layers(w, t))),
    entry("jail.hostile-calls", "system calls that end QEMU", 60, |w, t| Box::pin(jail::hostile_calls(w, t))),
    entry("jail.other-calls", "system calls outside the allow-list", 60, |w, t| Box::pin(jail::other_calls(w, t))),
    entry("jail.ioctl", "requests to devices from inside the jail", 20, |w, t| Box::pin(jail::ioctl(w, t))),
    entry("jail.sockets", "new sockets from inside the jail", 20, |w, t| Box::pin(jail::sockets(w, t))),
    entry("jail.exec", "other programs from inside the jail", 20, |w, t| Box::pin(jail::exec(w, t))),
    entry("jail.files", "files of the host from inside the jail", 30, |w, t| Box::pin(jail::host_files(w, t))),
    entry("jail.writes", "writing outside the machine's directory", 30, |w, t| Box::pin(jail::writes(w, t))),
    entry("jail.landlock", "paths outside the Landlock rules", 20, |w, t| Box::pin(jail::landlock(w, t))),
    entry("jail.memory", "the template's memory, which machines share", 20, |w, t| Box::pin(jail::template_memory(w, t))),
    entry("jail.leaks", "descriptors, variables and processes of the host", 20, |w, t| Box::pin(jail::leaks(w, t))),
    entry("jail.threads", "the number of threads", 30, |w, t| Box::pin(jail::threads(w, t))),
    entry("machine.privileges", "privileges of a running QEMU", 240, |w, t| Box::pin(live::privileges(w, t))),
    entry("machine.filters", "seccomp filters of a running QEMU", 20, |w, t| Box::pin(live::filters(w, t))),
    entry("machine.namespaces", "namespaces of a running QEMU and its supervisor", 20, |w, t| Box::pin(live::namespaces(w, t))),
    entry("machine.mounts", "mounts of a running QEMU", 20, |w, t| Box::pin(live::mounts(w, t))),
    entry("machine.users", "users of several machines", 60, |w, t| Box::pin(live::own_user(w, t))),
    entry("machine.limits", "resource limits of a running QEMU", 20, |w, t| Box::pin(live::limits(w, t))),
    entry("guest.devices", "devices that a guest sees", 60, |w, t| Box::pin(guest::devices(w, t))),
    entry("guest.host-data", "data of the host inside a guest", 90, |w, t| Box::pin(guest::host_data(w, t))),
    entry("guest.control-channel", "the control channel, with rubbish", 90, |w, t| Box::pin(guest::control_channel(w, t))),
    entry("guest.crash", "a crash of the guest's kernel", 90, |w, t| Box::pin(guest::crash(w, t))),
    entry("guest.registers", "registers of emulated devices", 90, |w, t| Box::pin(guest::registers(w, t))),
    entry("gateway.closed", "a sandbox without a policy", 60, |w, t| Box::pin(gateway::no_network(w, t))),
    entry("gateway.addresses", "addresses and ports outside the policy", 60, |w, t| Box::pin(gateway::addresses(w, t))),
    entry("gateway.private", "the host, its networks and cloud metadata", 120, |w, t| Box::pin(gateway::private(w, t))),
    entry("gateway.names", "names outside the policy", 60, |w, t| Box::pin(gateway::names(w, t))),
    entry("gateway.tls", "another server name in TLS", 60, |w, t| Box::pin(gateway::tls(w, t))),
    entry("gateway.rebinding", "allowed names that point at the host", 60, |w, t| Box::pin(gateway::rebinding(w, t))),
    entry("gateway.datagrams", "UDP outside the policy", 60, |w, t| Box::pin(gateway::datagrams(w, t))),
    entry("gateway.protocols", "ICMP, tunnels and IPv6", 60, |w, t| Box::pin(gateway::other_protocols(w, t))),
    entry("gateway.forged", "forged, fragmented and malformed packets", 60, |w, t| Box::pin(gateway::forged_packets(w, t))),
    entry("gateway.change", "connections after the policy was changed", 60, |w, t| Box::pin(gateway::policy_change(w, t))),
    entry("tokens.missing", "the API without a valid token", 30, |w, t| Box::pin(credentials::without_token(w, t))),
    entry("tokens.scopes", "what a token's scope forbids", 30, |w, t| Box::pin(credentials::scopes(w, t))),
    entry("tokens.revoked", "a revoked token", 30, |w, t| Box::pin(credentials::revoked(w, t))),
    entry("tokens.streams", "open streams of a revoked token", 60, |w, t| Box::pin(credentials::streams(w, t))),
    entry("tokens.derived", "credentials that came from a revoked token", 90, |w, t| Box::pin(credentials::derived(w, t))),
    entry("tenants.sandboxes", "another tenant's sandbox", 60, |w, t| Box::pin(tenants::sandboxes(w, t))),
    entry("tenants.objects", "another tenant's volumes, snapshots, secrets and tokens", 90, |w, t| Box::pin(tenants::other_objects(w, t))),
    entry("previews.closed", "ports of a sandbox without a token", 60, |w, t| Box::pin(previews::closed(w, t))),
    entry("previews.credentials", "tokens in requests to a sandbox's server", 60, |w, t| Box::pin(previews::credentials(w, t))),
    entry("previews.paths", "paths that a preview token does not open", 60, |w, t| Box::pin(previews::paths(w, t))),
    entry("neighbors.connections", "connections without a token", 60, |w, t| Box::pin(neighbors::connections(w, t))),
    entry("neighbors.slow-heads", "requests that never end", 50, |w, t| Box::pin(neighbors::slow_heads(w, t))),
    entry("neighbors.guests", "guests that use all they can get", 150, |w, t| Box::pin(neighbors::guests(w, t))),
    entry("files.private-home", "files that a new home exposes", 20, |w, t| Box::pin(files::private_home(w, t))),
    entry("files.your-home", "files that your home exposes", 20, |w, t| Box::pin(files::own_home(w, t))),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_have_a_group() {
        let mut ids: Vec<_> = ENTRIES.iter().map(|entry| entry.id).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count);
        assert!(
            ids.iter().all(|id| id.split_once('.').is_some_and(|(group, name)| !group.is_empty() && !name.is_empty()))
        );
    }
}
