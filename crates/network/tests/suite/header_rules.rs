//! Headers are set in requests to their hosts, and TLS to these hosts is opened for that.

use sandling_network::{HeaderRules, HeadersByHost};

use crate::isolated;
use crate::world::{SHARED, World, allow};

fn rules() -> HeaderRules {
    let headers = |name: &str| [(name.to_owned(), "set".to_owned())].into();
    let rules = [("api.example.com".to_owned(), headers("X-Name")), (format!("{SHARED}:80"), headers("X-Address"))];
    HeadersByHost::from(rules).try_into().unwrap()
}

fn request(host: &str) -> String {
    format!("GET /{host} HTTP/1.1\r\nHost: {host}\r\nX-Name: mine\r\nConnection: close\r\n\r\n")
}

isolated! {
    async fn headers_reach_the_hosts_of_their_rules() {
        let world = World::with(allow(&["*.example.com", "example.com"]), |config| config.header_rules = rules()).await;
        for name in ["api.example.com", "example.com"] {
            assert_eq!(world.guest.resolve(name).await, [SHARED]);
            assert!(world.https(name, &request(name)).await.unwrap().starts_with("HTTP/1.1 200"));
        }
        assert!(world.http(SHARED, 80, &request("example.com")).await.unwrap().starts_with("HTTP/1.1 200"));
        let requests = world.requests();
        let has = |number: usize, header: &str| requests[number].to_ascii_lowercase().contains(header);
        assert!(has(0, "x-name: set") && !has(0, "x-address") && !has(0, "mine"), "{requests:?}");
        assert!(has(1, "x-name: mine") && !has(1, "x-address"), "{requests:?}");
        assert!(has(2, "x-name: mine") && has(2, "x-address: set"), "{requests:?}");
        // Without rules, TLS is sealed again, and nothing is set.
        world.gateway().set_header_rules(HeaderRules::default());
        world.https("api.example.com", &request("api.example.com")).await.unwrap();
        assert!(world.requests()[3].contains("mine"));
    }
}
