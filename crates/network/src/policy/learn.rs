//! Records the destinations of a sandbox in learning mode, and builds the policy that allows them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::decide::{Policy, Shown};
use super::entry::{Entry, NAMED_PORTS, Ports, Target};
use super::preset::Preset;
use crate::name::HostName;

/// The most destinations that are recorded. Nobody would review a longer list.
const MOST: usize = 4096;

/// The recorded destinations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    names: BTreeSet<(HostName, u16)>,
    addresses: BTreeSet<(Ipv4Addr, u16)>,
}

impl Learned {
    /// Records a connection to `port` of `address` and what it showed. Without a name, the connection may have meant
    /// any of the `names` that DNS returned the address for, so all of them are recorded. If they do not suffice, the
    /// address is recorded as well.
    pub fn connection(&mut self, address: Ipv4Addr, port: u16, shown: Shown<'_>, names: &[HostName]) {
        if let Shown::Name(name) = shown {
            return self.name(name.clone(), port);
        }
        for name in names {
            self.name(name.clone(), port);
        }
        let by_name = shown == Shown::OtherProtocol && !NAMED_PORTS.contains(&port);
        if names.is_empty() || !by_name {
            self.address(address, port);
        }
    }

    /// The number of recorded destinations.
    pub fn count(&self) -> usize {
        self.names.len() + self.addresses.len()
    }

    fn name(&mut self, name: HostName, port: u16) {
        if self.names.len() < MOST {
            self.names.insert((name, port));
        }
    }

    fn address(&mut self, address: Ipv4Addr, port: u16) {
        if self.addresses.len() < MOST {
            self.addresses.insert((address, port));
        }
    }

    /// The shortest policy that allows exactly the recorded destinations. It uses a preset if all recorded ports of the
    /// preset's hosts are covered by it.
    pub fn policy(&self) -> Policy {
        let mut entries = Vec::new();
        for preset in Preset::ALL {
            if self.names.iter().any(|(name, port)| preset.covers(name) && NAMED_PORTS.contains(port)) {
                entries.push(Entry { target: Target::Preset(preset), ports: Ports::Usual });
            }
        }
        for (name, port) in &self.names {
            let usual = NAMED_PORTS.contains(port);
            if usual && Preset::ALL.iter().any(|preset| preset.covers(name)) {
                continue;
            }
            let ports = if usual { Ports::Usual } else { Ports::Only(*port, *port) };
            let entry = Entry { target: Target::Name(name.clone()), ports };
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        for (address, port) in &self.addresses {
            entries.push(Entry { target: Target::Network((*address).into()), ports: Ports::Only(*port, *port) });
        }
        Policy::allow(entries)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::decide::AllowedBy;
    use super::super::rules::Rules;
    use super::*;

    #[test]
    fn presets_replace_their_hosts() {
        let mut learned = Learned::default();
        learned.name("pypi.org".parse().unwrap(), 443);
        learned.name("files.pythonhosted.org".parse().unwrap(), 443);
        learned.name("example.com".parse().unwrap(), 80);
        learned.name("example.com".parse().unwrap(), 443);
        learned.name("github.com".parse().unwrap(), 22);
        learned.address(Ipv4Addr::new(93, 184, 216, 34), 8080);
        let text: Vec<String> = learned.policy().allow.into_iter().map(String::from).collect();
        assert_eq!(text, ["pypi", "example.com", "github.com:22", "93.184.216.34:8080"]);
    }

    #[test]
    fn connections_without_a_name_are_allowed_by_their_resolved_names() {
        let (address, names) = (Ipv4Addr::new(93, 184, 216, 34), ["db.example.com".parse().unwrap()]);
        for (shown, port, names, expected) in [
            (Shown::OtherProtocol, 5432, &names[..], &["db.example.com:5432"][..]),
            (Shown::OtherProtocol, 443, &names, &["db.example.com", "93.184.216.34:443"]),
            (Shown::Nameless, 5432, &names, &["db.example.com:5432", "93.184.216.34:5432"]),
            (Shown::OtherProtocol, 5432, &[], &["93.184.216.34:5432"]),
        ] {
            let mut learned = Learned::default();
            learned.connection(address, port, shown, names);
            let policy = learned.policy();
            let text: Vec<String> = policy.allow.iter().map(ToString::to_string).collect();
            assert_eq!(text, expected);
            let rules = Rules { policy, ..Rules::default() };
            assert!(names.iter().all(|name| rules.name(name).is_ok()));
            assert_eq!(rules.shown(address, port, shown, names), Ok(()), "{shown:?} on {port}");
        }
    }

    proptest! {
        #[test]
        fn learned_destinations_are_allowed(seen in prop::collection::vec(("[a-z]{1,3}\\.com", 1u16..100), 0..20)) {
            let mut learned = Learned::default();
            for (name, port) in &seen {
                learned.name(name.parse().unwrap(), *port);
            }
            let rules = Rules { policy: learned.policy(), ..Rules::default() };
            for (name, port) in seen {
                let pinned: Vec<HostName> = vec![name.parse().unwrap()];
                prop_assert!(rules.name(&pinned[0]).is_ok());
                if port != 53 {
                    let address = Ipv4Addr::new(93, 184, 216, 34);
                    let allowed_by = rules.address(address, port, &pinned);
                    prop_assert!(matches!(allowed_by, Ok(AllowedBy::Name | AllowedBy::NameAndPort)));
                    prop_assert!(rules.shown(address, port, Shown::Name(&pinned[0]), &pinned).is_ok());
                }
            }
        }
    }
}
