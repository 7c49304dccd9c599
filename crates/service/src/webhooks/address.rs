//! Which addresses may be told about events.
//!
//! A tenant chooses the URL, so a webhook must not become a way to talk to services on the host or in its network.

use std::net::IpAddr;

use ipnet::Ipv4Net;
use sandling_network::host_addresses;

use crate::public_address::range;

/// The rule for addresses of receivers.
#[derive(Debug, Clone, Default)]
pub struct WebhookAddresses {
    /// Private networks that count as public.
    pub opened: Vec<Ipv4Net>,
    /// Whether the operator allows every address.
    pub allow_private: bool,
}

impl WebhookAddresses {
    pub fn allows(&self, address: IpAddr) -> bool {
        // Without the host's addresses, nothing can be said to be another machine's.
        let Ok(host) = host_addresses() else { return self.allow_private };
        self.allow_private || range(address.to_canonical(), &self.opened, &host).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_told() {
        let rule = WebhookAddresses { opened: vec!["10.9.0.0/16".parse().unwrap()], allow_private: false };
        let allows = |address: &str| rule.allows(address.parse().unwrap());
        assert!(allows("93.184.216.34") && allows("2600:1f18:2148:bc00::1") && allows("10.9.1.1"));
        for address in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "10.8.0.1",
            "192.168.1.2",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "fd00::1",
            "fe80::1",
            "64:ff9b::7f00:1",
            "::ffff:169.254.169.254",
        ] {
            assert!(!allows(address), "{address}");
        }
        assert!(WebhookAddresses { allow_private: true, ..rule }.allows("127.0.0.1".parse().unwrap()));
    }
}
