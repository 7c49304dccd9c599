//! Which addresses a workspace may pull images from.
//!
//! A tenant chooses the registry, so a pull must not become a way to talk to services on the host or in its network.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use sandling_network::policy::Range;
use sandling_oci::registry::{AllowAddress, Endpoint, Role};

use crate::public_address::range;

/// Whether the workspace is the operator's own, which may use registries on loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Operator,
    Tenant,
}

/// Decides about addresses. `allowed` are the registries and mirrors that the operator named, and `opened` the private
/// networks that count as public.
pub(super) fn rule(owner: Owner, allowed: BTreeSet<String>, opened: Vec<Ipv4Net>) -> AllowAddress {
    Arc::new(move |endpoint: &Endpoint, address: IpAddr| {
        let with_port = format!("{}:{}", endpoint.host, endpoint.port);
        let is_registry = endpoint.role == Role::Registry;
        let is_named = is_registry && (allowed.contains(&endpoint.host) || allowed.contains(&with_port));
        match range(address, &opened, &[]) {
            None => true,
            Some(Range::Metadata) => false,
            Some(Range::Loopback) => is_named || (is_registry && owner == Owner::Operator),
            Some(_) => is_named,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(owner: Owner, host: &str, role: Role, address: &str) -> bool {
        let allowed = BTreeSet::from(["registry.lan:5000".to_owned()]);
        let rule = rule(owner, allowed, vec!["10.9.0.0/16".parse().unwrap()]);
        rule(&Endpoint { host: host.to_owned(), port: 5000, role }, address.parse().unwrap())
    }

    #[test]
    fn tenants_reach_public_addresses_and_what_the_operator_allows() {
        let tenant = |host, role, address| allows(Owner::Tenant, host, role, address);
        assert!(tenant("docker.io", Role::Registry, "44.205.64.79"));
        assert!(tenant("docker.io", Role::Registry, "2600:1f18:2148:bc00::1"));
        assert!(tenant("registry.lan", Role::Registry, "192.168.1.2"));
        assert!(tenant("x.example", Role::Other, "10.9.1.1"), "the operator opened this network");
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "192.168.1.2", "169.254.169.254", "fd00::1", "fe80::1"]
        {
            assert!(!tenant("evil.example", Role::Registry, address), "{address}");
            assert!(!tenant("registry.lan", Role::Other, address), "{address}");
        }
        assert!(!tenant("registry.lan", Role::Registry, "169.254.169.254"));
    }

    #[test]
    fn only_the_operators_workspace_reaches_any_registry_on_loopback() {
        for address in ["127.0.0.1", "::1"] {
            assert!(allows(Owner::Operator, "localhost", Role::Registry, address));
            assert!(!allows(Owner::Operator, "localhost", Role::Other, address));
            assert!(!allows(Owner::Tenant, "localhost", Role::Registry, address));
        }
        assert!(!allows(Owner::Operator, "registry.example", Role::Registry, "192.168.1.2"));
    }
}
